package likelihood

import (
	"math"
	"math/rand/v2"
)

// Bernoulli is the likelihood of two classes, 0 and 1: p(y=1|f) = 1/(1+e^−f). It has no
// parameters of its own.
//
// With a Pólya–Gamma variable ω for each row it is Gaussian (Polson, Scott and Windle 2013,
// Theorem 1): p(y|f) ∝ e^(κf) E exp(−ωf²/2), κ = y−½, so that given ω the pseudo-target is κ/ω with
// noise 1/ω; and ω given f is PG(1,f).
type Bernoulli struct{ twoClasses }

var (
	_ Likelihood   = Bernoulli{}
	_ Augmentation = Bernoulli{}
)

// Name returns bernoulli.
func (Bernoulli) Name() string { return "bernoulli" }

// LogDensity returns log p(y|f) and its derivatives in f.
func (Bernoulli) LogDensity(_ []float64, y, f float64) (value, score, curvature float64) {
	p := logistic(f)
	return y*f - softplus(f), y - p, p * (1 - p)
}

func logistic(f float64) float64 { return 1 / (1 + math.Exp(-f)) }

// softplus returns log(1+eᶠ).
func softplus(f float64) float64 { return max(f, 0) + math.Log1p(math.Exp(-math.Abs(f))) }

// Augmentation returns the likelihood itself.
func (b Bernoulli) Augmentation() Augmentation { return b }

// Start sets each ω to its mean at f = 0.
func (Bernoulli) Start(state, _ []float64) {
	for i := range state {
		state[i] = polyaGammaMean(1, 0)
	}
}

// Expect sets each ω to its mean given f.
func (Bernoulli) Expect(state, _, _, f []float64) {
	for i := range state {
		state[i] = polyaGammaMean(1, f[i])
	}
}

// Refresh draws each ω given f.
func (Bernoulli) Refresh(r *rand.Rand, state, _, _, f []float64) {
	for i := range state {
		state[i] = polyaGamma(r, 1, f[i])
	}
}

// Targets returns κ/ω.
func (Bernoulli) Targets(y, state []float64) []float64 {
	z := make([]float64, len(y))
	for i, w := range state {
		z[i] = (y[i] - 0.5) / w
	}
	return z
}

// Noise returns 1/ω.
func (Bernoulli) Noise(_, state []float64) []float64 {
	noise := make([]float64, len(state))
	for i, w := range state {
		noise[i] = 1 / w
	}
	return noise
}

// Draw draws a class.
func (Bernoulli) Draw(r *rand.Rand, _ []float64, mean, variance float64) float64 {
	if r.Float64() < logistic(mean+math.Sqrt(variance)*r.NormFloat64()) {
		return 1
	}
	return 0
}

// Predict returns the mean over the draws of the probability of class 1.
func (Bernoulli) Predict(_ [][]float64, mean, variance []float64) Predictive {
	var p float64
	for t := range mean {
		p += meanLogistic(mean[t], math.Sqrt(variance[t]))
	}
	return Class{p / float64(len(mean))}
}

// meanLogistic returns the mean of 1/(1+e^−f) for f ~ N(mean, sd²). The trapezoidal rule over a
// normal density is exact but for terms of exp(−2π²/h²), and for those of the logistic function's poles,
// exp(−2π²/(h·sd)): the step h is small beside both.
func meanLogistic(mean, sd float64) float64 {
	const reach = 8.5
	step := 0.5 / max(1, sd)
	n := int(math.Ceil(reach / step))
	var sum, weight float64
	for k := -n; k <= n; k++ {
		z := float64(k) * step
		w := math.Exp(-z * z / 2)
		sum += w * logistic(mean+sd*z)
		weight += w
	}
	return sum / weight
}
