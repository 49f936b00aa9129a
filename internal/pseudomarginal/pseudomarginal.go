// Package pseudomarginal estimates the marginal likelihood p(y|ψ) of a Gaussian process whose likelihood is not Gaussian, without bias:
// by importance sampling of the latent function from a Gaussian approximation q of its posterior (Filippone and Girolami 2014, equation 25).
// Metropolis–Hastings on ψ with such estimates in place of the density, each of which stays with its ψ as long as the chain does,
// has the exact posterior of ψ (Andrieu and Roberts 2009), however many samples there are and however good q is; both say how well it mixes.
//
// q is N(m, (K⁻¹+W)⁻¹) with m = Ka and a diagonal W ≥ 0, which is what Laplace's approximation and expectation propagation come to.
// With B = I + W^½KW^½ and f₀ ~ N(0,K), ε ~ N(0,I) a draw of it is, by Matheron's rule,
//
//	f = m + f₀ − KW^½B⁻¹(W^½f₀ + ε)
//
// and its weight needs no inverse of K:
//
//	log p(y|f)N(f|0,K)/q(f) = log p(y|f) − ½ log|B| − aᵀ(f − m/2) + ½ (f−m)ᵀW(f−m)
package pseudomarginal

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/ep"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Approximation returns a and the diagonal of W of the Gaussian that the latent function is drawn from, a function of ψ alone. An error other
// than ctx's says that there is none at ψ.
type Approximation func(ctx context.Context, psi []float64) (a, w []float64, err error)

// Laplace returns Laplace's approximation of a problem.
func Laplace(p *posterior.Problem, b *parallel.Budget) (Approximation, error) {
	l, err := laplace.New(p, b)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, psi []float64) (a, w []float64, err error) {
		m, err := l.Mode(ctx, psi)
		if err != nil {
			return nil, nil, err
		}
		return m.A, m.W, nil
	}, nil
}

// EP returns the approximation of a problem by expectation propagation, at a fixed point or where that search ended.
func EP(p *posterior.Problem, b *parallel.Budget) (Approximation, error) {
	e, err := ep.New(p, b)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, psi []float64) (a, w []float64, err error) {
		q, err := e.Posterior(ctx, psi)
		if err != nil {
			return nil, nil, err
		}
		return q.A, q.Tau, nil
	}, nil
}

// Estimator estimates the marginal likelihood of a problem. It is not safe for concurrent use.
type Estimator struct {
	problem       *posterior.Problem
	rows          []likelihood.Likelihood // of each row
	approximation Approximation
	samples       int
	budget        *parallel.Budget
	k             *mat.SymDense
}

// New returns the estimator with a number of samples of the latent function, 1 or more.
func New(p *posterior.Problem, q Approximation, samples int, b *parallel.Budget) *Estimator {
	e := &Estimator{problem: p, approximation: q, samples: samples, budget: b, k: mat.NewSymDense(len(p.Y), nil)}
	for i := range p.Y {
		e.rows = append(e.rows, likelihood.At(p.Likelihood, i))
	}
	return e
}

// The diagonal of K is multiplied by 1 + jitter, for K to have a factor: by the least of these with which it has one.
const (
	leastJitter = 1e-10
	mostJitter  = 1e-6
)

// factor sets k to K_f at ψ and returns its lower factor, nil if there is none.
func (e *Estimator) factor(psi []float64) *mat.TriDense {
	e.problem.Matrix(e.k, psi, e.budget)
	var chol mat.Cholesky
	added := 0.0
	for jitter := leastJitter; jitter <= mostJitter; jitter *= 10 {
		for i := range e.problem.Y {
			e.k.SetSym(i, i, e.k.At(i, i)*(1+jitter)/(1+added))
		}
		added = jitter
		if chol.Factorize(e.k) {
			l := new(mat.TriDense)
			chol.LTo(l)
			return l
		}
	}
	return nil
}

// LogLikelihood returns the logarithm of an unbiased estimate of p(y|ψ), whose samples are drawn by r; −∞ where K is numerically singular or
// there is no approximation. The only error is that of ctx.
func (e *Estimator) LogLikelihood(ctx context.Context, psi []float64, r *rand.Rand) (float64, error) {
	n := len(e.rows)
	a, w, err := e.approximation(ctx, psi)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	lower := e.factor(psi)
	if err != nil || lower == nil {
		return math.Inf(-1), nil
	}
	m := mat.NewVecDense(n, nil)
	m.MulVec(e.k, mat.NewVecDense(n, a))
	deviation, logDet, ok := e.deviations(lower, w, r)
	if !ok {
		return math.Inf(-1), nil
	}
	_, own := e.problem.Natural(psi)
	weights := make([]float64, e.samples)
	for s := range weights {
		weights[s] = e.logWeight(own, a, w, m.RawVector().Data, deviation, s) - logDet/2
	}
	if floats.HasNaN(weights) {
		return math.Inf(-1), nil
	}
	return floats.LogSumExp(weights) - math.Log(float64(e.samples)), nil
}

// logWeight returns the log weight of sample s, but for log|B|.
func (e *Estimator) logWeight(own, a, w, m []float64, deviation *mat.Dense, s int) float64 {
	sum := 0.0
	for i, y := range e.problem.Y {
		d := deviation.At(i, s)
		f := m[i] + d
		arg := f
		if e.problem.Offset != nil {
			arg += e.problem.Offset[i]
		}
		value, _, _ := e.rows[i].LogDensity(own, y, arg)
		sum += value - a[i]*(f-m[i]/2) + w[i]*d*d/2
	}
	return sum
}

// deviations returns draws of f − m in columns, and log|B|.
func (e *Estimator) deviations(lower *mat.TriDense, w []float64, r *rand.Rand) (d *mat.Dense, logDet float64, ok bool) {
	n := len(w)
	root, b := make([]float64, n), mat.NewSymDense(n, nil)
	for i := range w {
		root[i] = math.Sqrt(w[i])
	}
	for i := range n {
		for j := i; j < n; j++ {
			b.SetSym(i, j, root[i]*root[j]*e.k.At(i, j))
		}
		b.SetSym(i, i, b.At(i, i)+1)
	}
	var chol mat.Cholesky
	if !chol.Factorize(b) {
		return nil, 0, false
	}
	normal := func() *mat.Dense {
		z := mat.NewDense(n, e.samples, nil)
		for i := range z.RawMatrix().Data {
			z.RawMatrix().Data[i] = r.NormFloat64()
		}
		return z
	}
	prior, x := new(mat.Dense), normal() // f₀, W^½f₀ + ε
	prior.Mul(lower, normal())
	for i := range n {
		floats.AddScaled(x.RawRowView(i), root[i], prior.RawRowView(i))
	}
	_ = chol.SolveTo(x, x) // it only warns of ill-conditioning
	for i := range n {
		floats.Scale(root[i], x.RawRowView(i))
	}
	d = new(mat.Dense)
	d.Mul(e.k, x)
	d.Sub(prior, d)
	return d, chol.LogDet(), true
}
