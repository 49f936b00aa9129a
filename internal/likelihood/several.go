package likelihood

import (
	"math/rand/v2"
)

// Several is a Likelihood of several latent functions, f_1 to f_C, which are independent a priori. What a Likelihood says of one
// function it cannot say: LogDensity, Predict and Draw panic, and nothing makes it Gaussian.
type Several interface {
	Likelihood
	// Functions returns C.
	Functions() int
	// Terms returns log p(y|f). Where score is not nil it sets it to the gradient in f, and curvature, C×C row by row, to a
	// symmetric positive semi-definite matrix that stands for minus the Hessian: that itself, or its expectation.
	Terms(theta []float64, y float64, f, score, curvature []float64) float64
	// Coupled reports whether the curvature is more than a diagonal.
	Coupled() bool
	// PredictAll returns the distribution of a target whose latent values are, at each of some draws of the parameters, independent
	// normal variables with the given means and variances, draws × C: the mean of the distributions over the draws. theta are the
	// likelihood's own parameters at each draw.
	PredictAll(theta, mean, variance [][]float64) Predictive
	// DrawAll returns a random target given f.
	DrawAll(r *rand.Rand, theta, f []float64) float64
}

// Functions returns the number of latent functions of a likelihood.
func Functions(l Likelihood) int {
	if s, ok := l.(Several); ok {
		return s.Functions()
	}
	return 1
}

// several is what the likelihoods of several functions have in common: they have none of what one function has.
type several struct{}

const oneFunction = "likelihood: this is of several latent functions, and was asked for one"

// LogDensity panics.
func (several) LogDensity(_ []float64, _, _ float64) (value, score, curvature float64) {
	panic(oneFunction)
}

// Augmentation returns nil.
func (several) Augmentation() Augmentation { return nil }

// Predict panics.
func (several) Predict(_ [][]float64, _, _ []float64) Predictive { panic(oneFunction) }

// Draw panics.
func (several) Draw(_ *rand.Rand, _ []float64, _, _ float64) float64 { panic(oneFunction) }
