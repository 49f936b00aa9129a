// Package ep is expectation propagation for Gaussian processes whose likelihood is not Gaussian, dense (Minka 2001; Rasmussen
// and Williams, Gaussian Processes for Machine Learning, 2006, sections 3.6 and 5.5.2). Each row's likelihood is replaced by
// a site exp(ν f − ½τf²), so that the approximate posterior of the latent function is normal, with the precision K⁻¹ + diag(τ) and the
// mean m = Ka. At the fixed point the mean and variance of f in each row are those of the tilted density, the likelihood of the row
// times the cavity, which is what all other sites make of it.
//
// All sites are renewed in parallel from one factorisation of B = I + T^½KT^½, T = diag(τ), and damped where that does not converge. With
// μ, v the cavity's mean and variance, Z its integral with the likelihood, α = ∂log Z/∂μ and β = −∂²log Z/∂μ²,
//
//	τ = β/(1−βv),  ν = (α+βμ)/(1−βv),  a = ν − T^½B⁻¹T^½Kν,  R = T^½B⁻¹T^½
//	log Z_EP = Σ[log Z + ½ log(1+τv)] − ½ log|B| + ½ νᵀm + ½ Σ[(τμ² − 2νμ) − ν²v]/(1+τv)
//	∂_i log Z_EP = ½ aᵀ(∂_iK)a − ½ tr(R ∂_iK),  and Σ ∂_i log Z of the likelihood's own parameters, cavities held fixed
//
// It is for likelihoods that are log-concave in f, of which τ ≥ 0.
package ep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// MaxRows is the most rows that the approximation stores matrices of.
const MaxRows = 5000

// Approximation approximates the posterior of the latent function. It is not safe for concurrent use.
type Approximation struct {
	problem *posterior.Problem
	rows    []likelihood.Likelihood // of each row
	budget  *parallel.Budget
	k       *mat.SymDense
}

// New returns the approximation of a problem. The error, one sentence, says why there is none.
func New(p *posterior.Problem, b *parallel.Budget) (*Approximation, error) {
	n := len(p.Y)
	if n > MaxRows {
		return nil, fmt.Errorf("expectation propagation stores matrices of n² numbers: %d rows are too many, at most %d", n, MaxRows)
	}
	if !likelihood.Integrable(p.Likelihood) {
		return nil, fmt.Errorf("expectation propagation does not take %s: it is for likelihoods that are log-concave, with one latent function, and can be integrated", p.Likelihood.Name())
	}
	a := &Approximation{problem: p, budget: b, k: mat.NewSymDense(n, nil)}
	for i := range p.Y {
		a.rows = append(a.rows, likelihood.At(p.Likelihood, i))
	}
	return a, nil
}

// Sites are renewed at most maxSteps times, until mean and variance of f in every row change by less than tolerance of the
// standard deviation and of the variance. Damping is halved, leastDamping at the least, when the change has grown.
const (
	maxSteps     = 300
	tolerance    = 1e-9
	leastDamping = 1.0 / 16
)

// Posterior is the approximate posterior of the latent function at a ψ: N(Ka, (K⁻¹+diag(τ))⁻¹).
type Posterior struct {
	Mean, Variance []float64 // of f in each row
	A              []float64 // K⁻¹·Mean
	Tau            []float64 // precision of each site, 0 or more
	Evidence       float64   // log Z_EP
	Steps          int
	Converged      bool // whether this is a fixed point

	nu                     []float64
	cavityMean, cavitySpan []float64 // span: variance
	root                   []float64 // T^½
	chol                   mat.Cholesky
}

// errNumerical is the error of a ψ at which there is no approximation.
var errNumerical = errors.New("ep: the covariance matrix is not to be computed with")

func (e *Approximation) offset(i int) float64 {
	if e.problem.Offset == nil {
		return 0
	}
	return e.problem.Offset[i]
}

// prior returns the posterior before there are any sites.
func (e *Approximation) prior() *Posterior {
	n := len(e.problem.Y)
	return &Posterior{nu: make([]float64, n), Tau: make([]float64, n), Mean: make([]float64, n), Variance: make([]float64, n), A: make([]float64, n),
		cavityMean: make([]float64, n), cavitySpan: make([]float64, n), root: make([]float64, n)}
}

// Posterior returns the approximation at ψ, a function of ψ alone. The errors are that of ctx and errNumerical.
func (e *Approximation) Posterior(ctx context.Context, psi []float64) (*Posterior, error) {
	_, own := e.problem.Natural(psi)
	e.problem.Matrix(e.k, psi, e.budget)
	q := e.prior()
	if !e.refresh(q) {
		return nil, errNumerical
	}
	damping, last := 1.0, math.Inf(1)
	for q.Steps < maxSteps && !q.Converged {
		q.Steps++
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		mean, variance := slices.Clone(q.Mean), slices.Clone(q.Variance)
		e.renew(q, own, damping)
		if !e.refresh(q) {
			return nil, errNumerical
		}
		change := 0.0
		for i, v := range q.Variance {
			change = max(change, math.Abs(q.Mean[i]-mean[i])/math.Sqrt(v), math.Abs(v-variance[i])/v)
		}
		if math.IsNaN(change) {
			return nil, errNumerical
		}
		if change > last {
			damping = max(leastDamping, damping/2)
		}
		q.Converged, last = change < tolerance*damping, change
	}
	e.evidence(q, own)
	if math.IsNaN(q.Evidence) || math.IsInf(q.Evidence, 0) {
		return nil, errNumerical
	}
	return q, nil
}

