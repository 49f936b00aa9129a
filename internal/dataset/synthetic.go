package dataset

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Synthetic describes data drawn from a GP of known parameters: standard
// normal inputs, targets from the GP prior plus noise.
type Synthetic struct {
	N, D   int
	Family kernel.Family
	Params kernel.Params
	Seed   uint64
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
	if len(s.Params.Tau) != 1 && len(s.Params.Tau) != s.D {
		return nil, fmt.Errorf("synthetic: %d values of tau for d = %d: give one, or one for each input", len(s.Params.Tau), s.D)
	}
	for _, v := range append([]float64{s.Params.Sigma, s.Params.Lambda}, s.Params.Tau...) {
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
	if s.Exact() {
		if err := s.exact(t, key.Stream(random.Synthetic, 0)); err != nil {
			return nil, err
		}
	} else {
		s.features(t, key.Stream(random.Synthetic, 0), budget)
	}
	noise := key.Stream(random.Noise, 0)
	for i := range t.Y {
		t.Y[i] += math.Sqrt(s.Params.Lambda) * noise.NormFloat64()
	}
	return t, nil
}

// exact adds L·z with L the Cholesky factor of K_f.
func (s Synthetic) exact(t *Table, r *rand.Rand) error {
	k := mat.NewSymDense(s.N, nil)
	xi, xj := make([]float64, s.D), make([]float64, s.D)
	for i := range s.N {
		s.row(t, i, xi)
		for j := i; j < s.N; j++ {
			s.row(t, j, xj)
			k.SetSym(i, j, s.Params.Sigma*s.Family.Value(s.Params.Dist(xi, xj)))
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
func (s Synthetic) features(t *Table, r *rand.Rand, budget *parallel.Budget) {
	omega := make([]float64, syntheticFeatures*s.D)
	phase := make([]float64, syntheticFeatures)
	amp := make([]float64, syntheticFeatures)
	for m := range syntheticFeatures {
		s.Family.Frequency(r, s.Params, omega[m*s.D:(m+1)*s.D])
		phase[m] = 2 * math.Pi * r.Float64()
		amp[m] = math.Sqrt(2*s.Params.Sigma/syntheticFeatures) * r.NormFloat64()
	}
	budget.Chunks(s.N, 256, func(_, lo, hi int) {
		x := make([]float64, s.D)
		for i := lo; i < hi; i++ {
			s.row(t, i, x)
			var f float64
			for m, b := range phase {
				w := omega[m*s.D:][:s.D]
				for k, xk := range x {
					b += w[k] * xk
				}
				f += amp[m] * math.Cos(b)
			}
			t.Y[i] += f
		}
	})
}

// Standardized returns the parameters in the units of a dataset: σ and λ in
// units of the target's variance, τ per squared unit of each standardised
// input. If shared is set, one τ is returned, the geometric mean.
func Standardized(p kernel.Params, d *Dataset, shared bool) kernel.Params {
	v := d.YScale.SD * d.YScale.SD
	out := kernel.Params{Sigma: p.Sigma / v, Lambda: p.Lambda / v}
	var mean float64
	for k, s := range d.XScale {
		tau := p.TauAt(k) * s.SD * s.SD
		out.Tau = append(out.Tau, tau)
		mean += math.Log(tau) / float64(len(d.XScale))
	}
	if shared {
		out.Tau = []float64{math.Exp(mean)}
	}
	return out
}
