package posterior

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Dense is the oracle: the log posterior and its derivatives from a stored K
// and its Cholesky factor, in O(n²) memory and O(n³) time. It shares no code
// with the products and solvers that are tested against it.
type Dense struct {
	problem *Problem
	budget  *parallel.Budget
	k       *mat.SymDense
	chol    mat.Cholesky
}

// NewDense returns the oracle of a problem.
func NewDense(p *Problem, budget *parallel.Budget) *Dense {
	return &Dense{problem: p, budget: budget, k: mat.NewSymDense(len(p.Y), nil)}
}

// factorize builds K(ψ) and its factor. It reports false if K is not positive
// definite to rounding, or not finite.
func (d *Dense) factorize(psi []float64) bool {
	p := d.problem
	_, noise := p.At(psi)
	p.Matrix(d.k, psi, d.budget)
	for i, raw := 0, d.k.RawSymmetric(); i < raw.N; i++ {
		raw.Data[i*raw.Stride+i] += element(noise, i)
	}
	return d.chol.Factorize(d.k)
}

// LogDensity returns the log posterior density of ψ up to the constant of the
// evidence, −∞ where K is numerically singular.
func (d *Dense) LogDensity(psi []float64) float64 {
	prior, _ := d.problem.LogPrior(psi)
	if math.IsNaN(prior) || math.IsInf(prior, 0) || !d.factorize(psi) {
		return math.Inf(-1)
	}
	n := len(d.problem.Y)
	y := mat.NewVecDense(n, d.problem.Targets())
	a := mat.NewVecDense(n, nil)
	_ = d.chol.SolveVecTo(a, y) // only warns of ill-conditioning
	v := prior - 0.5*mat.Dot(y, a) - 0.5*d.chol.LogDet() - 0.5*float64(n)*math.Log(2*math.Pi)
	if math.IsNaN(v) {
		return math.Inf(-1)
	}
	return v
}

// Solve returns K⁻¹z at ψ, and false where K is numerically singular.
func (d *Dense) Solve(psi []float64) ([]float64, bool) {
	if !d.factorize(psi) {
		return nil, false
	}
	a := mat.NewVecDense(len(d.problem.Y), nil)
	_ = d.chol.SolveVecTo(a, mat.NewVecDense(len(d.problem.Y), d.problem.Targets()))
	return a.RawVector().Data, true
}

// Gradient returns the gradient of LogDensity, and false where K is
// numerically singular or the gradient is not finite.
func (d *Dense) Gradient(psi []float64) ([]float64, bool) {
	_, grad := d.problem.LogPrior(psi)
	if !d.factorize(psi) {
		return nil, false
	}
	p := d.problem
	n := len(p.Y)
	a := mat.NewVecDense(n, nil)
	_ = d.chol.SolveVecTo(a, mat.NewVecDense(n, p.Targets()))
	var inv mat.SymDense
	_ = d.chol.InverseTo(&inv)
	k, noise := p.Function(psi), p.noiseGradient(psi)
	own := len(psi) - len(noise) // where the likelihood's parameters begin

	const rows = 16
	parts := make([][]float64, (n+rows-1)/rows)
	d.budget.Chunks(n, rows, func(c, lo, hi int) {
		g := make([]float64, len(psi))
		for i := lo; i < hi; i++ {
			xi := p.Inputs.Row(i)
			for j := i; j < n; j++ {
				w := 0.5 * (a.AtVec(i)*a.AtVec(j) - inv.At(i, j))
				if j == i {
					for q, dn := range noise {
						g[own+q] += w * element(dn, i)
					}
				} else {
					w *= 2
				}
				k.AddGradient(g, w, xi, p.Inputs.Row(j))
			}
		}
		parts[c] = g
	})
	for _, g := range parts {
		p.Params.Chain(psi, g)
		for i := range grad {
			grad[i] += g[i]
		}
	}
	for _, g := range grad {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return nil, false
		}
	}
	return grad, true
}

// Information returns the observed information, the negative Hessian of the
// log posterior at ψ, by central differences of the gradient.
func (d *Dense) Information(psi []float64) (*mat.SymDense, bool) {
	const step = 1e-4
	p := len(psi)
	h := mat.NewDense(p, p, nil)
	x := append([]float64(nil), psi...)
	for i := range p {
		x[i] = psi[i] + step
		up, ok := d.Gradient(x)
		if !ok {
			return nil, false
		}
		x[i] = psi[i] - step
		down, ok := d.Gradient(x)
		if !ok {
			return nil, false
		}
		x[i] = psi[i]
		for j := range p {
			h.Set(i, j, -(up[j]-down[j])/(2*step))
		}
	}
	info := mat.NewSymDense(p, nil)
	for i := range p {
		for j := i; j < p; j++ {
			info.SetSym(i, j, (h.At(i, j)+h.At(j, i))/2)
		}
	}
	return info, true
}
