package ep

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// moments returns log Z = log ∫N(f|mu,v)p(y|f)df, with its derivative in mu and minus its second derivative. Under the probit they are
// those of the log density itself, at mu/(1+v)^½.
func moments(l likelihood.Likelihood, own []float64, y, mu, v float64) (logZ, alpha, beta float64) {
	if _, ok := likelihood.Base(l).(likelihood.Probit); ok {
		s := math.Sqrt(1 + v)
		value, score, curvature := l.LogDensity(own, y, mu/s)
		return value, score / s, curvature / (s * s)
	}
	return integrate(l, own, y, mu, v)
}

// Constants of the quadrature: its step in standard deviations of the tilted density and at most, and the logarithm of what
// its ends are below the maximum.
const (
	stepOfSpread = 0.6
	widestStep   = 0.75
	reach        = 40
	modeSteps    = 200
)

// integrate is moments by the trapezoidal rule around the mode of the tilted density, which is log-concave. With a step h its error is of
// the order exp(−2π²s²/h²) for a normal density of standard deviation s, and exp(−2π²/h) for the poles of the logistic function, at ±iπ:
// far below rounding, where rules of Gauss and Hermite lose digits, since the tilted density is skewed. Of the score g and the
// curvature w of log p, α = E[g] and β = E[w − g²] + α² under the tilted density.
func integrate(l likelihood.Likelihood, own []float64, y, mu, v float64) (logZ, alpha, beta float64) {
	top := tiltedMode(l, own, y, mu, v)
	value, score, curvature := l.LogDensity(own, y, top)
	highest := value - (top-mu)*(top-mu)/(2*v)
	h := min(widestStep, stepOfSpread/math.Sqrt(1/v+max(curvature, 0)))
	sum, first, second := 1.0, score, curvature-score*score
	for _, side := range []float64{-h, h} {
		for f := top + side; math.Abs(f-mu) <= math.Abs(top-mu)+10*math.Sqrt(v); f += side {
			value, score, curvature := l.LogDensity(own, y, f)
			height := value - (f-mu)*(f-mu)/(2*v) - highest
			if !(height > -reach) {
				break
			}
			w := math.Exp(height)
			sum += w
			first += w * score
			second += w * (curvature - score*score)
		}
	}
	alpha = first / sum
	return highest + math.Log(h*sum) - math.Log(2*math.Pi*v)/2, alpha, second/sum + alpha*alpha
}

// tiltedMode returns about where N(f|mu,v)p(y|f) is highest: by Newton's method, and by halving the bracket of the mode where a step leaves
// that or is not half as long as the one before. The score falls, so that the mode lies between mu and mu plus v times the score there.
func tiltedMode(l likelihood.Likelihood, own []float64, y, mu, v float64) float64 {
	_, score, curvature := l.LogDensity(own, y, mu)
	f, lo, hi := mu, min(mu, mu+v*score), max(mu, mu+v*score)
	slope, last := score, hi-lo
	for range modeSteps {
		width := 1 / (1/v + max(curvature, 0))
		step := slope * width
		if math.Abs(step) > last/2 || f+step < lo || f+step > hi {
			step = (lo+hi)/2 - f
		}
		f, last = f+step, math.Abs(step)
		if last < 1e-3*math.Sqrt(width) {
			break
		}
		_, score, curvature = l.LogDensity(own, y, f)
		slope = score - (f-mu)/v
		if slope > 0 {
			lo = f
		} else {
			hi = f
		}
	}
	return f
}