// cavities takes each site out of the marginal density of f in its row.
func (q *Posterior) cavities() {
	for i, v := range q.Variance {
		precision := 1/v - q.Tau[i]
		q.cavitySpan[i] = 1 / precision
		q.cavityMean[i] = (q.Mean[i]/v - q.nu[i]) / precision
	}
}

// renew renews all sites by as much as damping says.
func (e *Approximation) renew(q *Posterior, own []float64, damping float64) {
	q.cavities()
	e.budget.Chunks(len(e.rows), 16, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			mu, v := q.cavityMean[i], q.cavitySpan[i]
			_, alpha, beta := moments(e.rows[i], own, e.problem.Y[i], mu+e.offset(i), v)
			keep := 1 - beta*v // of the variance: 0 to 1 of likelihoods that are log-concave
			q.Tau[i] += damping * (max(0, beta/keep) - q.Tau[i])
			q.nu[i] += damping * ((alpha+beta*mu)/keep - q.nu[i])
		}
	})
}

// refresh computes the posterior from the sites, and reports whether there is one.
func (e *Approximation) refresh(q *Posterior) bool {
	n := len(q.Tau)
	for i, t := range q.Tau {
		q.root[i] = math.Sqrt(t)
	}
	b, v := mat.NewSymDense(n, nil), mat.NewDense(n, n, nil)
	for i := range n {
		row := v.RawRowView(i) // T^½K
		for j := range n {
			row[j] = q.root[i] * e.k.At(i, j)
			if j >= i {
				b.SetSym(i, j, row[j]*q.root[j])
			}
		}
		b.SetSym(i, i, b.At(i, i)+1)
	}
	if !q.chol.Factorize(b) {
		return false
	}
	kv := mat.NewVecDense(n, nil)
	kv.MulVec(e.k, mat.NewVecDense(n, q.nu))
	copy(q.A, q.nu)
	floats.Sub(q.A, q.solve(kv.RawVector().Data))
	mean := mat.NewVecDense(n, q.Mean)
	mean.MulVec(e.k, mat.NewVecDense(n, q.A))

	var lower mat.TriDense
	q.chol.LTo(&lower)
	_ = v.Solve(&lower, v) // it only warns of ill-conditioning
	for j := range n {
		q.Variance[j] = e.k.At(j, j)
	}
	for i := range n {
		for j, x := range v.RawRowView(i) {
			q.Variance[j] -= x * x
		}
	}
	return slices.Min(q.Variance) > 0
}

// solve returns R·v.
func (q *Posterior) solve(v []float64) []float64 {
	x := slices.Clone(v)
	floats.Mul(x, q.root)
	vec := mat.NewVecDense(len(x), x)
	_ = q.chol.SolveVecTo(vec, vec)
	floats.Mul(x, q.root)
	return x
}

// evidence sets log Z_EP.
func (e *Approximation) evidence(q *Posterior, own []float64) {
	q.cavities()
	sum := -q.chol.LogDet()/2 + floats.Dot(q.nu, q.Mean)/2
	for i, like := range e.rows {
		mu, v, t, nu := q.cavityMean[i], q.cavitySpan[i], q.Tau[i], q.nu[i]
		z, _, _ := moments(like, own, e.problem.Y[i], mu+e.offset(i), v)
		sum += z + math.Log1p(t*v)/2 + ((t*mu-2*nu)*mu-nu*nu*v)/(2*(1+t*v))
	}
	q.Evidence = sum
}

// Extra returns nil.
func (*Approximation) Extra() []float64 { return nil }

// At returns log Z_EP at ψ and its gradient, which is nil where there is none. The only error is that of ctx.
func (e *Approximation) At(ctx context.Context, psi []float64) (float64, []float64, error) {
	q, err := e.Posterior(ctx, psi)
	if errors.Is(err, errNumerical) || err == nil && !q.Converged {
		return math.Inf(-1), nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	grad := e.gradient(psi, q)
	if floats.HasNaN(grad) || math.IsInf(floats.Norm(grad, 1), 0) {
		return math.Inf(-1), nil, nil
	}
	return q.Evidence, grad, nil
}

// difference is the half-width of central differences in the likelihood's own parameters.
const difference = 1e-4

// gradient returns the gradient of the evidence in ψ at a fixed point.
func (e *Approximation) gradient(psi []float64, q *Posterior) []float64 {
	var inv mat.SymDense
	_ = q.chol.InverseTo(&inv)
	grad := e.problem.MatrixGradient(psi, func(i, j int) float64 {
		return 0.5 * (q.A[i]*q.A[j] - q.root[i]*q.root[j]*inv.At(i, j))
	}, e.budget)
	for k := len(psi) - e.problem.Own(); k < len(psi); k++ {
		at := func(by float64) (sum float64) {
			x := slices.Clone(psi)
			x[k] += by
			_, own := e.problem.Natural(x)
			for i, like := range e.rows {
				z, _, _ := moments(like, own, e.problem.Y[i], q.cavityMean[i]+e.offset(i), q.cavitySpan[i])
				sum += z
			}
			return sum
		}
		grad[k] = (at(difference) - at(-difference)) / (2 * difference)
	}
	return grad
}
