package likelihood

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Heteroscedastic is normal noise whose variance is a function of the inputs, too: y ~ N(f, λ·e^g), f and g independent Gaussian processes
// (Goldberg, Williams and Bishop 1998). λ, its parameter, is the variance where g is 0.
type Heteroscedastic struct{ several }

var _ Several = Heteroscedastic{}

// Name returns heteroscedastic.
func (Heteroscedastic) Name() string { return "heteroscedastic" }

// Params returns lambda.
func (Heteroscedastic) Params() param.List { return Gaussian{}.Params() }

// Check returns an error if a target is not finite.
func (Heteroscedastic) Check(y []float64) error { return Gaussian{}.Check(y) }

// Standardized returns true.
func (Heteroscedastic) Standardized() bool { return true }

// Functions returns 2.
func (Heteroscedastic) Functions() int { return 2 }

// Coupled returns false.
func (Heteroscedastic) Coupled() bool { return false }

// Terms returns log p(y|f,g) with its gradient, and Fisher's information diag(1/v, ½), v the variance: minus the Hessian need not be
// positive semi-definite.
func (Heteroscedastic) Terms(theta []float64, y float64, f, score, curvature []float64) float64 {
	v, r := theta[0]*math.Exp(f[1]), y-f[0]
	if score != nil {
		score[0], score[1] = r/v, (r*r/v-1)/2
		curvature[0], curvature[1], curvature[2], curvature[3] = 1/v, 0, 0, 0.5
	}
	return -0.5*(r*r/v) - 0.5*math.Log(2*math.Pi*v)
}

// DrawAll draws from N(f, λ·e^g).
func (Heteroscedastic) DrawAll(r *rand.Rand, theta, f []float64) float64 {
	return f[0] + math.Sqrt(theta[0]*math.Exp(f[1]))*r.NormFloat64()
}

// logVarianceStep is the step of the sum over g in predictions, in units of its standard deviation: log densities are right to 1e-5 four standard deviations out where that is 1.
const logVarianceStep = 0.5

// PredictAll returns a mixture of normal distributions, those of each draw at values of g at equal steps.
func (Heteroscedastic) PredictAll(theta, mean, variance [][]float64) Predictive {
	weights, centre := normalWeights(logVarianceStep), make([]float64, len(mean))
	for t := range mean {
		centre[t] = mean[t][0]
	}
	noise := func(t int, g float64) float64 { return variance[t][0] + theta[t][0]*math.Exp(g) }
	return newScaleMixture(weights, centre, func(t, q int) float64 {
		return math.Sqrt(noise(t, mean[t][1]+math.Sqrt(variance[t][1])*logVarianceStep*float64(q-len(weights)/2)))
	}, func(t int) float64 { return noise(t, mean[t][1]+variance[t][1]/2) })
}
