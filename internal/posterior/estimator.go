package posterior

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Operator is K(θ): its products, and the quadratic forms of its derivatives
// (cmvp.Operator documents them).
type Operator interface {
	solve.Operator
	// Set changes θ and the variances of the noise, one for all rows or one for each.
	Set(theta, noise []float64)
	Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error)
}

// Factor is a factor F of a fixed P = F·Fᵀ ≈ K, from which whitened probes are
// made.
type Factor interface {
	solve.Root
	MulRoot(dst, v [][]float64) // dst = F·v
}

// ProbeKind is how the trace ½ tr(K⁻¹∂K) is estimated. With w of independent
// signs (normals for Pathwise), and no bias in any of them:
type ProbeKind int

const (
	// Whitened: ½ (K⁻¹Fw)ᵀ ∂K (F⁻ᵀw). Its variance nears the Fisher information
	// as P nears K (the family of Wenger et al. 2022).
	Whitened ProbeKind = iota
	// Rademacher: ½ wᵀK⁻¹∂K w, Hutchinson's, as Filippone and Engler (2015).
	Rademacher
	// Pathwise: ½ uᵀ∂K u with u ~ N(0,K⁻¹) by Lanczos, whose covariance is the
	// Fisher information itself.
	Pathwise
)

// ParseProbeKind returns the kind of the given name.
func ParseProbeKind(name string) (ProbeKind, error) {
	switch name {
	case "whitened":
		return Whitened, nil
	case "rademacher":
		return Rademacher, nil
	case "pathwise":
		return Pathwise, nil
	}
	return 0, fmt.Errorf("unknown kind of probe %q: use whitened, rademacher or pathwise", name)
}

// Early asks for unbiased early stopping of the solves.
type Early struct {
	Q   float64
	Law solve.Law
	// Replicates is the number of independent estimates of the quadratic term.
	// Two or more show how much noise the early stopping adds.
	Replicates int
}

// Estimator estimates gradients of the log posterior. It is not safe for
// concurrent use.
type Estimator struct {
	problem *Problem
	op      Operator
	solver  *solve.Solver
	early   *Early // nil: solve to the tolerance
	kind    ProbeKind
	factor  Factor // for whitened probes, and to precondition pathwise ones
	redraw  int    // iterations between new probes
	warm    [][]float64
	warmKey random.Key
	fill    func(key random.Key, probe int, w []float64) // draws w; tests put a basis here
}

// EstimatorConfig says how an Estimator works.
type EstimatorConfig struct {
	Problem *Problem
	// Operator is K over the problem's inputs; the estimator sets its θ.
	Operator Operator
	Solver   *solve.Solver // of the same operator
	Early    *Early        // nil: solve to the solver's tolerance
	Probes   ProbeKind
	Factor   Factor // needed by Whitened; used by Pathwise if there is one
	// Redraw is the number of iterations for which probes are kept. While they
	// are, their solutions start the next solves, and the noise of consecutive
	// gradients is correlated. 0 and 1 mean fresh probes every time.
	Redraw int
}

// NewEstimator returns an estimator. It panics if whitened probes have no
// factor.
func NewEstimator(c EstimatorConfig) *Estimator {
	if c.Probes == Whitened && c.Factor == nil {
		panic("posterior: whitened probes need a factor")
	}
	fill := func(key random.Key, probe int, w []float64) {
		r := key.Stream(random.Probe, probe)
		if c.Probes == Pathwise {
			random.Normal(r, w)
		} else {
			random.Rademacher(r, w)
		}
	}
	return &Estimator{problem: c.Problem, op: c.Operator, solver: c.Solver, early: c.Early, kind: c.Probes,
		factor: c.Factor, redraw: max(1, c.Redraw), fill: fill}
}

// Gradient is an unbiased estimate of the gradient of the log posterior.
type Gradient struct {
	Value []float64 // p numbers
	// ProbeCov is the covariance of one probe's estimate, from their spread,
	// and SolverCov that of the quadratic term's, from its replicates: nil where
	// they were not measured. The covariance of Value is
	// ProbeCov/Probes + SolverCov.
	ProbeCov  *mat.SymDense
	SolverCov *mat.SymDense
	Probes    int
	Report    solve.Report
	Seconds   float64
}

