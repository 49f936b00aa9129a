// Package laplace is Laplace's approximation for Gaussian processes whose likelihood is not Gaussian: the mode of
// the latent function by Newton's method, the approximate log marginal likelihood there with its gradient, and the Gaussian
// problem that predicts alike (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 3.4 and 5.5,
// algorithms 3.1 and 5.1; Cutajar et al. 2016, section 3.3). With f̂ the mode, W = −∇∇log p(y|f̂), a = ∇log p(y|f̂) = K⁻¹f̂,
// B = I + W^½KW^½, R = W^½B⁻¹W^½ and S = (K⁻¹+W)⁻¹ = K − KRK,
//
//	log q(y)      = log p(y|f̂) − ½ aᵀf̂ − ½ log|B|
//	∂_i log q(y)  = ½ aᵀ(∂_iK)a − ½ tr(R ∂_iK) + sᵀ(I − KR)(∂_iK)a,  s_j = −½ S_jj ∂W_jj/∂f_j
//
// the last term for that f̂ moves with K. Derivatives of W, and those with respect to the likelihood's own
// parameters, are central differences of its score and curvature, which are exact.
//
// It is for likelihoods that are log-concave in f and twice differentiable, such as those of classes and counts. An Approximation
// stores K, of some thousands of rows; Solves is the same by products with K alone; White is the exact density of ψ and f in
// coordinates that the approximation makes nearly normal, for samplers.
package laplace

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

// MaxRows is the most rows that the approximation stores matrices of: about six of n² numbers.
const MaxRows = 5000

// Approximation approximates the marginal likelihood of a problem. It is not safe for concurrent use.
type Approximation struct {
	target
	budget *parallel.Budget
	k      *mat.SymDense
}

// New returns the approximation of a problem. The error, one sentence, says why there is none.
func New(p *posterior.Problem, b *parallel.Budget) (*Approximation, error) {
	n := len(p.Y)
	if n > MaxRows {
		return nil, fmt.Errorf("the approximation of Laplace stores matrices of n² numbers: %d rows are too many, at most %d; draw from the posterior by 'ulisse run'", n, MaxRows)
	}
	if !likelihood.Concave(p.Likelihood) {
		return nil, notConcave(p)
	}
	return &Approximation{target: newTarget(p), budget: b, k: mat.NewSymDense(n, nil)}, nil
}

func notConcave(p *posterior.Problem) error {
	return fmt.Errorf("the approximation of Laplace needs a likelihood that is log-concave and smooth, of one latent function, which %s is not: draw from the posterior by 'ulisse run'", p.Likelihood.Name())
}

// Newton's method: at most newtonSteps steps, each halved at most halvings times, until a step raises the log density
// by less than newtonTolerance.
const (
	newtonSteps     = 100
	halvings        = 30
	newtonTolerance = 1e-11
)

// least is the least curvature that is computed with: where it is less, the row tells next to nothing.
const least = 1e-12

// Mode is the mode of the latent function at a ψ, with what goes with it.
type Mode struct {
	F        []float64 // f̂
	A        []float64 // K⁻¹f̂
	W        []float64 // curvature of each row
	LogLik   float64   // log p(y|f̂)
	Evidence float64   // log q(y)
	Steps    int       // of Newton
	root     []float64 // W^½
	chol     mat.Cholesky
}

// errNumerical is the error of a ψ at which there is no approximation.
var errNumerical = errors.New("laplace: the covariance matrix is not to be computed with")

// factorize factors B = I + W^½KW^½ of a mode's W.
func (l *Approximation) factorize(m *Mode) bool {
	n := len(m.W)
	m.root = make([]float64, n)
	for i, w := range m.W {
		m.root[i] = math.Sqrt(w)
	}
	b := mat.NewSymDense(n, nil)
	from, to := l.k.RawSymmetric(), b.RawSymmetric()
	for i := range n {
		for j := i; j < n; j++ {
			to.Data[i*to.Stride+j] = m.root[i] * m.root[j] * from.Data[i*from.Stride+j]
		}
		to.Data[i*to.Stride+i]++
	}
	return m.chol.Factorize(b)
}

// solve returns R·v.
func (m *Mode) solve(v []float64) []float64 {
	x := slices.Clone(v)
	floats.Mul(x, m.root)
	vec := mat.NewVecDense(len(x), x)
	_ = m.chol.SolveVecTo(vec, vec) // it only warns of ill-conditioning
	floats.Mul(x, m.root)
	return x
}

