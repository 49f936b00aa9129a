package likelihood

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Mixture is a mixture of normal distributions with equal weights, one for each
// draw of the covariance parameters.
type Mixture struct {
	Mean []float64
	SD   []float64 // positive
}

// Moments returns the mean and the standard deviation, by the law of total
// variance: the mean of the variances and the variance of the means.
func (m Mixture) Moments() (mean, sd float64) {
	n := float64(len(m.Mean))
	mean = floats.Sum(m.Mean) / n
	var v float64
	for t, mu := range m.Mean {
		v += m.SD[t]*m.SD[t] + (mu-mean)*(mu-mean)
	}
	return mean, math.Sqrt(v / n)
}

// CDF returns the probability of values up to x.
func (m Mixture) CDF(x float64) float64 {
	var p float64
	for t, mu := range m.Mean {
		p += normalCDF((x - mu) / m.SD[t])
	}
	return p / float64(len(m.Mean))
}

// density returns the probability density at x.
func (m Mixture) density(x float64) float64 {
	var d float64
	for t, mu := range m.Mean {
		d += normalDensity((x-mu)/m.SD[t]) / m.SD[t]
	}
	return d / float64(len(m.Mean))
}

// Quantile returns the x with CDF(x) = p, 0 < p < 1, to rounding. It lies
// between the least and the greatest of the components' quantiles.
func (m Mixture) Quantile(p float64) float64 {
	lo, hi := m.bracket(normalQuantile(p))
	return invert(m, p, lo, lo+(hi-lo)/2, hi)
}

// bracket returns the least and the greatest of the components' values z standard deviations from
// their means.
func (m Mixture) bracket(z float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for t, mu := range m.Mean {
		q := mu + z*m.SD[t]
		lo, hi = min(lo, q), max(hi, q)
	}
	return lo, hi
}

// smooth is a distribution with a density.
type smooth interface {
	CDF(x float64) float64
	survival(x float64) float64
	density(x float64) float64
}

// invert returns the x between lo and hi with CDF(x) = p, to rounding: from a first guess
// Newton's steps, or halvings where they leave the bracket, close in on it.
func invert(m smooth, p, lo, x, hi float64) float64 {
	upper := p > 0.5 // there the complement has the digits
	for range 200 {
		f := m.CDF(x) - p
		if upper {
			f = (1 - p) - m.survival(x)
		}
		if f > 0 {
			hi = x
		} else {
			lo = x
		}
		next := x - f/m.density(x)
		if !(next > lo && next < hi) {
			next = lo + (hi-lo)/2
		}
		if math.Abs(next-x) <= 1e-15*(math.Abs(x)+hi-lo) || next == x {
			return next
		}
		x = next
	}
	return x
}

// survival returns the probability of values above x.
func (m Mixture) survival(x float64) float64 {
	var p float64
	for t, mu := range m.Mean {
		p += normalCDF(-(x - mu) / m.SD[t])
	}
	return p / float64(len(m.Mean))
}

// LogDensity returns the logarithm of the density at y, finite however far y
// lies.
func (m Mixture) LogDensity(y float64) float64 {
	l := make([]float64, len(m.Mean))
	for t, mu := range m.Mean {
		z := (y - mu) / m.SD[t]
		l[t] = -0.5*z*z - math.Log(m.SD[t]) - 0.5*math.Log(2*math.Pi)
	}
	return floats.LogSumExp(l) - math.Log(float64(len(l)))
}

// CRPS returns the continuous ranked probability score of an observation y,
// ∫(CDF(x) − 1{x≥y})² dx, in the units of y; less is better. The closed form is
// that of Grimit, Gneiting, Berrocal and Johnson (2006), eq. 5:
//
//	Σ_i A(y−μ_i, σ_i²)/T − ½ Σ_ij A(μ_i−μ_j, σ_i²+σ_j²)/T²,
//	A(μ,σ²) = 2σφ(μ/σ) + μ(2Φ(μ/σ) − 1).
func (m Mixture) CRPS(y float64) float64 {
	n := float64(len(m.Mean))
	var first, second float64
	for i, mu := range m.Mean {
		first += spread(y-mu, m.SD[i])
		for j := range i {
			second += spread(mu-m.Mean[j], math.Hypot(m.SD[i], m.SD[j]))
		}
		second += 0.5 * spread(0, math.Sqrt2*m.SD[i])
	}
	return first/n - second/(n*n)
}

// spread returns A(μ,σ²) = E|X| for X normal with mean μ and sd σ.
func spread(mu, sd float64) float64 {
	z := mu / sd
	return 2*sd*normalDensity(z) + mu*math.Erf(z/math.Sqrt2)
}

// Scaled returns the mixture of shift + scale·y.
func (m Mixture) Scaled(shift, scale float64) Predictive {
	out := Mixture{slices.Clone(m.Mean), slices.Clone(m.SD)}
	for t := range out.Mean {
		out.Mean[t] = shift + scale*out.Mean[t]
		out.SD[t] *= scale
	}
	return out
}
