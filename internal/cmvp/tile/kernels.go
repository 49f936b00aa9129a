package tile

import "github.com/ulisse-gp/ulisse/internal/kernel"

// Kernels are the loops of products, for one instruction set and precision. Those
// that depend on a leaf's profile are indexed by it.
type Kernels[T Real] struct {
	// Eval sets the strip k to g(u), evaluated from the squared distance w of
	// packed inputs scaled so that
	//
	//	RBF     exp(−u) = 2^(−w)
	//	Matérn  exp(−a) = 2^(−√w)
	//
	// and u = w of the other profiles, which depend on their shape; of Mismatch w is
	// the number of inputs that differ, which are whole numbers. zi begins at the first
	// row of the strip in its panel, zj at the panel of the first column.
	Eval [kernel.NumProfiles]func(k, zi, zj []T, d, panels int, shape T)

	// Direct adds a strip times s columns of vectors to y:
	//
	//	y[c*ldy+r] += Σ_j k[r*Size+j]·v[c*Size+j]
	//
	// It adds the columns j in increasing order in each of a fixed number of
	// lanes, then the lanes in a fixed order. The strip next, if not nil, is
	// brought into the cache meanwhile, for the calls after this one.
	Direct func(y []float64, ldy int, k, next, v []T, s, panels int)

	// Trans adds a transposed strip times s columns of vectors to y:
	//
	//	y[c*Size+j] += Σ_r k[r*Size+j]·v[c*ldv+r]
	//
	// It adds the rows r in increasing order. For next see Direct.
	Trans func(y, k, next, v []T, ldv, s, panels int)

	// Add adds the first n elements of x to y; n is a multiple of Panel.
	Add func(y []float64, x []T, n int)

	// Multiply sets the first n elements of dst to those of a times those of b, and
	// AddScaled adds those of x times c to y: what strips of sums and products of
	// leaves are made with. n is a multiple of Panel. dst may be a.
	Multiply  func(dst, a, b []T, n int)
	AddScaled func(y, x []T, c T, n int)
}

// Indexed by profile.
type (
	evals[T Real] = [kernel.NumProfiles]func(k, zi, zj []T, d, panels int, shape T)
	derivs        = [kernel.NumProfiles]func(k, h, zi, zj []float64, d, panels int, shape float64)
)

// FormKernels are the loops of gradient forms, for one instruction set.
type FormKernels struct {
	// Deriv sets the strips k and h to g(u) and g'(u), ScaledDeriv to g(u) and
	// u·g'(u). Where the g' of Matérn 1/2 is infinite it is a large number,
	// whose product with any u that goes with it is negligible. ShapeDeriv sets them to
	// g(u) and its derivative by the logarithm of the shape. What no leaf needs is nil.
	Deriv, ScaledDeriv, ShapeDeriv [kernel.NumProfiles]func(k, h, zi, zj []float64, d, panels int, shape float64)

	// Sums adds Σ w·k to sum[0] and Σ w·h to sum[1], over strips k and h with
	// weights
	//
	//	w[r,j] = Σ_c u_c[r]·v_c[j] + v_c[r]·u_c[j]
	//
	// for s columns c. Here columns of vectors are stored panel by panel:
	// column c of panel p begins at (p*ld+c)*Panel. ui and vi begin at the first
	// row of the strip in column 0 of its panel, uj and vj at column 0 of the
	// first panel.
	Sums func(sum, k, h, ui, vi, uj, vj []float64, s, ld, panels int)

	// Weigh adds Σ w·k to sum[0], with these weights, and sets the strip m to
	// w·h.
	Weigh func(sum, m, k, h, ui, vi, uj, vj []float64, s, ld, panels int)

	// Spread adds Σ m[r,j]·(z_rk−z_jk)² to dst[k] for each of the d inputs.
	Spread func(dst, m, zi, zj []float64, d, panels int)
}

// FactorKernels are the loops of factors of stored matrices, for one instruction
// set. Their strips hold Strip rows column by column: element (r,j) of a strip is
// at j*Strip+r, and the strips of a matrix are ld elements apart.
type FactorKernels struct {
	// Update subtracts the product of strips of a with the strip b, transposed,
	// over k columns, a positive multiple of 4, from Strip columns of strips of c:
	//
	//	c[s*ld+i*Strip+r] −= Σ_j a[s*ld+j*Strip+r]·b[j*Strip+i]
	//
	// It subtracts one product after the other, the columns j in increasing order.
	Update func(c, a, b []float64, ld, strips, k int)

	// Solve multiplies Strip columns of strips of c by the inverse of the
	// transposed lower triangle in the first Strip columns of the strip l, by
	// substitution. inv holds the reciprocals of its diagonal.
	Solve func(c, l, inv []float64, ld, strips int)
}

// For returns the kernels for an available instruction set.
func For[T Real](isa ISA) *Kernels[T] {
	if isa == Portable {
		return portable[T]()
	}
	var k any = assembly64(isa)
	if _, single := any(T(0)).(float32); single {
		k = assembly32(isa)
	}
	return k.(*Kernels[T])
}

// FormsFor returns the kernels of gradient forms for an available instruction
// set.
func FormsFor(isa ISA) *FormKernels {
	if isa == Portable {
		return portableForms()
	}
	return assemblyForms(isa)
}

// FactorsFor returns the kernels of factors for an available instruction set.
func FactorsFor(isa ISA) *FactorKernels {
	if isa == Portable {
		return &FactorKernels{Update: updatePortable, Solve: solvePortable}
	}
	return assemblyFactors(isa)
}
