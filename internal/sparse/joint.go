package sparse

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Joint is the log density of whitened inducing variables v = L⁻¹u at some parameters, of the distribution of (v, θ) that is
// nearest to the posterior of all that say nothing of the rows beyond v (Hensman, Matthews, Filippone and Ghahramani 2015, eq. 8;
// Matthews 2016, eq. 5.26), but for the prior of θ:
//
//	log N(v | 0, I) + Σ_i E log p(y_i|f_i),   f_i ~ N(a_iᵀv, k_ii − a_iᵀa_i),   a_i = L⁻¹k_i
//
// With s_i and −w_i/2 the derivatives of a row's expectation in mean and variance, c = Σ s_i a_i and G = Σ w_i a_i a_iᵀ,
// its derivatives are
//
//	by v      c − v
//	by K_uf   L⁻ᵀv sᵀ + K_uu⁻¹K_uf diag(w)
//	by K_uu   −½ L⁻ᵀ(T + G)L⁻¹,  T_ij = v_max(i,j)·c_min(i,j)
//	by k_ii   −½ w_i
//
// where T is what the factor L passes on in reverse mode (Smith 1995): the adjoint of L is the lower half of −L⁻ᵀv cᵀ.
type Joint struct {
	Value float64
	V     []float64 // by v
	// Mean and Variance are the rows' given v.
	Mean, Variance []float64
	pass           *pass
	at             []float64 // v
}

// Joint returns the log density of v. The error is ErrSingular or that of ctx. It panics if there are not as many as inducing
// inputs, or if the approximation is not SGPR.
func (a *Approximation) Joint(ctx context.Context, f *kernel.Function, row Row, v []float64) (*Joint, error) {
	m := a.z.Len()
	if len(v) != m || a.kind != SGPR {
		panic(fmt.Sprintf("sparse: %d inducing variables for %d inputs, of %s", len(v), m, a.kind))
	}
	a.at(f)
	uu, err := newFactor(a.inducing())
	if err != nil {
		return nil, err
	}
	p := a.newPass(f, uu, row)
	if err := p.see(ctx, nil, v); err != nil {
		return nil, err
	}
	j := &Joint{Mean: p.mean, Variance: p.variance, V: make([]float64, m), pass: p, at: v}
	j.Value = p.expected - 0.5*(floats.Dot(v, v)+float64(m)*math.Log(2*math.Pi))
	// The pseudo-targets' share is c + Gv, and p.gram is I + G.
	mat.NewVecDense(m, j.V).MulVec(p.gram, mat.NewVecDense(m, v))
	floats.SubTo(j.V, p.shift, j.V)
	if math.IsNaN(j.Value) || math.IsInf(j.Value, 0) {
		return nil, ErrSingular
	}
	return j, nil
}

// Theta returns the derivatives by the covariance's parameters, as kernel.Function.AddGradient has them. It is to be called before
// the approximation is used again.
func (j *Joint) Theta(ctx context.Context) ([]float64, error) {
	p, m := j.pass, len(j.at)
	var gamma mat.VecDense
	gamma.MulVec(p.uu.inverse.T(), mat.NewVecDense(m, j.at))
	p.gamma = gamma.RawVector().Data
	inner := mat.NewDense(m, m, nil)
	for r := range m {
		for c := range m {
			high, low := max(r, c), min(r, c)
			inner.Set(r, c, j.at[high]*(j.V[low]+j.at[low])+p.gram.At(r, c))
		}
	}
	addIdentity(inner, -1)
	v, err := p.reverse(p.uu.sandwich(mat.NewDiagDense(m, ones(m))), inner, p.score, false).sum(ctx)
	if err != nil {
		return nil, err
	}
	return v.Theta, nil
}