// Mode returns the mode of the latent function at ψ. The errors are that of ctx and errNumerical.
func (l *Approximation) Mode(ctx context.Context, psi []float64) (*Mode, error) {
	n := len(l.problem.Y)
	_, own := l.problem.Natural(psi)
	l.problem.Matrix(l.k, psi, l.budget)
	m := &Mode{F: make([]float64, n), A: make([]float64, n)}
	var score []float64
	m.LogLik, score, m.W = l.terms(own, m.F)
	height := m.LogLik
	kv := func(v []float64) []float64 {
		out := mat.NewVecDense(n, nil)
		out.MulVec(l.k, mat.NewVecDense(n, v))
		return out.RawVector().Data
	}
	for m.Steps = 1; m.Steps <= newtonSteps; m.Steps++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !l.factorize(m) {
			return nil, errNumerical
		}
		b := make([]float64, n) // Wf + score
		floats.MulTo(b, m.W, m.F)
		floats.Add(b, score)
		a := slices.Clone(b)
		floats.Sub(a, m.solve(kv(b)))
		floats.Sub(a, m.A) // the step in a; that in f is K times it
		f := kv(a)
		rise, step := 0.0, 1.0
		for range halvings {
			na, nf := slices.Clone(m.A), slices.Clone(m.F)
			floats.AddScaled(na, step, a)
			floats.AddScaled(nf, step, f)
			sum, s, w := l.terms(own, nf)
			if h := sum - floats.Dot(na, nf)/2; h >= height {
				rise = h - height
				m.A, m.F, m.LogLik, score, m.W, height = na, nf, sum, s, w, h
				break
			}
			step /= 2
		}
		if math.IsNaN(height) || math.IsInf(height, 0) {
			return nil, errNumerical
		}
		if rise < newtonTolerance*(1+math.Abs(height)) {
			break
		}
	}
	if !l.factorize(m) { // at the W of the end
		return nil, errNumerical
	}
	m.Evidence = height - m.chol.LogDet()/2
	return m, nil
}

// Extra returns nil.
func (*Approximation) Extra() []float64 { return nil }

// At returns log q(y) at ψ and its gradient, which is nil where there is none. The only error is that of ctx.
func (l *Approximation) At(ctx context.Context, psi []float64) (float64, []float64, error) {
	m, err := l.Mode(ctx, psi)
	if errors.Is(err, errNumerical) {
		return math.Inf(-1), nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	grad := l.gradient(psi, m)
	if floats.HasNaN(grad) || math.IsInf(floats.Norm(grad, 1), 0) {
		return math.Inf(-1), nil, nil
	}
	return m.Evidence, grad, nil
}

// gradient returns the gradient of the evidence in ψ.
func (l *Approximation) gradient(psi []float64, m *Mode) []float64 {
	p, n := l.problem, len(m.F)
	_, own := p.Natural(psi)
	// R = W^½B⁻¹W^½, and S's diagonal by V = L⁻¹W^½K.
	v := mat.NewDense(n, n, nil)
	for i := range n {
		row := v.RawRowView(i)
		for j := range n {
			row[j] = m.root[i] * l.k.At(i, j)
		}
	}
	var lower mat.TriDense
	m.chol.LTo(&lower)
	_ = v.Solve(&lower, v)
	var r mat.SymDense
	_ = m.chol.InverseTo(&r)
	for i := range n {
		for j := i; j < n; j++ {
			r.SetSym(i, j, m.root[i]*m.root[j]*r.At(i, j))
		}
	}
	spread := make([]float64, n) // S_jj
	for j := range n {
		spread[j] = l.k.At(j, j)
	}
	for i := range n {
		for j, x := range v.RawRowView(i) {
			spread[j] -= x * x
		}
	}
	s := l.slopes(own, m.F, spread)
	// sᵀ(I − KR) = t
	ks := mat.NewVecDense(n, nil)
	ks.MulVec(l.k, mat.NewVecDense(n, s))
	t := slices.Clone(s)
	floats.Sub(t, m.solve(ks.RawVector().Data))

	grad := l.problem.MatrixGradient(psi, func(i, j int) float64 {
		return 0.5*(m.A[i]*m.A[j]-r.At(i, j)) + 0.5*(t[i]*m.A[j]+m.A[i]*t[j])
	}, l.budget)
	for q := range own {
		grad[len(psi)-len(own)+q] = l.ownGradient(psi, m, spread, t, len(psi)-len(own)+q)
	}
	return grad
}

// ownGradient returns the derivative in element q of ψ, a parameter of the likelihood: that of log p(y|f̂) and of log|B|, and
// that of f̂, which moves by S times the derivative of the score.
func (l *Approximation) ownGradient(psi []float64, m *Mode, spread, t []float64, q int) float64 {
	sum, ds := l.ownTerms(psi, m.F, spread, q)
	kds := mat.NewVecDense(len(t), nil)
	kds.MulVec(l.k, mat.NewVecDense(len(t), ds))
	return sum + floats.Dot(t, kds.RawVector().Data) // sᵀS = tᵀK
}
