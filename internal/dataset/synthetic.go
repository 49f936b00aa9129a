package dataset

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Synthetic describes data drawn from a GP of known parameters: standard
// normal inputs, targets from the GP prior plus noise.
type Synthetic struct {
	N, D   int
	Family kernel.Family
	Truth  Truth
	Seed   uint64
}

// Truth are the parameters that data are generated with: of a covariance of one
// family, and of Gaussian noise.
type Truth struct {
	Sigma  float64   `json:"sigma"`  // marginal variance of the latent function
	Tau    []float64 `json:"tau"`    // inverse squared length-scales 1/(2ℓ²): one shared, or one for each input
	Lambda float64   `json:"lambda"` // noise variance
}

// Of returns the parameters' values on the natural scale, as far as a role and an
// input tell which is which.
func (t *Truth) Of(params param.List) []float64 {
	theta := make([]float64, len(params))
	for i, p := range params {
		switch p.Role {
		case param.Variance:
			theta[i] = t.Sigma
		case param.Rate:
			theta[i] = t.tau(p.Inputs[0])
		case param.Noise:
			theta[i] = t.Lambda
		}
	}
	return theta
}

func (t *Truth) tau(input int) float64 {
	if len(t.Tau) == 1 {
		return t.Tau[0]
	}
	return t.Tau[input]
}

// Psi returns the logarithms in the order in which a model of one family lists its
// parameters.
func (t *Truth) Psi() []float64 {
	psi := []float64{math.Log(t.Sigma)}
	for _, tau := range t.Tau {
		psi = append(psi, math.Log(tau))
	}
	return append(psi, math.Log(t.Lambda))
}

func (t *Truth) positive() bool {
	for _, x := range append([]float64{t.Sigma, t.Lambda}, t.Tau...) {
		if !(x > 0) {
			return false
		}
	}
	return true
}

// exactSynthetic is the largest n for which the targets are drawn exactly, with
// a Cholesky factor. Above it, they are drawn with random features.
const exactSynthetic = 2000

// syntheticFeatures is the number of random Fourier features (Rahimi and Recht
// 2007) that stand for the GP when n is large. Given the features the targets
// are Gaussian with a covariance whose elements differ from the kernel's by
// about σ/√syntheticFeatures.
const syntheticFeatures = 4096

// Exact reports whether the targets are drawn from the GP itself rather than
// from its random-feature approximation.
func (s Synthetic) Exact() bool { return s.N <= exactSynthetic }

// Generate draws the table. Inputs are called x1…xd, the target y.
func (s Synthetic) Generate(budget *parallel.Budget) (*Table, error) {
	if s.N < 2 || s.N > 1_000_000 {
		return nil, fmt.Errorf("synthetic: n is %d, but must be from 2 to 1000000", s.N)
	}
	if s.D < 1 || s.D > 1000 {
		return nil, fmt.Errorf("synthetic: d is %d, but must be from 1 to 1000", s.D)
	}
	if len(s.Truth.Tau) != 1 && len(s.Truth.Tau) != s.D {
		return nil, fmt.Errorf("synthetic: %d values of tau for d = %d: give one, or one for each input", len(s.Truth.Tau), s.D)
	}
	for _, v := range append([]float64{s.Truth.Sigma, s.Truth.Lambda}, s.Truth.Tau...) {
		if !(v > 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("synthetic: sigma, tau and lambda must be positive, not %g", v)
		}
	}
	t := &Table{Target: "y", X: make([][]float64, s.D), Y: make([]float64, s.N)}
	key := random.Key{Seed: s.Seed}
	for k := range t.X {
		t.Inputs = append(t.Inputs, fmt.Sprintf("x%d", k+1))
		t.X[k] = make([]float64, s.N)
		random.Normal(key.Stream(random.Synthetic, 1+k), t.X[k])
	}
	c := kernel.Single(s.Family, s.D, len(s.Truth.Tau) > 1)
	f, r := c.At(s.Truth.Of(c.Params())), key.Stream(random.Synthetic, 0)
	draw := s.features
	if s.Exact() {
		draw = s.exact
	}
	if err := draw(t, f, r, budget); err != nil {
		return nil, err
	}
	noise := key.Stream(random.Noise, 0)
	for i := range t.Y {
		t.Y[i] += math.Sqrt(s.Truth.Lambda) * noise.NormFloat64()
	}
	return t, nil
}

// exact adds L·z with L the Cholesky factor of K_f.
func (s Synthetic) exact(t *Table, f *kernel.Function, r *rand.Rand, _ *parallel.Budget) error {
	k := mat.NewSymDense(s.N, nil)
	xi, xj := make([]float64, s.D), make([]float64, s.D)
	for i := range s.N {
		s.row(t, i, xi)
		for j := i; j < s.N; j++ {
			s.row(t, j, xj)
			k.SetSym(i, j, f.Value(xi, xj))
		}
		// A jitter far below the noise keeps the factor real.
		k.SetSym(i, i, k.At(i, i)*(1+1e-10))
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return fmt.Errorf("synthetic: the covariance matrix is numerically singular: shorten the length-scales or use fewer rows")
	}
	z := mat.NewVecDense(s.N, nil)
	random.Normal(r, z.RawVector().Data)
	var l mat.TriDense
	chol.LTo(&l)
	y := mat.NewVecDense(s.N, t.Y)
	y.MulVec(&l, z)
	return nil
}

func (s Synthetic) row(t *Table, i int, x []float64) {
	for k := range x {
		x[k] = t.X[k][i]
	}
}

// features adds Σ_m a_m cos(ω_mᵀx + b_m) with frequencies from the kernel's
// spectral density.
func (s Synthetic) features(t *Table, f *kernel.Function, r *rand.Rand, budget *parallel.Budget) error {
	omega := make([]float64, syntheticFeatures*s.D)
	phase := make([]float64, syntheticFeatures)
	amp := make([]float64, syntheticFeatures)
	for m := range syntheticFeatures {
		f.Frequency(r, omega[m*s.D:(m+1)*s.D])
		phase[m] = 2 * math.Pi * r.Float64()
		amp[m] = math.Sqrt(2*f.Scale()/syntheticFeatures) * r.NormFloat64()
	}
	budget.Chunks(s.N, 256, func(_, lo, hi int) {
		x := make([]float64, s.D)
		for i := lo; i < hi; i++ {
			s.row(t, i, x)
			var y float64
			for m, b := range phase {
				w := omega[m*s.D:][:s.D]
				for k, xk := range x {
					b += w[k] * xk
				}
				y += amp[m] * math.Cos(b)
			}
			t.Y[i] += y
		}
	})
	return nil
}

// Standardized returns the parameters in the units of a dataset: σ and λ in
// units of the target's variance, τ per squared unit of each standardised
// input. If shared is set, one τ is returned, the geometric mean.
func Standardized(t Truth, d *Dataset, shared bool) Truth {
	v := d.YScale.SD * d.YScale.SD
	out := Truth{Sigma: t.Sigma / v, Lambda: t.Lambda / v}
	var mean float64
	for k, s := range d.XScale {
		tau := t.tau(k) * s.SD * s.SD
		out.Tau = append(out.Tau, tau)
		mean += math.Log(tau) / float64(len(d.XScale))
	}
	if shared {
		out.Tau = []float64{math.Exp(mean)}
	}
	return out
}
