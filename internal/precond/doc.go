// Package precond builds preconditioners P ≈ K that are cheap to solve with
// and whose factor F, P = F·Fᵀ, and determinant are known in closed form: a
// positive diagonal plus a matrix of low rank, P = D + L·Lᵀ.
//
// A kind is a function that returns D and L, registered in kinds.go; the
// algebra is in LowRank. With L̃ = D^{-1/2}L and I + L̃ᵀL̃ = C·Cᵀ (Cholesky),
//
//	P⁻¹ = D^{-1/2} (I − L̃ (CCᵀ)⁻¹ L̃ᵀ) D^{-1/2}
//	F   = D^{1/2} (I + L̃ (I+C)⁻¹ L̃ᵀ)
//	F⁻¹ = (I − L̃ (I+Cᵀ)⁻¹ C⁻¹ L̃ᵀ) D^{-1/2}
//	|P| = |D| |C|²
//
// The first is Woodbury's identity (Cutajar et al. 2016, section 3, with the
// noise that the print drops); the second follows from
// (I+C)(I+Cᵀ) = I + C + Cᵀ + CCᵀ, which makes F·Fᵀ = P, and needs no
// eigenvalues.
package precond
