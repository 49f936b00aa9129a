package laplace

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Solves is the approximation by products with K alone, which is never stored (Cutajar et al. 2016, section 3.3). Systems are those of
// R = (K+W⁻¹)⁻¹, a Gaussian problem whose noise is 1/W: conjugate gradients on it with P = W⁻¹ + LLᵀ are those on
// B with I + W^½LLᵀW^½. With r of independent signs
//
//	tr(R ∂_iK) = E (Rr)ᵀ(∂_iK)r,   diag(S) = E r∘(Sr),  Sr = K(r − RKr),
//
// so that gradients take 2·probes + 1 solves beside those of the mode. They are unbiased but for the tolerance: s is
// linear in diag(S). A Solves is not safe for concurrent use.
type Solves struct {
	target
	op   *cmvp.Operator
	seed uint64
	// Cost is what was solved so far.
	Cost solve.Report

	theta, noise []float64 // what the operator is to be set to

	start  []float64 // K⁻¹f̂ where the mode was last found: where the next search begins
	logDet float64   // variance of the last log|B|
}

// Constants of solves.
const (
	solvesProbes    = 4    // of noisy gradients, as published
	fixedProbes     = 16   // of values, the same at each ψ
	solvesTolerance = 1e-6 // relative residual
	solvesNear      = 1e-8 // nats for each row below the mode where Newton's method ends
	solvesMost      = 5000 // iterations of a solve
	solvesKind      = "nystrom"
	valueKind       = "rpcholesky"
)

// NewSolves returns the approximation of a problem. The error, one sentence, says why there is none.
func NewSolves(p *posterior.Problem, b *parallel.Budget, seed uint64) (*Solves, error) {
	if !likelihood.Concave(p.Likelihood) {
		return nil, notConcave(p)
	}
	return &Solves{target: newTarget(p), op: cmvp.New(p.Inputs, p.Covariance, b), seed: seed, start: make([]float64, len(p.Y))}, nil
}

// Extra returns nil.
func (*Solves) Extra() []float64 { return nil }

// solved is a mode with what solves with its W.
type solved struct {
	*Mode
	psi, own []float64
	solver   *solve.Solver // of K + W⁻¹, which the operator is
	pre      *precond.LowRank
}

// set sets the operator to K + W⁻¹, with a preconditioner of some kind.
func (s *Solves) set(ctx context.Context, m *solved, kind string, key random.Key) error {
	n := len(m.W)
	s.noise = make([]float64, n)
	for i, w := range m.W {
		s.noise[i] = 1 / w
	}
	s.op.Set(s.theta, s.noise)
	var err error
	if m.pre, err = precond.Build(ctx, kind, s.op, precond.AutoRank(n), key); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errNumerical
	}
	m.solver = solve.New(s.op, solve.Options{Tolerance: solvesTolerance, Precond: m.pre, Budget: s.op.Budget(), MaxIter: min(solvesMost, 10*n+100)})
	return nil
}

// solve returns R·v of columns.
func (s *Solves) solve(ctx context.Context, m *solved, v ...[]float64) ([][]float64, error) {
	x := solve.Columns(len(v[0]), len(v))
	rep, err := m.solver.Solve(ctx, x, v)
	s.Cost.Add(rep)
	return x, err
}

// product returns K·v of columns, K being without noise: taking the noise off again would lose digits where a row says little.
func (s *Solves) product(ctx context.Context, v ...[]float64) ([][]float64, error) {
	out := solve.Columns(len(v[0]), len(v))
	s.Cost.Products += len(v)
	s.op.Set(s.theta, []float64{0})
	err := s.op.Mul(ctx, out, v)
	s.op.Set(s.theta, s.noise)
	return out, err
}

