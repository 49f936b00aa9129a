package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Gaussian is noise that is independent and of the same variance in all rows:
// y = f + ε, ε ~ N(0,λ). Its parameter is lambda. It is its own Augmentation,
// without state.
type Gaussian struct{}

var (
	_ Likelihood   = Gaussian{}
	_ Augmentation = Gaussian{}
)

// Name returns gaussian.
func (Gaussian) Name() string { return "gaussian" }

// Params returns lambda.
func (Gaussian) Params() param.List {
	return param.List{{Symbol: "lambda", Role: param.Noise}}
}

// Check returns an error if a target is not finite.
func (Gaussian) Check(y []float64) error {
	for i, v := range y {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("the target of row %d is %g: a regression needs finite numbers", i+1, v)
		}
	}
	return nil
}

// Standardized returns true.
func (Gaussian) Standardized() bool { return true }

// LogDensity returns log N(y|f,λ) and its derivatives in f.
func (Gaussian) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	lambda, r := theta[0], y-f
	return -0.5*r*r/lambda - 0.5*math.Log(2*math.Pi*lambda), r / lambda, 1 / lambda
}

// Augmentation returns the likelihood itself.
func (g Gaussian) Augmentation() Augmentation { return g }

// Width returns 0.
func (Gaussian) Width() int { return 0 }

// Held returns 0.
func (Gaussian) Held() int { return 0 }

// Start does nothing.
func (Gaussian) Start(_, _ []float64) {}

// Expect does nothing.
func (Gaussian) Expect(_, _, _, _ []float64) {}

// Refresh does nothing.
func (Gaussian) Refresh(*rand.Rand, []float64, []float64, []float64, []float64) {}

// Targets returns y.
func (Gaussian) Targets(y, _ []float64) []float64 { return y }

// Noise returns λ.
func (Gaussian) Noise(theta, _ []float64) []float64 { return theta }

// NoiseGradient returns λ = ∂λ/∂log λ.
func (Gaussian) NoiseGradient(theta, _ []float64) [][]float64 { return [][]float64{theta} }

// Draw draws a target: N(mean, variance+λ).
func (Gaussian) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	return mean + math.Sqrt(variance+theta[0])*r.NormFloat64()
}

// Predict returns the mixture of N(mean, variance+λ).
func (Gaussian) Predict(theta [][]float64, mean, variance []float64) Predictive {
	m := Mixture{make([]float64, len(mean)), make([]float64, len(mean))}
	for t := range mean {
		m.Mean[t], m.SD[t] = mean[t], math.Sqrt(variance[t]+theta[t][0])
	}
	return m
}
