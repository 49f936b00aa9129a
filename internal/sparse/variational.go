package sparse

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Row is what a row adds to a variational bound: where its latent value is normal with the given mean and variance, the
// expectation of log p(y|f), its derivative in the mean, and minus twice that in the variance, which is positive
// if log p is concave.
type Row func(row int, mean, variance float64) (value, score, weight float64)

// Variational is a normal distribution q of the whitened inducing variables, v = L⁻¹u, and the bound
//
//	Σ_i E_q(f_i) log p(y_i|f_i) − KL(q ‖ N(0,I))
//
// at its best q (Hensman, Matthews and Ghahramani 2015, with whitening). A step of the natural gradient of size one moves q to
// the posterior of targets with normal noise, of variance 1/w_i and at m_i + s_i/w_i, s and w being score and weight at the
// marginals N(m_i,v_i) of the q before (Khan and Lin 2017): with Gaussian noise that is the best q at once, and the bound SGPR's.
// At the best q the derivatives of the bound are therefore those of SGPR with these targets and variances.
type Variational struct {
	*Approximation
	precision *mat.SymDense // of q
	shift     []float64     // the precision times its mean
}

// Steps of natural gradients.
const (
	mostSteps  = 200
	leastShare = 1e-4 // of a step
	bestEnough = 1e-9 // change of the bound, relative to its size
)

// NewVariational returns a variational approximation, which begins at the prior. Each evaluation begins where the one before
// has ended.
func NewVariational(a *Approximation) *Variational {
	v := &Variational{Approximation: a}
	v.Reset()
	return v
}

// Reset begins at the prior anew.
func (v *Variational) Reset() {
	m := v.z.Len()
	v.precision, v.shift = identity(m), make([]float64, m)
}

// Keep returns a function that makes the next evaluation begin where one would now.
func (v *Variational) Keep() func() {
	precision, shift := v.precision, v.shift
	return func() { v.precision, v.shift = precision, shift }
}

// State returns q, m(m+1)/2 + m numbers: the upper triangle of its precision, row by row, and the shift.
func (v *Variational) State() []float64 {
	m := len(v.shift)
	out := make([]float64, 0, m*(m+3)/2)
	for i := range m {
		for j := i; j < m; j++ {
			out = append(out, v.precision.At(i, j))
		}
	}
	return append(out, v.shift...)
}

// SetState makes q what State has returned. It panics if that is of another number of inducing inputs.
func (v *Variational) SetState(q []float64) {
	m := len(v.shift)
	if len(q) != m*(m+3)/2 {
		panic(fmt.Sprintf("sparse: %d numbers for q of %d inducing variables", len(q), m))
	}
	precision, at := mat.NewSymDense(m, nil), 0
	for i := range m {
		for j := i; j < m; j++ {
			precision.SetSym(i, j, q[at])
			at++
		}
	}
	v.precision, v.shift = precision, slices.Clone(q[at:])
}

func identity(m int) *mat.SymDense {
	out := mat.NewSymDense(m, nil)
	for j := range m {
		out.SetSym(j, j, 1)
	}
	return out
}

// pass is what is found of all rows at a q.
type pass struct {
	*fit
	row            Row
	mean, variance []float64
	score          []float64
	shift          []float64 // b of the rows' normal targets
	expected       float64
	q              factor    // of the precision of q
	centre         []float64 // its mean
}

// newPass returns a pass that has seen no rows yet.
func (a *Approximation) newPass(f *kernel.Function, uu factor, row Row) *pass {
	n, m := a.rows.Len(), a.z.Len()
	return &pass{fit: &fit{Approximation: a, f: f, uu: uu, gram: identity(m), lambda: make([]float64, n), own: make([]float64, n)},
		row: row, variance: make([]float64, n), score: make([]float64, n), shift: make([]float64, m)}
}

