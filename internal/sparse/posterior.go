package sparse

import (
	"context"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Posterior is the normal distribution of the latent function that an approximation comes to at some
// parameters. With k the covariances of a value with the inducing variables and k** its prior variance, its
// mean is kᵀγ, its variance k** − kᵀC k with C = L⁻ᵀ(I − B⁻¹)L⁻¹, and its covariance with another
// one's alike: no test point is approximated (Quiñonero-Candela and Rasmussen 2005, section 8.1).
type Posterior struct {
	Gamma []float64
	Beta  []float64     // the mean of the whitened inducing variables
	uu    *mat.TriDense // L⁻¹
	b     factor        // of B
}

func (s *fit) posterior() *Posterior { return &Posterior{s.gamma, s.beta, s.uu.inverse, s.b} }

// Whitened returns the distribution of the whitened inducing variables L⁻¹u: its mean, the lower inverse root R of the
// precision B, so that the covariance is RᵀR, and log|B|.
func (p *Posterior) Whitened() (mean []float64, root *mat.TriDense, logDet float64) {
	return p.Beta, p.b.inverse, p.b.logDet
}

// At returns the latent function's mean, and the part of its prior variance that is explained, at a point whose covariances
// with the inducing variables are k, given the whitened inducing variables v.
func (p *Posterior) At(v, k []float64) (mean, explained float64) {
	a := mat.NewVecDense(len(k), nil)
	a.MulVec(p.uu, mat.NewVecDense(len(k), k))
	return mat.Dot(a, mat.NewVecDense(len(v), v)), mat.Dot(a, a)
}

// Posterior returns the latent function's distribution. Errors and panics are those of LogDensity.
func (a *Approximation) Posterior(ctx context.Context, f *kernel.Function, noise, y []float64) (*Posterior, error) {
	s, err := a.fit(ctx, f, noise, y)
	if err != nil {
		return nil, err
	}
	return s.posterior(), nil
}

// Explained sets dst to C·k. They may be the same.
func (p *Posterior) Explained(dst, k []float64) {
	m := len(k)
	v, half, w, out := mat.NewVecDense(m, nil), mat.NewVecDense(m, nil), mat.NewVecDense(m, nil), mat.NewVecDense(m, nil)
	v.MulVec(p.uu, mat.NewVecDense(m, k))
	half.MulVec(p.b.inverse, v)
	w.MulVec(p.b.inverse.T(), half)
	v.SubVec(v, w)
	out.MulVec(p.uu.T(), v)
	copy(dst, out.RawVector().Data)
}
