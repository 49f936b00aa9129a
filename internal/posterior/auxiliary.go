package posterior

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Smooth is a P_θ = F·Fᵀ ≈ K(θ), a smooth function of θ, with its determinant.
type Smooth interface {
	solve.Preconditioner
	solve.Root
	MulRootTrans(dst, v [][]float64) // dst = Fᵀ·v
	LogDet() float64
}

// Auxiliary evaluates the joint log density of ψ and an auxiliary n-vector x,
//
//	log p(ψ) − ½ log|P_ψ| − ½ yᵀK⁻¹y − ½ vᵀKv,  v = F_ψ⁻ᵀx,
//
// whose marginal in ψ is the posterior: vᵀKv = xᵀMx with M = F⁻¹KF⁻ᵀ, and
// ∫exp(−½xᵀMx)dx ∝ |M|^{−½} = |P|^½|K|^{−½}. No determinant of K is needed, and
// x given ψ is N(0,M⁻¹). An Auxiliary is not safe for concurrent use.
type Auxiliary struct {
	problem *Problem
	op      Operator
	pre     func(context.Context) (Smooth, error)
	opt     solve.Options
	err     float64 // that a log density may have

	x      []float64 // the auxiliary variable
	points []*point  // the last two ψ that were looked at
}

// point is what does not depend on x.
type point struct {
	psi  []float64
	pre  Smooth  // nil: K is numerically singular here
	base float64 // the log density without its last term
}

// NewAuxiliary returns the joint density with P_θ from pre, which is to build it
// for the operator as that stands. opt is how to solve; its preconditioner is
// ignored. err is by how much solves may leave a log density off, where that is less strict than opt's tolerance; 0: they go to that.
//
// With the residual r the density is off by ½rᵀK⁻¹r ≤ ½‖r‖²/min D, D being the noise. A relative change δ of x, drawn by Lanczos, changes
// its distribution, in total variation, by about ½δ√n where P is near K: it goes to δ = err/√n.
func NewAuxiliary(p *Problem, op Operator, pre func(context.Context) (Smooth, error), opt solve.Options, err float64) *Auxiliary {
	return &Auxiliary{problem: p, op: op, pre: pre, opt: opt, err: err}
}

// Refresh draws x given ψ from the standard normals w, by Lanczos, and returns
// the log density there.
func (a *Auxiliary) Refresh(ctx context.Context, psi, w []float64) (float64, solve.Report, error) {
	pt, rep, err := a.at(ctx, psi)
	if err != nil || pt.pre == nil {
		return math.Inf(-1), rep, err
	}
	a.x = make([]float64, len(w))
	x := [][]float64{a.x}
	opt := a.opt
	opt.Tolerance = max(opt.Tolerance, a.err/math.Sqrt(float64(len(w))))
	r, err := solve.New(a.op, opt).InvSqrt(ctx, x, [][]float64{w}, pt.pre)
	rep.Add(r)
	if err != nil {
		return 0, rep, err
	}
	pt.pre.MulRootTrans(x, x)
	value, r, err := a.LogDensity(ctx, psi)
	rep.Add(r)
	return value, rep, err
}

// LogDensity returns the log density of ψ and the last x that was drawn, up to
// a constant; −∞ where K is numerically singular.
func (a *Auxiliary) LogDensity(ctx context.Context, psi []float64) (float64, solve.Report, error) {
	pt, rep, err := a.at(ctx, psi)
	if err != nil || pt.pre == nil {
		return math.Inf(-1), rep, err
	}
	v, kv := solve.Columns(len(a.x), 1), solve.Columns(len(a.x), 1)
	pt.pre.SolveRootTrans(v, [][]float64{a.x})
	rep.Products++
	if err := a.op.Mul(ctx, kv, v); err != nil {
		return 0, rep, err
	}
	value := pt.base - 0.5*floats.Dot(v[0], kv[0])
	if math.IsNaN(value) {
		value = math.Inf(-1)
	}
	return value, rep, nil
}

// Renew draws the auxiliary state of the likelihood given ψ and the latent function f. The problem
// is one that nobody else draws a state of.
func (a *Auxiliary) Renew(r *rand.Rand, psi, f []float64) {
	a.problem.Refresh(r, psi, f)
	a.points = nil // they are of another noise
}

// Latent sets f to a draw of the latent function given ψ, the targets and the auxiliary state of the
// likelihood, by Matheron's rule, whose standard normals are those of an index.
func (a *Auxiliary) Latent(ctx context.Context, psi []float64, normal func(index int, z []float64), f []float64) (solve.Report, error) {
	pt, rep, err := a.at(ctx, psi)
	if err != nil {
		return rep, err
	}
	opt := a.opt
	if pt.pre != nil {
		opt.Precond = pt.pre
	}
	r, err := Matheron(ctx, a.problem, a.op, opt, psi, normal, f, nil)
	rep.Add(r)
	return rep, err
}

// at returns the point of ψ and sets the operator's θ to it.
func (a *Auxiliary) at(ctx context.Context, psi []float64) (*point, solve.Report, error) {
	var rep solve.Report
	a.op.Set(a.problem.At(psi))
	for i, p := range a.points {
		if slices.Equal(p.psi, psi) {
			a.points = append(slices.Delete(a.points, i, i+1), p) // the last to be forgotten
			return p, rep, nil
		}
	}
	pt := &point{psi: slices.Clone(psi)}
	prior, _ := a.problem.LogPrior(psi)
	if math.IsNaN(prior) || math.IsInf(prior, 0) {
		return pt, rep, nil
	}
	pre, err := a.pre(ctx)
	if err != nil { // numerically singular, as the oracle would find K to be
		return pt, rep, ctx.Err()
	}
	opt := a.opt
	opt.Precond = pre
	y := a.problem.Targets()
	x, kx := solve.Columns(len(y), 1), solve.Columns(len(y), 1)
	solver := solve.New(a.op, opt)
	_, noise := a.problem.At(psi)
	solver.SetTargets([]float64{max(opt.Tolerance*floats.Norm(y, 2), math.Sqrt(2*a.err*least(noise)))})
	if rep, err = solver.Solve(ctx, x, [][]float64{y}); err != nil {
		return nil, rep, err
	}
	rep.Products++
	if err := a.op.Mul(ctx, kx, x); err != nil {
		return nil, rep, err
	}
	// 2yᵀx − xᵀKx is off by rᵀK⁻¹r only, r = y − Kx.
	quad := 2*floats.Dot(y, x[0]) - floats.Dot(x[0], kx[0])
	pt.pre, pt.base = pre, prior-0.5*pre.LogDet()-0.5*quad
	a.points = append(a.points[max(0, len(a.points)-1):], pt)
	return pt, rep, nil
}