// evaluate returns the bound at a q, with the rows' targets there.
func (v *Variational) evaluate(ctx context.Context, f *kernel.Function, uu factor, row Row, precision *mat.SymDense, shift []float64) (*pass, error) {
	m, p := v.z.Len(), v.newPass(f, uu, row)
	q, err := newFactor(precision)
	if err != nil {
		return nil, err
	}
	var half, mean mat.VecDense
	half.MulVec(q.inverse, mat.NewVecDense(m, shift))
	mean.MulVec(q.inverse.T(), &half)
	if err := p.see(ctx, q.columns(), mean.RawVector().Data); err != nil {
		return nil, err
	}
	p.q, p.centre = q, mean.RawVector().Data
	trace := 0.0 // of the covariance of q
	for _, x := range q.inverse.RawTriangular().Data {
		trace += x * x
	}
	p.value = p.expected - 0.5*(trace+mat.Dot(&mean, &mean)-float64(m)+q.logDet)
	if math.IsNaN(p.value) || math.IsInf(p.value, 0) {
		return nil, ErrSingular
	}
	return p, nil
}

// see finds the rows' marginals, then their targets. spread is the root of q's covariance, nil for none.
func (p *pass) see(ctx context.Context, spread [][]float64, mean []float64) (err error) {
	w := &sweep{root: p.uu.columns(), spread: spread, mean: mean}
	w.weigh = func(lo, hi int, factor, scaled []float64) float64 { return p.targets(w, lo, hi, factor, scaled) }
	p.expected, err = p.sweep(ctx, w, p.shift)
	p.mean = w.means
	return err
}

// targets finds the targets of the rows [lo,hi), and returns the expectation that they add.
func (p *pass) targets(w *sweep, lo, hi int, factor, scaled []float64) (sum float64) {
	for i := range hi - lo {
		at := lo + i
		p.variance[at] = max(p.prior[at]-p.own[at], 0)
		if w.left != nil {
			p.variance[at] += w.left[at]
		}
		value, score, weight := p.row(at, w.means[at], p.variance[at])
		weight = max(weight, leastWeight)
		sum += value
		p.score[at], p.lambda[at] = score, 1/weight
		factor[i] = math.Sqrt(weight)
		scaled[i] = factor[i] * (w.means[at] + score/weight)
	}
	return sum
}

// leastWeight is that of a row that says next to nothing.
const leastWeight = 1e-12

// best finds the best q, and leaves it for the next evaluation to begin at.
func (v *Variational) best(ctx context.Context, f *kernel.Function, row Row) (*pass, error) {
	v.at(f)
	uu, err := newFactor(v.inducing())
	if err != nil {
		return nil, err
	}
	p, err := v.evaluate(ctx, f, uu, row, v.precision, v.shift)
	if err != nil {
		return nil, err
	}
	share := 1.0
	for range mostSteps {
		precision, shift := v.between(p, share)
		next, err := v.evaluate(ctx, f, uu, row, precision, shift)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		tiny := bestEnough * (1 + math.Abs(p.value))
		if err != nil || next.value < p.value-tiny {
			if share /= 2; share < leastShare {
				break
			}
			continue
		}
		gain := next.value - p.value
		v.precision, v.shift, p = precision, shift, next
		share = min(1, 2*share)
		if gain < tiny {
			break
		}
	}
	return p, p.close()
}

// between returns the q a share of the way from the present one to that of the rows' targets.
func (v *Variational) between(p *pass, share float64) (*mat.SymDense, []float64) {
	m := len(v.shift)
	precision, shift := mat.NewSymDense(m, nil), make([]float64, m)
	for i := range m {
		shift[i] = (1-share)*v.shift[i] + share*p.shift[i]
		for j := i; j < m; j++ {
			precision.SetSym(i, j, (1-share)*v.precision.At(i, j)+share*p.gram.At(i, j))
		}
	}
	return precision, shift
}

// close computes what gradients and predictions are made of.
func (p *pass) close() (err error) {
	if p.b, err = newFactor(p.gram); err != nil {
		return err
	}
	p.coefficients(p.shift)
	return nil
}

