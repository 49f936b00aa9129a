package likelihood

import (
	"math"
	"math/rand/v2"
)

// Probit is the likelihood of two classes, 0 and 1: p(y=1|f) = Φ(f). It has no parameters of its own.
//
// y is 1 if u > 0, u ~ N(f,1). The state of a row is u, which is the pseudo-target, with noise 1; given f it is
// normal, truncated to the side that y says (Albert and Chib 1993).
type Probit struct{ twoClasses }

var (
	_ Likelihood   = Probit{}
	_ Augmentation = Probit{}
)

// Name returns bernoulli with its link.
func (Probit) Name() string { return "bernoulli (probit)" }

// sign returns 1 for class 1 and −1 for class 0.
func sign(y float64) float64 { return 2*y - 1 }

// LogDensity returns log p(y|f) and its derivatives in f.
func (Probit) LogDensity(_ []float64, y, f float64) (value, score, curvature float64) {
	x := -sign(y) * f
	h := hazard(x)
	return logNormalTail(x), sign(y) * h, h * (h - x)
}

// Augmentation returns the likelihood itself.
func (p Probit) Augmentation() Augmentation { return p }

// Start sets each u to its mean at f = 0.
func (Probit) Start(state, y []float64) {
	for i, v := range y {
		state[i] = sign(v) * hazard(0)
	}
}

// Expect sets each u to its mean given f.
func (Probit) Expect(state, _, y, f []float64) {
	for i, v := range y {
		state[i] = f[i] + sign(v)*hazard(-sign(v)*f[i])
	}
}

// Refresh draws each u given f.
func (Probit) Refresh(r *rand.Rand, state, _, y, f []float64) {
	for i, v := range y {
		if v == 1 {
			state[i] = f[i] + truncatedNormal(r, -f[i], math.Inf(1))
		} else {
			state[i] = f[i] + truncatedNormal(r, math.Inf(-1), -f[i])
		}
	}
}

// Targets returns u.
func (Probit) Targets(_, state []float64) []float64 { return state }

// Noise returns 1.
func (Probit) Noise(_, _ []float64) []float64 { return []float64{1} }

// Draw draws a class.
func (Probit) Draw(r *rand.Rand, _ []float64, mean, variance float64) float64 {
	if mean+math.Sqrt(variance+1)*r.NormFloat64() > 0 {
		return 1
	}
	return 0
}

// Predict returns the mean over the draws of the probability of class 1.
func (Probit) Predict(_ [][]float64, mean, variance []float64) Predictive {
	var p float64
	for t := range mean {
		p += normalCDF(mean[t] / math.Sqrt(1+variance[t]))
	}
	return Class{p / float64(len(mean))}
}
