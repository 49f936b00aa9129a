package laplace

import (
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Gaussian returns the problem whose Gaussian likelihood is what Laplace's approximation at a mode puts in place of the
// likelihood: targets z = f̂ + a/W with the noise 1/W, each row its own. The latent function has the same mean
// k*ᵀ(K+W⁻¹)⁻¹z and the same variance k** − k*ᵀ(K+W⁻¹)⁻¹k* in both; targets are told by the likelihood itself.
func (l *Approximation) Gaussian(m *Mode) *posterior.Problem { return l.gaussian(m) }

func (l *target) gaussian(m *Mode) *posterior.Problem {
	p := l.problem
	s := sites{Likelihood: p.Likelihood}
	for i, w := range m.W {
		s.targets = append(s.targets, m.F[i]+l.offset(i)+m.A[i]/w)
		s.noise = append(s.noise, 1/w)
	}
	out := *p
	out.State = nil
	out.Likelihood = s
	if rows, ok := p.Likelihood.(likelihood.ByRow); ok {
		out.Likelihood = sitesByRow{s, rows}
	}
	return &out
}

// sites is a likelihood with Gaussian pseudo-targets that are fixed. It is its own augmentation, without state.
type sites struct {
	likelihood.Likelihood
	targets, noise []float64
}

var (
	_ likelihood.Augmentation = sites{}
	_ likelihood.Wrapped      = sites{}
)

// Unwrap returns the likelihood that the sites stand for.
func (s sites) Unwrap() likelihood.Likelihood { return s.Likelihood }

// Augmentation returns the sites.
func (s sites) Augmentation() likelihood.Augmentation { return s }

// Width returns 0.
func (sites) Width() int { return 0 }

// Held returns 0.
func (sites) Held() int { return 0 }

// Start does nothing.
func (sites) Start(_, _ []float64) {}

// Expect does nothing.
func (sites) Expect(_, _, _, _ []float64) {}

// Refresh does nothing.
func (sites) Refresh(*rand.Rand, []float64, []float64, []float64, []float64) {}

// Targets returns the pseudo-targets.
func (s sites) Targets(_, _ []float64) []float64 { return s.targets }

// Noise returns the variances of their noise.
func (s sites) Noise(_, _ []float64) []float64 { return s.noise }

// NoiseGradient returns zeros: they are fixed.
func (s sites) NoiseGradient(theta, _ []float64) [][]float64 {
	out := make([][]float64, len(theta))
	for i := range out {
		out[i] = []float64{0}
	}
	return out
}

// sitesByRow are the sites of a likelihood that differs between rows.
type sitesByRow struct {
	sites
	rows likelihood.ByRow
}

var _ likelihood.ByRow = sitesByRow{}

// Select returns the likelihood of some rows, which are not those that were learnt from.
func (s sitesByRow) Select(rows []int) likelihood.Likelihood { return s.rows.Select(rows) }

// Of returns the likelihood of other rows.
func (s sitesByRow) Of(rows likelihood.Rows) likelihood.ByRow { return s.rows.Of(rows) }

// Offset reports whether some of the noise is known.
func (s sitesByRow) Offset() bool { return s.rows.Offset() }