// Bound returns the bound at its best q.
func (v *Variational) Bound(ctx context.Context, f *kernel.Function, row Row) (float64, error) {
	p, err := v.best(ctx, f, row)
	if err != nil {
		return 0, err
	}
	return p.value, nil
}

// Gradient is Approximation.Gradient for the bound at its best q: of Value Noise is nil, and Mean and Variance are the
// marginals.
func (v *Variational) Gradient(ctx context.Context, f *kernel.Function, row Row, inducing bool) (*Value, error) {
	p, err := v.best(ctx, f, row)
	if err != nil {
		return nil, err
	}
	out, err := p.fit.gradient(ctx, p.score, inducing)
	if err != nil {
		return nil, err
	}
	out.Noise, out.Mean, out.Variance = nil, p.mean, p.variance
	return out, nil
}

// Step returns an estimate of the bound at the present q and its derivatives there, and takes q a share of a step of the natural gradient
// farther, all from the rows of an approximation with the same number of inducing inputs: some of them, each of which row lets count for
// several (Hensman, Fusi and Lawrence 2013). Noise of the value is nil, and Mean and Variance are the marginals. At a q that is not the
// best, with S its covariance, m its mean, c = Σ s_i a_i and G = Σ w_i a_i a_iᵀ as for Joint, the derivatives are
//
//	by K_uf   L⁻ᵀm sᵀ + L⁻ᵀ(I − S)L⁻¹K_uf diag(w)
//	by K_uu   −½ L⁻ᵀT L⁻¹, T the lower half of mcᵀ + (I − S)G, mirrored
//	by k_ii   −½ w_i
func (v *Variational) Step(ctx context.Context, a *Approximation, f *kernel.Function, row Row, share float64, inducing bool) (*Value, error) {
	on := &Variational{Approximation: a, precision: v.precision, shift: v.shift}
	a.at(f)
	uu, err := newFactor(a.inducing())
	if err != nil {
		return nil, err
	}
	p, err := on.evaluate(ctx, f, uu, row, v.precision, v.shift)
	if err != nil {
		return nil, err
	}
	g := p.slopes(inducing)
	precision, shift := on.between(p, share)
	out, err := g.sum(ctx)
	if err != nil { // then q stays where it was
		return nil, err
	}
	v.precision, v.shift = precision, shift
	out.Noise, out.Mean, out.Variance = nil, p.mean, p.variance
	return out, nil
}

// slopes returns the gradient at the q of a pass, but for the sums over rows.
func (p *pass) slopes(inducing bool) *gradient {
	m := p.z.Len()
	var rest, product mat.Dense // I − S, what T is the lower half of
	rest.Mul(p.q.inverse.T(), p.q.inverse)
	rest.Scale(-1, &rest)
	addIdentity(&rest, 1)
	var gram mat.Dense // G
	gram.CloneFrom(p.gram)
	addIdentity(&gram, -1)
	product.Mul(&rest, &gram)
	// b of the rows' targets is Σ (w_i m_i + s_i) a_i, of which the first part is G times the mean.
	mean := mat.NewVecDense(m, p.centre)
	var c mat.VecDense
	c.MulVec(&gram, mean)
	c.SubVec(mat.NewVecDense(m, p.shift), &c)
	product.RankOne(&product, 1, mean, &c)
	inner := mat.NewDense(m, m, nil)
	for i := range m {
		for j := range m {
			inner.Set(i, j, product.At(max(i, j), min(i, j)))
		}
	}
	var gamma mat.VecDense
	gamma.MulVec(p.uu.inverse.T(), mean)
	p.gamma = gamma.RawVector().Data
	return p.reverse(p.uu.sandwich(&rest), inner, p.score, inducing)
}

// Posterior returns the latent function's distribution under the best q.
func (v *Variational) Posterior(ctx context.Context, f *kernel.Function, row Row) (*Posterior, error) {
	p, err := v.best(ctx, f, row)
	if err != nil {
		return nil, err
	}
	return p.posterior(), nil
}
