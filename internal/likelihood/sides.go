package likelihood

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// The asymmetric Laplace distribution is that of E/right − E'/left with E, E' standard exponential: its density is
// right·left/(right+left) at 0, and falls with these rates on the two sides.

// logDensityOfSides returns its log density at y−f, with the derivatives in f that LogDensity has.
func logDensityOfSides(right, left, r float64) (value, score, curvature float64) {
	value = -math.Log(1/right + 1/left)
	if r >= 0 {
		return value - right*r, right, 0
	}
	return value + left*r, -left, 0
}

// drawSides draws from its sum with N(mean, variance).
func drawSides(r *rand.Rand, right, left, mean, variance float64) float64 {
	return mean + math.Sqrt(variance)*r.NormFloat64() + r.ExpFloat64()/right - r.ExpFloat64()/left
}

// sides is a mixture with equal weights of sums of a normal variable and an asymmetric Laplace one. Each is a
// normal-Laplace distribution, known in closed form (Reed and Jorgensen 2004).
type sides struct{ parts []side }

type side struct{ mean, sd, right, left float64 }

// predictSides returns the mixture over draws of the parameters, which make the rates.
func predictSides(rates func(theta []float64) (right, left float64), theta [][]float64, mean, variance []float64) Predictive {
	m := &sides{make([]side, len(mean))}
	for t := range mean {
		right, left := rates(theta[t])
		m.parts[t] = side{mean[t], math.Sqrt(variance[t]), right, left}
	}
	return m
}

// tails returns φ(z)·R(right·sd − z) and φ(z)·R(left·sd + z), R being Mills's ratio and z the standardised x.
func (s side) tails(x float64) (z, up, down float64) {
	z = (x - s.mean) / s.sd
	tail := func(rate, z float64) float64 { // φ(z)·R(rate−z) = exp(rate²/2 − rate·z)·(1−Φ(rate−z))
		if rate-z > farTail {
			return normalDensity(z) * farMills(rate-z)
		}
		return math.Exp(rate*(rate/2-z)) * normalCDF(z-rate)
	}
	return z, tail(s.right*s.sd, z), tail(s.left*s.sd, -z)
}

// logDensity returns the log density at x, finite however far x lies.
func (s side) logDensity(x float64) float64 {
	z := (x - s.mean) / s.sd
	tail := func(rate, z float64) float64 { // the logarithm of that of tails
		if rate-z > farTail {
			return logNormalDensity(z) + math.Log(farMills(rate-z))
		}
		return rate*(rate/2-z) + logNormalTail(rate-z)
	}
	return floats.LogSumExp([]float64{tail(s.right*s.sd, z), tail(s.left*s.sd, -z)}) - math.Log(1/s.right+1/s.left)
}

func (s side) cdf(x float64) float64 {
	z, up, down := s.tails(x)
	return normalCDF(z) - (s.left*up-s.right*down)/(s.right+s.left)
}

func (s side) survival(x float64) float64 {
	z, up, down := s.tails(x)
	return normalCDF(-z) + (s.left*up-s.right*down)/(s.right+s.left)
}

// spread returns E|X−x|, by ∫ₓ^∞ survival.
func (s side) spread(x float64) float64 {
	z, up, down := s.tails(x)
	above := normalCDF(-z)
	excess := s.sd*(normalDensity(z)-z*above) + (s.left/s.right*(up+above)-s.right/s.left*(above-down))/(s.right+s.left)
	return 2*excess - (s.mean + 1/s.right - 1/s.left - x)
}

// average returns the mean of what f says of each part.
func (m *sides) average(f func(s side) float64) float64 {
	var sum float64
	for _, s := range m.parts {
		sum += f(s)
	}
	return sum / float64(len(m.parts))
}

func (m *sides) Moments() (mean, sd float64) {
	centre := func(s side) float64 { return s.mean + 1/s.right - 1/s.left }
	mean = m.average(centre)
	return mean, math.Sqrt(m.average(func(s side) float64 {
		d := centre(s) - mean
		return s.sd*s.sd + 1/(s.right*s.right) + 1/(s.left*s.left) + d*d
	}))
}

func (m *sides) CDF(x float64) float64 {
	return m.average(func(s side) float64 { return s.cdf(x) })
}

func (m *sides) survival(x float64) float64 {
	return m.average(func(s side) float64 { return s.survival(x) })
}

func (m *sides) density(x float64) float64 {
	return m.average(func(s side) float64 { return math.Exp(s.logDensity(x)) })
}

func (m *sides) LogDensity(y float64) float64 {
	l := make([]float64, len(m.parts))
	for t, s := range m.parts {
		l[t] = s.logDensity(y)
	}
	return floats.LogSumExp(l) - math.Log(float64(len(l)))
}

// Quantile begins at the mean, and widens a bracket around it until the quantile lies within.
func (m *sides) Quantile(p float64) float64 {
	mean, sd := m.Moments()
	lo, hi := mean-sd, mean+sd
	for m.CDF(lo) > p {
		lo = mean - 2*(mean-lo)
	}
	for m.survival(hi) > 1-p {
		hi = mean + 2*(hi-mean)
	}
	return invert(m, p, lo, lo+(hi-lo)/2, hi)
}

// CRPS returns E|Y−y| − ½E|Y−Y'|.
func (m *sides) CRPS(y float64) float64 {
	mean, sd := m.Moments()
	return m.average(func(s side) float64 { return s.spread(y) }) - halfDistance(m, mean, sd)
}

func (m *sides) Scaled(shift, scale float64) Predictive {
	out := &sides{make([]side, len(m.parts))}
	for t, s := range m.parts {
		out.parts[t] = side{shift + scale*s.mean, scale * s.sd, s.right / scale, s.left / scale}
	}
	return out
}
