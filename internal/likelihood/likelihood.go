// Package likelihood says how targets come from the latent function: p(y|f), row
// by row. A likelihood knows its own parameters, which targets it can have made,
// the derivatives that Newton's steps and Laplace's approximation need, what makes
// it Gaussian if anything does, and the distribution of a target where the
// latent function is normal.
//
// All computations with K are those of a Gaussian likelihood, whose noise is a
// positive diagonal: a likelihood takes part in them through its Augmentation.
package likelihood

import (
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Likelihood is p(y|f). theta are its own parameters on the natural scale, in the
// order of Params.
type Likelihood interface {
	// Name is the likelihood's name in specifications and outputs.
	Name() string
	// Params returns its own parameters.
	Params() param.List
	// Check returns an error, one sentence for who brought the targets, if the
	// likelihood cannot have made them.
	Check(y []float64) error
	// Standardized reports whether targets may be shifted and scaled before they are
	// learnt from: classes and counts may not.
	Standardized() bool
	// LogDensity returns log p(y|f) with its derivative in f, the score, and minus
	// its second derivative, the curvature.
	LogDensity(theta []float64, y, f float64) (value, score, curvature float64)
	// Augmentation returns what makes the likelihood Gaussian, nil if nothing does: of Several nothing may.
	Augmentation() Augmentation
	// Predict returns the distribution of a target whose latent value is, at each
	// of some draws of the parameters, normal with the given mean and variance: the
	// mean of the distributions over the draws. theta are the likelihood's own
	// parameters at each draw.
	Predict(theta [][]float64, mean, variance []float64) Predictive
	// Draw returns a random target whose latent value is normal.
	Draw(r *rand.Rand, theta []float64, mean, variance float64) float64
}

// ClosedForm is a Likelihood whose log density has a known expectation where the latent value is normal.
type ClosedForm interface {
	Likelihood
	// Expectation returns that of log p(y|f), its derivative in the mean, the score, and minus twice that in the variance, the weight.
	Expectation(theta []float64, y, mean, variance float64) (value, score, weight float64)
}

// Wrapped is a likelihood that stands for another in computations: targets are what they are under that.
type Wrapped interface {
	Likelihood
	Unwrap() Likelihood
}

// Base returns the likelihood that a likelihood stands for, or itself.
func Base(l Likelihood) Likelihood {
	if w, ok := l.(Wrapped); ok {
		return w.Unwrap()
	}
	return l
}

// Augmentation makes a likelihood Gaussian. Given auxiliary variables, its state,
// the likelihood is, as a function of f, that of pseudo-targets z with noise of
// its own in each row:
//
//	p(y, state | f) ∝ N(z | f, diag(noise))
//
// The state has Width numbers for each row, row by row; those of a row depend on
// its y and f alone. Where Width is 0 the likelihood is Gaussian as it is.
type Augmentation interface {
	// Width returns how many numbers of state a row has.
	Width() int
	// Held returns how many of the likelihood's own parameters, the last ones, make more of the
	// state than its noise: they are not to move while the state is what it is.
	Held() int
	// Start sets a state that is typical before anything is known of the latent
	// function: searches for the mode are made with it.
	Start(state, y []float64)
	// Expect sets a state that is typical given the latent function: its mean.
	Expect(state, theta, y, f []float64)
	// Refresh draws the state given the latent function.
	Refresh(r *rand.Rand, state, theta, y, f []float64)
	// Targets returns the pseudo-targets, to read.
	Targets(y, state []float64) []float64
	// Noise returns the variances of the noise: one number for all rows, or one
	// for each. They are positive.
	Noise(theta, state []float64) []float64
	// NoiseGradient returns ∂noise/∂ψ_i for each parameter of the likelihood, each
	// as Noise: one number for all rows, or one for each.
	NoiseGradient(theta, state []float64) [][]float64
}

// Width returns how many numbers of auxiliary state a row has under a likelihood, 0 where nothing makes it Gaussian.
func Width(l Likelihood) int {
	if a := l.Augmentation(); a != nil {
		return a.Width()
	}
	return 0
}

// Approximate is an Augmentation of a likelihood p̃(y|f) that is nearly the right one. A step that is reversible under p̃ is made
// one under p by Metropolis–Hastings: the ratio of p/p̃ where it led to and where it came from decides whether it is taken.
type Approximate interface {
	Augmentation
	// Excess returns Σ log p(y|f)/p̃(y|f).
	Excess(theta, y, f []float64) float64
}

// Predictive is the distribution of a target.
type Predictive interface {
	// Moments returns the mean and the standard deviation.
	Moments() (mean, sd float64)
	// CDF returns the probability of targets up to y.
	CDF(y float64) float64
	// Quantile returns the y with CDF(y) = p, 0 < p < 1.
	Quantile(p float64) float64
	// LogDensity returns the log density, or log probability, of y.
	LogDensity(y float64) float64
	// CRPS returns the continuous ranked probability score of an observation, in
	// the units of y; less is better.
	CRPS(y float64) float64
	// Scaled returns the distribution of shift + scale·y, scale > 0.
	Scaled(shift, scale float64) Predictive
}
