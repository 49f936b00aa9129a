package likelihood

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Volatility is the likelihood of targets about zero whose standard deviation is e^f: stochastic volatility. It has no
// parameters of its own.
//
// As a function of f it is exp(x/2 − eˣ), x = log(y²/2) − 2f, up to a constant: the density of the logarithm of a gamma variable of shape
// one half, which is nearly a mixture of normals (normalMixtures). Where y is 0 it is e^−f, which nothing but the prior of f bounds:
// nearly a normal density of a mean and a variance that are far (zeroVariance).
type Volatility struct{}

var _ Likelihood = Volatility{}

// zeroVariance is V in the pseudo-target −V of variance V of a target that is 0: −(f+V)²/(2V) = −f − f²/(2V) − V/2.
const zeroVariance = 1e4

// Name returns stochastic-volatility.
func (Volatility) Name() string { return "stochastic-volatility" }

// Params returns nothing.
func (Volatility) Params() param.List { return nil }

// Check returns an error if a target is not finite.
func (Volatility) Check(y []float64) error { return Gaussian{}.Check(y) }

// Standardized returns false.
func (Volatility) Standardized() bool { return false }

// LogDensity returns log N(y|0,e^2f) and its derivatives in f.
func (Volatility) LogDensity(_ []float64, y, f float64) (value, score, curvature float64) {
	var square float64
	if y != 0 { // where e^−2f may be infinite, too
		square = y * y * math.Exp(-2*f)
	}
	return -0.5*math.Log(2*math.Pi) - f - square/2, square - 1, 2 * square
}

// Augmentation returns that by components of mixtures of normals.
func (Volatility) Augmentation() Augmentation { return normalMixtures{volatilityOf} }

var zeroTarget = &curve{a: -1, linear: true, normals: []component{{log: zeroVariance / 2, mean: -zeroVariance, variance: zeroVariance}}}

func volatilityOf(y float64) site {
	if y == 0 {
		return site{zeroTarget, 0, 1}
	}
	return site{curveOf(0.5), math.Log(math.Abs(y)) - math.Ln2/2, -0.5}
}

// Draw draws a target.
func (Volatility) Draw(r *rand.Rand, _ []float64, mean, variance float64) float64 {
	return math.Exp(mean+math.Sqrt(variance)*r.NormFloat64()) * r.NormFloat64()
}

// Predict returns the mixture over the draws, and over a quadrature of f at each, of N(0,e^2f).
func (Volatility) Predict(_ [][]float64, mean, variance []float64) Predictive {
	const (
		reach = 6.0
		step  = 0.25
	)
	var nodes, weights []float64
	for z := -reach; z <= reach; z += step {
		nodes, weights = append(nodes, z), append(weights, math.Exp(-z*z/2))
	}
	floats.Scale(1/floats.Sum(weights), weights)
	return newScaleMixture(weights, make([]float64, len(mean)), func(t, q int) float64 {
		return math.Exp(mean[t] + math.Sqrt(variance[t])*nodes[q])
	}, func(t int) float64 { return math.Exp(2*mean[t] + 2*variance[t]) })
}
