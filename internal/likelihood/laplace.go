package likelihood

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Laplace is noise whose density falls exponentially on both sides, exp(−|y−f|/√λ)/(2√λ): f is the target's
// median. Its parameter is lambda, the square of the scale: the noise's variance is 2λ.
//
// It is a scale mixture of normals: y = f + √(λv)·ε, v exponential of mean 2 (Andrews and Mallows 1974). Given
// the residual r the state 1/v is inverse Gaussian of mean √λ/|r| and shape 1 (Park and Casella 2008).
type Laplace struct{}

var (
	_ Likelihood   = Laplace{}
	_ Augmentation = Laplace{}
)

// Name returns laplace.
func (Laplace) Name() string { return "laplace" }

// Params returns lambda.
func (Laplace) Params() param.List { return Gaussian{}.Params() }

// Check returns an error if a target is not finite.
func (Laplace) Check(y []float64) error { return Gaussian{}.Check(y) }

// Standardized returns true.
func (Laplace) Standardized() bool { return true }

// rates returns those of the distribution's two sides.
func (Laplace) rates(theta []float64) (right, left float64) {
	rate := 1 / math.Sqrt(theta[0])
	return rate, rate
}

// LogDensity returns log p(y|f) and its derivatives in f.
func (l Laplace) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	right, left := l.rates(theta)
	return logDensityOfSides(right, left, y-f)
}

// Augmentation returns the likelihood itself.
func (l Laplace) Augmentation() Augmentation { return l }

// Width returns 1.
func (Laplace) Width() int { return 1 }

// Held returns 0: the law of v is the same for all λ.
func (Laplace) Held() int { return 0 }

// Start sets each v to its prior mean.
func (Laplace) Start(state, _ []float64) {
	for i := range state {
		state[i] = 2
	}
}

// Expect sets each v to its mean given the residual.
func (Laplace) Expect(state, theta, y, f []float64) {
	for i := range state {
		state[i] = math.Abs(y[i]-f[i])/math.Sqrt(theta[0]) + 1
	}
}

// Refresh draws each v given the residual.
func (Laplace) Refresh(r *rand.Rand, state, theta, y, f []float64) {
	for i := range state {
		state[i] = reciprocalInverseGaussian(r, math.Abs(y[i]-f[i])/math.Sqrt(theta[0]), 1)
	}
}

// Targets returns y.
func (Laplace) Targets(y, _ []float64) []float64 { return y }

// Noise returns λv.
func (Laplace) Noise(theta, state []float64) []float64 {
	noise := make([]float64, len(state))
	for i, v := range state {
		noise[i] = theta[0] * v
	}
	return noise
}

// NoiseGradient returns the noise, which is its own derivative in log λ.
func (l Laplace) NoiseGradient(theta, state []float64) [][]float64 {
	return [][]float64{l.Noise(theta, state)}
}

// Draw draws a target.
func (l Laplace) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	right, left := l.rates(theta)
	return drawSides(r, right, left, mean, variance)
}

// Predict returns the mixture over the draws of the sums of N(mean, variance) and the noise.
func (l Laplace) Predict(theta [][]float64, mean, variance []float64) Predictive {
	return predictSides(l.rates, theta, mean, variance)
}

// reciprocalInverseGaussian draws 1/x, x being inverse Gaussian of mean 1/m and the given shape, m ≥ 0
// (Michael, Schucany and Haas 1976). Of the two roots that a χ² variable leads to, the reciprocals have the
// product m².
func reciprocalInverseGaussian(r *rand.Rand, m, shape float64) float64 {
	z := r.NormFloat64()
	half := z * z / (2 * shape)
	v := m + half + math.Sqrt(half*(2*m+half))
	if r.Float64()*(v+m) > v {
		return m / v * m
	}
	return v
}
