package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// NegativeBinomial is the likelihood of counts of mean e^f whose variance is greater than that,
// e^f + e^2f/r. Its parameter is size, r: the larger, the nearer to Poisson.
//
// With u = f − log r it is p(y|f) ∝ e^(uy)/(1+eᵘ)^(y+r), which is Gaussian in f given a Pólya–Gamma
// variable ω ~ PG(y+r, u) for each row (Polson, Scott and Windle 2013, section 3): the pseudo-target is
// (y−r)/(2ω) + log r with noise 1/ω. A row's state is ω, and the r that it was drawn with.
type NegativeBinomial struct{}

var (
	_ Likelihood   = NegativeBinomial{}
	_ Augmentation = NegativeBinomial{}
)

// Name returns negative-binomial.
func (NegativeBinomial) Name() string { return "negative-binomial" }

// Params returns size.
func (NegativeBinomial) Params() param.List {
	return param.List{{Symbol: "size", Role: param.Size}}
}

// maxCount bounds counts: the auxiliary variable of a row takes time in proportion to its count.
const maxCount = 1e6

// Check returns an error if a target is not a count.
func (NegativeBinomial) Check(y []float64) error {
	for i, v := range y {
		if !(v >= 0 && v <= maxCount && v == math.Round(v)) {
			return fmt.Errorf("the target of row %d is %g: model.likelihood: negative-binomial needs counts, whole numbers from 0 to %g", i+1, v, float64(maxCount))
		}
	}
	return nil
}

// Standardized returns false.
func (NegativeBinomial) Standardized() bool { return false }

// LogDensity returns log p(y|f) and its derivatives in f.
func (NegativeBinomial) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	r := theta[0]
	u := f - math.Log(r)
	a, _ := math.Lgamma(y + r)
	b, _ := math.Lgamma(r)
	c, _ := math.Lgamma(y + 1)
	p := logistic(u)
	return a - b - c + u*y - (y+r)*softplus(u), y - (y+r)*p, (y + r) * p * (1 - p)
}

// Augmentation returns the likelihood itself.
func (n NegativeBinomial) Augmentation() Augmentation { return n }

// Width returns 2.
func (NegativeBinomial) Width() int { return 2 }

// Held returns 1: the pseudo-targets depend on r.
func (NegativeBinomial) Held() int { return 1 }

// Start sets the state that is expected with r = 1 and the mean half above the target.
func (n NegativeBinomial) Start(state, y []float64) {
	f := make([]float64, len(y))
	for i, v := range y {
		f[i] = math.Log(v + 0.5)
	}
	n.Expect(state, []float64{1}, y, f)
}

// Expect sets each ω to its mean given f.
func (NegativeBinomial) Expect(state, theta, y, f []float64) {
	r := theta[0]
	for i, v := range y {
		state[2*i], state[2*i+1] = polyaGammaMean(v+r, f[i]-math.Log(r)), r
	}
}

// Refresh draws each ω given f.
func (NegativeBinomial) Refresh(rnd *rand.Rand, state, theta, y, f []float64) {
	r := theta[0]
	for i, v := range y {
		state[2*i], state[2*i+1] = polyaGammaReal(rnd, v+r, f[i]-math.Log(r)), r
	}
}

// Targets returns (y−r)/(2ω) + log r.
func (NegativeBinomial) Targets(y, state []float64) []float64 {
	z := make([]float64, len(y))
	for i, v := range y {
		w, r := state[2*i], state[2*i+1]
		z[i] = (v-r)/(2*w) + math.Log(r)
	}
	return z
}

// Noise returns 1/ω.
func (NegativeBinomial) Noise(_, state []float64) []float64 {
	noise := make([]float64, len(state)/2)
	for i := range noise {
		noise[i] = 1 / state[2*i]
	}
	return noise
}

// NoiseGradient returns zero.
func (NegativeBinomial) NoiseGradient(_, _ []float64) [][]float64 { return [][]float64{{0}} }

// Draw draws a count: Poisson, of a mean that is gamma distributed.
func (NegativeBinomial) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	mu := math.Exp(mean + math.Sqrt(variance)*r.NormFloat64())
	rate := distuv.Gamma{Alpha: theta[0], Beta: theta[0] / mu, Src: r}.Rand()
	return distuv.Poisson{Lambda: rate, Src: r}.Rand()
}

// Predict returns the mixture over the draws, and over a quadrature of f at each, of negative binomial
// distributions.
func (NegativeBinomial) Predict(theta [][]float64, mean, variance []float64) Predictive {
	const (
		reach = 6.0
		step  = 0.5
	)
	c := &counts{}
	var total float64
	for z := -reach; z <= reach; z += step {
		total += math.Exp(-z * z / 2)
	}
	total *= float64(len(mean))
	for t, m := range mean {
		sd := math.Sqrt(variance[t])
		for z := -reach; z <= reach; z += step {
			c.parts = append(c.parts, countPart{weight: math.Exp(-z*z/2) / total, size: theta[t][0], mean: math.Exp(m + sd*z)})
		}
	}
	c.tabulate()
	return c
}