// mode finds the mode at ψ by Newton's method from where the last one was. The preconditioner is of the key. The errors are that of ctx
// and errNumerical.
func (s *Solves) mode(ctx context.Context, psi []float64, kind string, key random.Key) (*solved, error) {
	n := len(s.problem.Y)
	m := &solved{Mode: &Mode{A: slices.Clone(s.start)}, psi: psi}
	s.theta, m.own = s.problem.Natural(psi)
	s.noise = []float64{0}
	f, err := s.product(ctx, m.A)
	if err != nil {
		return nil, err
	}
	m.F = f[0]
	var score []float64
	m.LogLik, score, m.W = s.terms(m.own, m.F)
	height := m.LogLik - floats.Dot(m.A, m.F)/2
	if zero, g, w := s.terms(m.own, make([]float64, n)); !(height >= zero) {
		m.A, m.F, m.LogLik, score, m.W, height = make([]float64, n), make([]float64, n), zero, g, w, zero
	}
	for m.Steps = 1; m.Steps <= newtonSteps; m.Steps++ {
		if math.IsNaN(height) || math.IsInf(height, 0) {
			return nil, errNumerical
		}
		if err := s.set(ctx, m, kind, key); err != nil {
			return nil, err
		}
		// The step in f is S(score − a) = K(g − RKg), g = score − a, that in a is the same without K.
		g := floats.SubTo(make([]float64, n), score, m.A)
		kg, err := s.product(ctx, g)
		if err != nil {
			return nil, err
		}
		rkg, err := s.solve(ctx, m, kg[0])
		if err != nil {
			return nil, err
		}
		a := floats.SubTo(make([]float64, n), g, rkg[0])
		by, err := s.product(ctx, a)
		if err != nil {
			return nil, err
		}
		if floats.Dot(g, by[0])/2 < solvesNear*float64(n) || !s.climb(m, a, by[0], &height, &score) {
			break
		}
	}
	copy(s.start, m.A)
	return m, nil
}

// climb takes a Newton step, halved until it climbs; it reports false where it never does.
func (s *Solves) climb(m *solved, a, f []float64, height *float64, score *[]float64) bool {
	for step, k := 1.0, 0; k < halvings; k++ {
		na, nf := slices.Clone(m.A), slices.Clone(m.F)
		floats.AddScaled(na, step, a)
		floats.AddScaled(nf, step, f)
		sum, g, w := s.terms(m.own, nf)
		if h := sum - floats.Dot(na, nf)/2; h > *height {
			m.A, m.F, m.LogLik, m.W, *height, *score = na, nf, sum, w, h, g
			return true
		}
		step /= 2
	}
	return false
}

// Gradient estimates the gradient of log q(y) at ψ with probes and a preconditioner that are drawn anew for each iteration.
func (s *Solves) Gradient(ctx context.Context, psi []float64, iter int) ([]float64, error) {
	key := random.Key{Seed: s.seed, Iter: iter}
	m, err := s.mode(ctx, psi, solvesKind, key)
	if err != nil {
		return nil, err
	}
	return s.gradient(ctx, m, key, solvesProbes, true)
}

// gradient estimates that of log q(y), or without the trace: of what log|B| is not, and of its W.
func (s *Solves) gradient(ctx context.Context, m *solved, key random.Key, probes int, trace bool) ([]float64, error) {
	n := len(m.F)
	r := solve.Columns(n, probes)
	for j := range r {
		random.Rademacher(key.Stream(random.Probe, j), r[j])
	}
	kr, err := s.product(ctx, r...)
	if err != nil {
		return nil, err
	}
	columns := kr
	if trace {
		columns = slices.Concat(kr, r)
	}
	solutions, err := s.solve(ctx, m, columns...)
	if err != nil {
		return nil, err
	}
	inner := solve.Columns(n, probes)
	for j := range r {
		floats.SubTo(inner[j], r[j], solutions[j])
	}
	sr, err := s.product(ctx, inner...)
	if err != nil {
		return nil, err
	}
	spread := make([]float64, n) // diag(S)
	for j := range r {
		for i, v := range sr[j] {
			spread[i] += r[j][i] * v / float64(probes)
		}
	}
	t, err := s.implicit(ctx, m, spread)
	if err != nil {
		return nil, err
	}
	// ½aᵀ∂K·a + tᵀ∂K·a, then the trace.
	u, v, group := [][]float64{floats.AddScaledTo(make([]float64, n), t, 0.5, m.A)}, [][]float64{m.A}, []int{0}
	if trace {
		for j := range r {
			x := slices.Clone(solutions[probes+j])
			floats.Scale(-0.5/float64(probes), x)
			u, v, group = append(u, x), append(v, r[j]), append(group, 0)
		}
	}
	forms, err := s.op.Forms(ctx, u, v, group, 1)
	if err != nil {
		return nil, err
	}
	grad := make([]float64, len(m.psi))
	copy(grad, forms[0])
	s.problem.Params.Chain(m.psi, grad)
	for q := len(m.psi) - len(m.own); q < len(m.psi); q++ {
		sum, ds := s.ownTerms(m.psi, m.F, spread, q)
		kds, err := s.product(ctx, ds)
		if err != nil {
			return nil, err
		}
		grad[q] = sum + floats.Dot(t, kds[0])
	}
	return grad, nil
}

