package likelihood

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// StudentT is noise with heavy tails, for targets with outliers: y = f + √λ·t, t of Student's t
// distribution with ν degrees of freedom, more than two: DF or, if that is 0, a parameter, df. The other parameter is lambda, the
// square of the scale: the noise's variance is λ·ν/(ν−2).
//
// It is a scale mixture of normals: y = f + √(λ/ω)·ε, ω ~ Gamma(ν/2, ν/2). Given the residual
// r the state ω is Gamma((ν+1)/2, (ν+r²/λ)/2) (Geweke 1993).
type StudentT struct{ DF float64 }

var (
	_ Likelihood   = StudentT{}
	_ Augmentation = StudentT{}
)

// Name returns student-t.
func (StudentT) Name() string { return "student-t" }

// Params returns lambda, and df unless that is known.
func (s StudentT) Params() param.List {
	out := Gaussian{}.Params()
	if s.DF == 0 {
		out = append(out, param.Param{Symbol: "df", Role: param.Freedom, Transform: param.Above(LeastDF)})
	}
	return out
}

// LeastDF is what degrees of freedom are above: with fewer the noise has no variance.
const LeastDF = 2

// with returns the likelihood of known degrees of freedom.
func (s StudentT) with(theta []float64) StudentT {
	if s.DF == 0 {
		s.DF = theta[1]
	}
	return s
}

// Check returns an error if a target is not finite.
func (StudentT) Check(y []float64) error { return Gaussian{}.Check(y) }

// Standardized returns true.
func (StudentT) Standardized() bool { return true }

// LogDensity returns log p(y|f) and its derivatives in f.
func (s StudentT) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	s = s.with(theta)
	lambda, r := theta[0], y-f
	t := distuv.StudentsT{Mu: f, Sigma: math.Sqrt(lambda), Nu: s.DF}
	d := s.DF*lambda + r*r
	return t.LogProb(y), (s.DF + 1) * r / d, (s.DF + 1) * (s.DF*lambda - r*r) / (d * d)
}

// Augmentation returns the likelihood itself.
func (s StudentT) Augmentation() Augmentation { return s }

// Width returns 1.
func (StudentT) Width() int { return 1 }

// Held returns 0, or 1 where ω is of the degrees of freedom that it was drawn with; its law is the same for all λ.
func (s StudentT) Held() int { return len(s.Params()) - 1 }

// Start sets each ω to its prior mean.
func (StudentT) Start(state, _ []float64) {
	for i := range state {
		state[i] = 1
	}
}

// Expect sets each ω to its mean given the residual.
func (s StudentT) Expect(state, theta, y, f []float64) {
	s = s.with(theta)
	for i := range state {
		d := y[i] - f[i]
		state[i] = (s.DF + 1) / (s.DF + d*d/theta[0])
	}
}

// Refresh draws each ω given the residual.
func (s StudentT) Refresh(r *rand.Rand, state, theta, y, f []float64) {
	s = s.with(theta)
	for i := range state {
		d := y[i] - f[i]
		state[i] = distuv.Gamma{Alpha: (s.DF + 1) / 2, Beta: (s.DF + d*d/theta[0]) / 2, Src: r}.Rand()
	}
}

// Targets returns y.
func (StudentT) Targets(y, _ []float64) []float64 { return y }

// Noise returns λ/ω.
func (StudentT) Noise(theta, state []float64) []float64 {
	noise := make([]float64, len(state))
	for i, w := range state {
		noise[i] = theta[0] / w
	}
	return noise
}

// NoiseGradient returns the noise, which is its own derivative in log λ; given ω it does not depend on df.
func (s StudentT) NoiseGradient(theta, state []float64) [][]float64 {
	return append([][]float64{s.Noise(theta, state)}, [][]float64{{0}}[:s.Held()]...)
}

// Draw draws a target.
func (s StudentT) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	s = s.with(theta)
	w := distuv.Gamma{Alpha: s.DF / 2, Beta: s.DF / 2, Src: r}.Rand()
	return mean + math.Sqrt(variance+theta[0]/w)*r.NormFloat64()
}

// Predict returns the mixture over the draws of the sums of N(mean, variance) and √λ·t.
func (s StudentT) Predict(theta [][]float64, mean, variance []float64) Predictive {
	if s.DF == 0 { // each draw has a quadrature of its own
		var parts scaleMixtures
		for t, own := range theta {
			parts = append(parts, s.with(own).Predict(theta[t:t+1], mean[t:t+1], variance[t:t+1]).(*scaleMixture))
		}
		return parts
	}
	nodes, weights := s.mixing()
	return newScaleMixture(weights, mean, func(t, q int) float64 {
		return math.Sqrt(variance[t] + theta[t][0]/nodes[q])
	}, func(t int) float64 { return variance[t] + theta[t][0]*s.DF/(s.DF-2) })
}

// mixing returns nodes and weights of a quadrature over the law of ω: the trapezoidal rule in
// u = log ω, whose density exp(½DF(u − eᵘ)), times the normal densities that are integrated, is
// smooth and falls exponentially on both sides, so that the error falls exponentially with the
// step.
func (s StudentT) mixing() (nodes, weights []float64) {
	const (
		width = 0.45  // of the step, in standard deviations of u
		least = 1e-13 // density relative to the mode's at the ends
		far   = 30    // scales to an outlier whose density is to have its digits
	)
	half := s.DF / 2
	step := width / math.Sqrt(half) * math.Sqrt(1+1/s.DF)
	density := func(u float64) float64 { return math.Exp(half * (u - math.Exp(u) + 1)) }
	lo, hi := 0.0, 0.0
	outlier := -math.Log((s.DF+far*far)/(s.DF+1)) - 4*step // ω is there, given a residual so far out
	for lo > outlier || density(lo-step) > least {
		lo -= step
	}
	for density(hi+step) > least {
		hi += step
	}
	var sum float64
	for k := range int(math.Round((hi-lo)/step)) + 1 {
		u := lo + float64(k)*step
		nodes, weights = append(nodes, math.Exp(u)), append(weights, density(u))
		sum += density(u)
	}
	for q := range weights {
		weights[q] /= sum
	}
	return nodes, weights
}
