package posterior

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/solve"
)

// matheronTolerance is the relative change at which the Lanczos run of a prior draw stops: the draw's
// error is small beside any noise that data have.
const matheronTolerance = 1e-4

// latentError bounds how far the solve may leave a draw off, all rows together, in standard deviations of the noise: with the residual r that is
// (rᵀK⁻¹DK⁻¹r)^½ ≤ ‖r‖/(min D)^½.
const latentError = 1e-2

// Settable is a solve.Operator that is K(θ), as Operator is.
type Settable interface {
	solve.Operator
	Set(theta, noise []float64)
}

// Under is a preconditioner P = D + L·Lᵀ with K_f − L·Lᵀ positive semi-definite, as that on some rows is.
type Under interface {
	Rank() int                         // columns of L
	MulFactor(dst, w [][]float64)      // dst = L·w
	MulFactorTrans(dst, v [][]float64) // dst = Lᵀ·v
}

// Matheron sets f to a draw of the latent function at the inputs of a problem given ψ, its targets
// and the auxiliary state of its likelihood:
//
//	f = u + K_f·x,  (K_f+D)x = z − u − D^½e,  u ~ N(0,K_f),
//
// D being the noise. u is a draw of the prior, z − u − D^½e what the targets say against it and its
// noise (Matheron's rule; Wilson et al. 2020, eq. 11). opt is how to solve, to its tolerance or to latentError. With a preconditioner that is Under, u is
// L·v + (K_f−LLᵀ)^½w: of what L leaves the Lanczos run needs fewer iterations than of K_f^½w. normal sets z to standard normals: w, e and v by
// their index. x, if not nil, is where the solve begins and becomes its solution. The operator is left at ψ.
func Matheron(ctx context.Context, p *Problem, op Settable, opt solve.Options, psi []float64, normal func(index int, z []float64), f, x []float64) (solve.Report, error) {
	theta, noise := p.At(psi)
	op.Set(theta, []float64{0})
	rep, err := drawPrior(ctx, op, opt, normal, f)
	if err != nil {
		return rep, err
	}
	op.Set(theta, noise)
	b := make([]float64, len(f))
	normal(1, b)
	for i, z := range p.Targets() {
		b[i] = z - f[i] - math.Sqrt(element(noise, i))*b[i]
	}
	if x == nil {
		x = make([]float64, len(f))
	}
	solver := solve.New(op, opt)
	solver.SetTargets([]float64{max(opt.Tolerance*floats.Norm(b, 2), latentError*math.Sqrt(least(noise)))})
	r, err := solver.Solve(ctx, [][]float64{x}, [][]float64{b})
	rep.Add(r)
	for i := range f { // K_f·x = b − D·x, but for the residual
		f[i] += b[i] - element(noise, i)*x[i]
	}
	return rep, err
}

// drawPrior sets f to a draw of N(0,K_f), K_f being what the operator stands at.
func drawPrior(ctx context.Context, op solve.Operator, opt solve.Options, normal func(index int, z []float64), f []float64) (solve.Report, error) {
	w, u := make([]float64, len(f)), [][]float64{f}
	normal(0, w)
	under, _ := opt.Precond.(Under)
	opt.Tolerance, opt.Precond, opt.Mixed = matheronTolerance, nil, false
	if under == nil || under.Rank() == 0 {
		return solve.New(op, opt).Sqrt(ctx, u, [][]float64{w})
	}
	v, low := make([]float64, under.Rank()), make([]float64, len(f))
	normal(2, v)
	under.MulFactor([][]float64{low}, [][]float64{v})
	s := solve.New(rest{op, under}, opt)
	s.SetTargets([]float64{matheronTolerance * floats.Norm(low, 2)})
	rep, err := s.Sqrt(ctx, u, [][]float64{w})
	floats.Add(f, low)
	return rep, err
}

// rest is K_f − L·Lᵀ.
type rest struct {
	solve.Operator
	under Under
}

// Mul sets dst = (K_f − LLᵀ)·v.
func (r rest) Mul(ctx context.Context, dst, v [][]float64) error {
	if err := r.Operator.Mul(ctx, dst, v); err != nil {
		return err
	}
	part, low := solve.Columns(r.under.Rank(), len(v)), solve.Columns(len(v[0]), len(v))
	r.under.MulFactorTrans(part, v)
	r.under.MulFactor(low, part)
	for c := range dst {
		floats.Sub(dst[c], low[c])
	}
	return nil
}