// Covariance returns the covariance of Value. It panics if it was not measured.
func (g *Gradient) Covariance() *mat.SymDense {
	cov := mat.NewSymDense(len(g.Value), nil)
	cov.ScaleSym(1/float64(g.Probes), g.ProbeCov)
	if g.SolverCov != nil {
		cov.AddSym(cov, g.SolverCov)
	}
	return cov
}

// Reset forgets the previous solutions, so that the next gradient depends on
// its arguments alone. It is called at every checkpoint.
func (e *Estimator) Reset() { e.warm = nil }

// Gradient estimates the gradient at ψ with the given number of probes, drawn
// from the key's streams. If spread is set, the covariances are measured too,
// which makes the forms dearer with many τ. The only error is that of ctx.
func (e *Estimator) Gradient(ctx context.Context, psi []float64, key random.Key, probes int, spread bool) (*Gradient, error) {
	began := time.Now()
	e.op.Set(e.problem.At(psi))
	probeKey := key
	probeKey.Iter -= key.Iter % e.redraw

	pr, err := e.draw(ctx, probeKey, probes)
	if err != nil {
		return nil, err
	}
	ps, err := e.solve(ctx, pr, key, probeKey)
	if err != nil {
		return nil, err
	}
	groups := ps.replicates + 1
	if spread {
		groups = len(ps.u)
	}
	forms, err := e.forms(ctx, psi, ps, groups)
	if err != nil {
		return nil, err
	}

	g := &Gradient{Probes: probes, Report: ps.report}
	_, g.Value = e.problem.LogPrior(psi)
	for _, f := range forms[:ps.replicates] {
		floats.AddScaled(g.Value, 0.5/float64(ps.replicates), f)
	}
	for _, f := range forms[ps.replicates:] {
		floats.AddScaled(g.Value, -0.5/float64(probes), f)
	}
	if spread {
		g.ProbeCov = covariance(forms[ps.replicates:], 0.5)
		if ps.replicates > 1 {
			g.SolverCov = covariance(forms[:ps.replicates], 0.5)
			g.SolverCov.ScaleSym(1/float64(ps.replicates), g.SolverCov)
		}
	}
	g.Seconds = time.Since(began).Seconds()
	return g, nil
}

// pairs are the pairs (u,v) whose forms make a gradient: replicates of the
// quadratic term, then one for each probe.
type pairs struct {
	u, v       [][]float64
	replicates int
	report     solve.Report
}

func (p *pairs) add(u, v []float64) { p.u, p.v = append(p.u, u), append(p.v, v) }

// forms returns Σ uᵀ(∂K/∂ψ)v for all parameters and each group of pairs: as many
// pairs alone as there are groups but one, the last group being the rest.
func (e *Estimator) forms(ctx context.Context, psi []float64, ps *pairs, groups int) ([][]float64, error) {
	group := make([]int, len(ps.u))
	for c := range group {
		group[c] = min(c, groups-1)
	}
	return forms(ctx, e.problem, e.op, psi, ps.u, ps.v, group, groups)
}

// forms returns Σ uᵀ(∂K/∂ψ)v for all parameters over the pairs of each group.
func forms(ctx context.Context, p *Problem, op Operator, psi []float64, u, v [][]float64, group []int, groups int) ([][]float64, error) {
	ofK, err := op.Forms(ctx, u, v, group, groups)
	if err != nil {
		return nil, err
	}
	noise := p.noiseGradient(psi)
	own := len(psi) - len(noise) // where the likelihood's parameters begin
	all := solve.Columns(len(psi), groups)
	for g, f := range ofK {
		copy(all[g], f)
	}
	for c, x := range u {
		for q, d := range noise {
			all[group[c]][own+q] += diagonalForm(x, d, v[c])
		}
	}
	for _, f := range all {
		p.Params.Chain(psi, f)
	}
	return all, nil
}

// diagonalForm returns Σ_i u_i d_i v_i for a diagonal that is one number for all
// rows, or one for each.
func diagonalForm(u, d, v []float64) float64 {
	if len(d) == 1 {
		return d[0] * floats.Dot(u, v)
	}
	var sum float64
	for i, x := range d {
		sum += u[i] * x * v[i]
	}
	return sum
}

