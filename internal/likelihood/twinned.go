package likelihood

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Twinned is normal noise of two kinds, that of ordinary rows and that of outliers, which a function of the inputs, the gate, tells apart:
//
//	p(y|f,g) = Φ(m+g)·N(y|f,λ) + Φ(−m−g)·N(y|f,λk²)
//
// f and g are independent Gaussian processes (Naish-Guzman 2007, equation 3.5, whose σ_R² is λ and whose σ_O² is λk²). Its parameters are
// λ, k, which is above 1 so that the kinds are not exchanged, and the share of outliers where g is 0.
type Twinned struct{ several }

var _ Several = Twinned{}

// Name returns twinned.
func (Twinned) Name() string { return "twinned" }

// Params returns lambda, outlier_scale and outlier_share.
func (Twinned) Params() param.List {
	return append(Gaussian{}.Params(),
		param.Param{Symbol: "outlier_scale", Role: param.Spread, Transform: param.Above(1)},
		shareOf("outlier_share"))
}

// Check returns an error if a target is not finite.
func (Twinned) Check(y []float64) error { return Gaussian{}.Check(y) }

// Standardized returns true.
func (Twinned) Standardized() bool { return true }

// Functions returns 2.
func (Twinned) Functions() int { return 2 }

// Coupled returns true.
func (Twinned) Coupled() bool { return true }

// Kinds returns the variances of the noise of ordinary rows and of outliers, and m.
func (Twinned) Kinds(theta []float64) (ordinary, outlier, m float64) {
	return theta[0], theta[0] * theta[1] * theta[1], opening(theta[2])
}

// Terms returns log p(y|f,g) with its gradient and a curvature (gated).
func (t Twinned) Terms(theta []float64, y float64, f, score, curvature []float64) float64 {
	narrow, wide, m := t.Kinds(theta)
	normal := func(variance float64) branch {
		r := y - f[0]
		return branch{-0.5*r*r/variance - 0.5*math.Log(2*math.Pi*variance), r / variance, 1 / variance}
	}
	return gated(m+f[1], normal(narrow), normal(wide), score, curvature)
}

// DrawAll draws a target.
func (t Twinned) DrawAll(r *rand.Rand, theta, f []float64) float64 {
	variance, wide, m := t.Kinds(theta)
	if r.NormFloat64() > m+f[1] {
		variance = wide
	}
	return f[0] + math.Sqrt(variance)*r.NormFloat64()
}

// PredictAll returns the mixture over the draws of the two normal distributions, in closed form: E Φ(m+g) = Φ((m+E g)/√(1+Var g)).
func (t Twinned) PredictAll(theta, mean, variance [][]float64) Predictive {
	var parts scaleMixtures
	for k, own := range theta {
		w := openingMean(own[2], mean[k][1], variance[k][1])
		narrow, wide, _ := t.Kinds(own)
		noise := []float64{narrow, wide}
		parts = append(parts, newScaleMixture([]float64{w, 1 - w}, mean[k][:1],
			func(_, q int) float64 { return math.Sqrt(variance[k][0] + noise[q]) },
			func(int) float64 { return variance[k][0] + w*narrow + (1-w)*wide }))
	}
	return parts
}
