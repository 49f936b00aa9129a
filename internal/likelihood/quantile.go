package likelihood

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Quantile is the likelihood of quantile regression: the latent function is the target's quantile of the Level,
// 0 < Level < 1. It is the asymmetric Laplace density q(1−q)/√λ·exp(−ρ(y−f)/√λ), ρ(r) = r·(q − 1{r<0}) (Yu and
// Moyeed 2001). Its parameter is lambda, the square of the scale.
//
// With v exponential of mean 1 it is y = f + √λ(θv + τ√v·ε), θ = (1−2q)/(q(1−q)), τ² = 2/(q(1−q)) (Kozumi and
// Kobayashi 2011). Given the residual r, 1/v is inverse Gaussian of mean √λ/(q(1−q)|r|) and shape 1/(2q(1−q)). The
// state of a row is v, and the scale √λ that it was drawn with, since that is part of the pseudo-target
// y − √λθv, too.
type Quantile struct{ Level float64 }

var (
	_ Likelihood   = Quantile{}
	_ Augmentation = Quantile{}
)

// Name returns quantile.
func (Quantile) Name() string { return "quantile" }

// Params returns lambda.
func (Quantile) Params() param.List { return Gaussian{}.Params() }

// Check returns an error if a target is not finite.
func (Quantile) Check(y []float64) error { return Gaussian{}.Check(y) }

// Standardized returns true.
func (Quantile) Standardized() bool { return true }

// product returns q(1−q).
func (q Quantile) product() float64 { return q.Level * (1 - q.Level) }

// rates returns those of the distribution's two sides.
func (q Quantile) rates(theta []float64) (right, left float64) {
	scale := math.Sqrt(theta[0])
	return q.Level / scale, (1 - q.Level) / scale
}

// LogDensity returns log p(y|f) and its derivatives in f.
func (q Quantile) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	right, left := q.rates(theta)
	return logDensityOfSides(right, left, y-f)
}

// Augmentation returns the likelihood itself.
func (q Quantile) Augmentation() Augmentation { return q }

// Width returns 2.
func (Quantile) Width() int { return 2 }

// Held returns 1: the pseudo-targets depend on λ.
func (Quantile) Held() int { return 1 }

// Start sets each v to its prior mean, with a scale of 1/2 standard deviation of the targets.
func (q Quantile) Start(state, y []float64) {
	for i := range y {
		state[2*i], state[2*i+1] = 1, 0.5
	}
}

// Expect sets each v to its mean given the residual.
func (q Quantile) Expect(state, theta, y, f []float64) {
	scale := math.Sqrt(theta[0])
	for i := range y {
		state[2*i], state[2*i+1] = q.product()*(math.Abs(y[i]-f[i])/scale+2), scale
	}
}

// Refresh draws each v given the residual.
func (q Quantile) Refresh(r *rand.Rand, state, theta, y, f []float64) {
	scale := math.Sqrt(theta[0])
	for i := range y {
		state[2*i], state[2*i+1] = reciprocalInverseGaussian(r, q.product()*math.Abs(y[i]-f[i])/scale, 1/(2*q.product())), scale
	}
}

// Targets returns y − √λθv.
func (q Quantile) Targets(y, state []float64) []float64 {
	z := make([]float64, len(y))
	for i, v := range y {
		z[i] = v - state[2*i+1]*(1-2*q.Level)/q.product()*state[2*i]
	}
	return z
}

// Noise returns λτ²v.
func (q Quantile) Noise(_, state []float64) []float64 {
	noise := make([]float64, len(state)/2)
	for i := range noise {
		noise[i] = state[2*i+1] * state[2*i+1] * 2 / q.product() * state[2*i]
	}
	return noise
}

// NoiseGradient returns zero.
func (Quantile) NoiseGradient(_, _ []float64) [][]float64 { return [][]float64{{0}} }

// Draw draws a target.
func (q Quantile) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	right, left := q.rates(theta)
	return drawSides(r, right, left, mean, variance)
}

// Predict returns the mixture over the draws of the sums of N(mean, variance) and the noise.
func (q Quantile) Predict(theta [][]float64, mean, variance []float64) Predictive {
	return predictSides(q.rates, theta, mean, variance)
}
