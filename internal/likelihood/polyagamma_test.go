package likelihood

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// The Laplace transform of PG(b,z) is cosh(z/2)ᵇ/cosh(√((z²/2+t)/2))ᵇ (Polson, Scott and Windle
// 2013, eq. 5), and its mean b·tanh(z/2)/(2z). 57 comparisons at 4.5 standard errors fail by
// chance once in 2,500 seeds.
func TestPolyaGamma(t *testing.T) {
	const n = 10_000
	r := rand.New(rand.NewPCG(5, 6))
	for _, b := range []float64{1, 3, 0.4, 2.7} {
		for _, z := range []float64{0, 0.1, -1, 3.12, 3.2, 10, -60} {
			if b > 1 && math.Abs(z) > 4 {
				continue
			}
			x := make([]float64, n)
			for i := range x {
				x[i] = polyaGammaReal(r, b, z)
			}
			m, s := stat.MeanStdDev(x, nil)
			if want := polyaGammaMean(b, z); math.Abs(m-want) > 4.5*s/math.Sqrt(n) {
				t.Errorf("PG(%g,%g) has the mean %v, want %v ± %v", b, z, m, want, s/math.Sqrt(n))
			}
			for _, at := range []float64{0.5, 5} {
				e := make([]float64, n)
				for i := range x {
					e[i] = math.Exp(-at * x[i])
				}
				m, s := stat.MeanStdDev(e, nil)
				ratio := math.Cosh(z/2) / math.Cosh(math.Sqrt((z*z/2+at)/2))
				if want := math.Pow(ratio, b); math.Abs(m-want) > 4.5*s/math.Sqrt(n) {
					t.Errorf("PG(%g,%g): Laplace transform %v at %g, want %v ± %v", b, z, m, at, want, s/math.Sqrt(n))
				}
			}
		}
	}
	if w := polyaGamma(r, 1, 1e4); !(w > 0 && w < 1) {
		t.Errorf("PG(1,10⁴) gave %v", w)
	}
}
