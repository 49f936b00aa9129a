package likelihood

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// NoisyLabels is the likelihood of two classes, 0 and 1, some of whose labels say nothing; which, a function of the inputs, the gate, says:
//
//	p(y=1|f,g) = Φ(m+g)·Φ(f) + Φ(−m−g)/2
//
// f and g are independent Gaussian processes (Naish-Guzman 2007, section 4.1, with π_R = 1, which the scale of f stands for, and π_O = 0). Its
// parameter is the share of labels at random where g is 0. Half of these are wrong.
type NoisyLabels struct{ several }

var _ Several = NoisyLabels{}

// Name returns noisy-labels.
func (NoisyLabels) Name() string { return "noisy-labels" }

// Params returns random_share.
func (NoisyLabels) Params() param.List { return param.List{shareOf("random_share")} }

// Check returns an error if a target is neither 0 nor 1.
func (NoisyLabels) Check(y []float64) error { return twoClasses{}.Check(y) }

// Standardized returns false.
func (NoisyLabels) Standardized() bool { return false }

// Functions returns 2.
func (NoisyLabels) Functions() int { return 2 }

// Coupled returns true.
func (NoisyLabels) Coupled() bool { return true }

// Terms returns log p(y|f,g) with its gradient and a curvature (gated).
func (NoisyLabels) Terms(theta []float64, y float64, f, score, curvature []float64) float64 {
	var ordinary branch
	ordinary.value, ordinary.score, ordinary.curvature = Probit{}.LogDensity(nil, y, f[0])
	return gated(opening(theta[0])+f[1], ordinary, branch{value: -math.Ln2}, score, curvature)
}

// DrawAll draws a class.
func (NoisyLabels) DrawAll(r *rand.Rand, theta, f []float64) float64 {
	x := f[0]
	if r.NormFloat64() > opening(theta[0])+f[1] {
		x = 0
	}
	return Probit{}.Draw(r, nil, x, 0)
}

// PredictAll returns the mean over the draws of the probability of class 1, in closed form.
func (NoisyLabels) PredictAll(theta, mean, variance [][]float64) Predictive {
	var p float64
	for k, own := range theta {
		w := openingMean(own[0], mean[k][1], variance[k][1])
		p += w*normalCDF(mean[k][0]/math.Sqrt(1+variance[k][0])) + (1-w)/2
	}
	return Class{p / float64(len(theta))}
}