// implicit returns t = (I − RK)s, s_j = −½ S_jj ∂W_jj/∂f_j.
func (s *Solves) implicit(ctx context.Context, m *solved, spread []float64) ([]float64, error) {
	t := s.slopes(m.own, m.F, spread)
	kt, err := s.product(ctx, t)
	if err != nil {
		return nil, err
	}
	rkt, err := s.solve(ctx, m, kt[0])
	if err != nil {
		return nil, err
	}
	floats.Sub(t, rkt[0])
	return t, nil
}

// At returns log q(y) at ψ, with log|B| by Lanczos from probes that are the same at each ψ, so that it is a smooth function, and its
// gradient with the same probes; the gradient is nil where there is none. The only error is that of ctx.
func (s *Solves) At(ctx context.Context, psi []float64) (float64, []float64, error) {
	value, grad, err := s.at(ctx, psi)
	if errors.Is(err, errNumerical) {
		return math.Inf(-1), nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	if math.IsNaN(value) || floats.HasNaN(grad) || math.IsInf(floats.Norm(grad, 1), 0) {
		return math.Inf(-1), nil, nil
	}
	return value, grad, nil
}

func (s *Solves) at(ctx context.Context, psi []float64) (float64, []float64, error) {
	key := random.Key{Seed: s.seed, Iter: -1}
	m, err := s.mode(ctx, psi, valueKind, key)
	if err != nil {
		return 0, nil, err
	}
	value := m.LogLik - floats.Dot(m.A, m.F)/2
	grad, err := s.gradient(ctx, m, key, fixedProbes, false)
	if err != nil {
		return 0, nil, err
	}
	// log|B| = log|K+W⁻¹| + Σ log W.
	probed := posterior.NewProbed(s.gaussian(m.Mode), s.op, m.solver, m.pre)
	v, err := probed.At(ctx, psi, key, fixedProbes)
	s.Cost.Add(probed.Report())
	if err != nil {
		return 0, nil, err
	}
	if v == nil {
		return 0, nil, errNumerical
	}
	s.logDet = v.LogDetVar
	value -= v.LogDet / 2
	for _, w := range m.W {
		value -= math.Log(w) / 2
	}
	floats.AddScaled(grad, -0.5, v.LogDetGrad) // of K alone: the sites do not move with what is the likelihood's
	return value, grad, nil
}

// ValueError returns the standard error of the last value that At returned.
func (s *Solves) ValueError() float64 { return math.Sqrt(s.logDet) / 2 }

// Gaussian returns the problem that predicts alike at ψ.
func (s *Solves) Gaussian(ctx context.Context, psi []float64) (*posterior.Problem, error) {
	m, err := s.mode(ctx, psi, valueKind, random.Key{Seed: s.seed, Iter: -1})
	if err != nil {
		return nil, err
	}
	return s.gaussian(m.Mode), nil
}
