// Package precond builds preconditioners P ≈ K for a K(θ) that is known by its
// products and its elements (Covariance).
//
// Most of them are a part B that is cheap to factorise plus a matrix of low
// rank, P = B + L·Lᵀ (LowRank). B = G·Gᵀ is diagonal or block diagonal. A kind is
// a function that returns B and L, registered in kinds.go. With L̃ = G⁻¹L and
// I + L̃ᵀL̃ = C·Cᵀ (Cholesky), the inverse, a factor F with F·Fᵀ = P and the
// determinant are in closed form:
//
//	P⁻¹ = G⁻ᵀ (I − L̃ (CCᵀ)⁻¹ L̃ᵀ) G⁻¹
//	F   = G (I + L̃ (I+C)⁻¹ L̃ᵀ)
//	F⁻¹ = (I − L̃ (I+Cᵀ)⁻¹ C⁻¹ L̃ᵀ) G⁻¹
//	|P| = |B| |C|²
//
// The first is Woodbury's identity (Cutajar et al. 2016, section 3, with the
// noise that the print drops); the second follows from
// (I+C)(I+Cᵀ) = I + C + Cᵀ + CCᵀ, which makes F·Fᵀ = P, and needs no
// eigenvalues.
//
// The others (Inner) are solved with by an inner CG. They vary from one
// application to the next, so that the outer CG must be flexible, and have no
// factor, so that whitened probes cannot be made from them.
//
// Rows of a factor of pivots can be computed by whoever has the inputs, from its recipe (recipe.go), so that a
// group can build and keep it (spread.go).
//
// Blocks are sets of rows that are near each other (Clusters). The data keep
// their order, which users see; the preconditioner gathers its rows.
//
// Everything is computed from products of K, rectangular blocks of K_f, single
// elements, and level-3 work on stored columns (package dense), on the cores of a
// budget; the bits do not depend on how many those are, nor on whether the products
// with K are shared by a group (Covariance). Builds look at their context often
// enough to end within a fraction of a second.
package precond