// probeSet are the probes of a gradient: right-hand sides b with partners v,
// or, for pathwise probes, finished u.
type probeSet struct {
	b, v, u [][]float64
	report  solve.Report
}

func (e *Estimator) draw(ctx context.Context, key random.Key, probes int) (*probeSet, error) {
	n := e.op.Len()
	w := solve.Columns(n, probes)
	for j := range w {
		e.fill(key, j, w[j])
	}
	switch e.kind {
	case Whitened:
		pr := &probeSet{b: solve.Columns(n, probes), v: solve.Columns(n, probes)}
		e.factor.MulRoot(pr.b, w)
		e.factor.SolveRootTrans(pr.v, w)
		return pr, nil
	case Pathwise:
		pr := &probeSet{u: solve.Columns(n, probes)}
		var root solve.Root
		if e.factor != nil {
			root = e.factor
		}
		var err error
		pr.report, err = e.solver.InvSqrt(ctx, pr.u, w, root)
		return pr, err
	}
	return &probeSet{b: w, v: w}, nil
}

// solve returns the pairs of the forms.
func (e *Estimator) solve(ctx context.Context, pr *probeSet, key, probeKey random.Key) (*pairs, error) {
	n := e.op.Len()
	b := append([][]float64{e.problem.Targets()}, pr.b...)
	if e.warm != nil && e.warmKey != probeKey { // y's solution still helps
		for _, x := range e.warm[1:] {
			clear(x)
		}
	}
	fresh := len(e.warm) != len(b)
	if fresh {
		e.warm = solve.Columns(n, len(b))
	}
	e.warmKey = probeKey

	ps := &pairs{replicates: 1, report: pr.report}
	if e.early != nil {
		if err := e.estimate(ctx, ps, pr, b, key, fresh); err != nil {
			return nil, err
		}
	} else {
		rep, err := e.solver.Solve(ctx, e.warm, b)
		if err != nil {
			return nil, err
		}
		ps.report.Add(rep)
		ps.add(e.warm[0], e.warm[0])
		for c, v := range pr.v {
			ps.add(e.warm[1+c], v)
		}
	}
	for _, u := range pr.u {
		ps.add(u, u)
	}
	return ps, nil
}

// estimate adds the pairs of solves that stop early.
func (e *Estimator) estimate(ctx context.Context, ps *pairs, pr *probeSet, b [][]float64, key random.Key, fresh bool) error {
	if fresh { // y is solved for once to the tolerance: its early-stopped solutions then follow
		rep, err := e.solver.Solve(ctx, e.warm[:1], b[:1])
		if err != nil {
			return err
		}
		ps.report.Add(rep)
	}
	ps.replicates = e.early.Replicates
	est, rep, err := e.solver.Estimate(ctx, e.warm, b, solve.Early{
		Q: e.early.Q, Law: e.early.Law,
		Streams: func(c int) int {
			if c == 0 {
				return 2 * ps.replicates // a quadratic form needs two
			}
			return 1
		},
		Rand: func(c, s int) *rand.Rand { return key.Stream(random.Stopping, c*2*ps.replicates+s) },
	})
	if err != nil {
		return err
	}
	ps.report.Add(rep)
	for r := range ps.replicates {
		ps.add(est[0][2*r], est[0][2*r+1])
	}
	for c, v := range pr.v {
		ps.add(est[1+c][0], v)
	}
	return nil
}

// covariance returns the sample covariance of scale·x, rows being samples, nil
// if there are fewer than two.
func covariance(x [][]float64, scale float64) *mat.SymDense {
	if len(x) < 2 {
		return nil
	}
	p := len(x[0])
	mean := make([]float64, p)
	for _, r := range x {
		floats.AddScaled(mean, 1/float64(len(x)), r)
	}
	cov := mat.NewSymDense(p, nil)
	d := mat.NewVecDense(p, nil)
	for _, r := range x {
		floats.SubTo(d.RawVector().Data, r, mean)
		cov.SymRankOne(cov, scale*scale/float64(len(x)-1), d)
	}
	return cov
}
