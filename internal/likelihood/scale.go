package likelihood

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// scaleMixture is a mixture of normal distributions that differ in scale beside a draw, too:
// Σ_q w_q Σ_t N(mean_t, sd_tq²)/T, over the nodes q of a quadrature and the draws t.
type scaleMixture struct {
	weight   []float64 // of each node; they sum to one
	parts    []Mixture // each over the draws
	mean, sd float64   // known in closed form
}

// newScaleMixture returns a mixture of the given standard deviations; variance returns that of
// a draw's distribution, which the nodes only approximate.
func newScaleMixture(weight, mean []float64, sd func(t, q int) float64, variance func(t int) float64) *scaleMixture {
	m := &scaleMixture{weight: weight}
	for q := range weight {
		part := Mixture{mean, make([]float64, len(mean))}
		for t := range mean {
			part.SD[t] = sd(t, q)
		}
		m.parts = append(m.parts, part)
	}
	whole := Mixture{mean, make([]float64, len(mean))}
	for t := range mean {
		whole.SD[t] = math.Sqrt(variance(t))
	}
	m.mean, m.sd = whole.Moments()
	return m
}

func (m *scaleMixture) Moments() (mean, sd float64) { return m.mean, m.sd }

// sum returns the weighted sum of what f says of each part.
func (m *scaleMixture) sum(f func(part Mixture) float64) float64 {
	var s float64
	for q, part := range m.parts {
		s += m.weight[q] * f(part)
	}
	return s
}

func (m *scaleMixture) CDF(x float64) float64 {
	return m.sum(func(part Mixture) float64 { return part.CDF(x) })
}

func (m *scaleMixture) survival(x float64) float64 {
	return m.sum(func(part Mixture) float64 { return part.survival(x) })
}

func (m *scaleMixture) density(x float64) float64 {
	return m.sum(func(part Mixture) float64 { return part.density(x) })
}

func (m *scaleMixture) LogDensity(y float64) float64 {
	l := make([]float64, len(m.parts))
	for q, part := range m.parts {
		l[q] = math.Log(m.weight[q]) + part.LogDensity(y)
	}
	return floats.LogSumExp(l)
}

// Quantile begins where a normal distribution of the same moments has it: the bracket of all
// components is wide, since some of their scales are.
func (m *scaleMixture) Quantile(p float64) float64 {
	z := normalQuantile(p)
	lo, hi := m.bracket(z)
	return invert(m, p, lo, min(max(m.mean+z*m.sd, lo), hi), hi)
}

// bracket returns the least and the greatest of the components' values z standard deviations from their means.
func (m *scaleMixture) bracket(z float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, part := range m.parts {
		l, h := part.bracket(z)
		lo, hi = min(lo, l), max(hi, h)
	}
	return lo, hi
}

// CRPS returns E|Y−y| − ½E|Y−Y'|.
func (m *scaleMixture) CRPS(y float64) float64 {
	return m.spread(y) - halfDistance(m, m.mean, m.sd)
}

// spread returns E|Y−y|.
func (m *scaleMixture) spread(y float64) float64 {
	return m.sum(func(part Mixture) float64 {
		var s float64
		for t, mu := range part.Mean {
			s += spread(y-mu, part.SD[t])
		}
		return s / float64(len(part.Mean))
	})
}

// halfDistance returns ½E|Y−Y'| of two independent values, as ∫F(1−F) by the trapezoidal rule in
// x = mean + sd·sinh(u), which is exponentially exact for tails of any power.
func halfDistance(m smooth, mean, sd float64) float64 {
	const (
		step = 0.1
		ends = 6.0 // sinh(6) = 200 standard deviations
	)
	var sum float64
	for k := range int(2*ends/step) + 1 {
		u := -ends + float64(k)*step
		x := mean + sd*math.Sinh(u)
		sum += m.CDF(x) * m.survival(x) * sd * math.Cosh(u) * step
	}
	return sum
}

func (m *scaleMixture) Scaled(shift, scale float64) Predictive {
	out := &scaleMixture{weight: m.weight, mean: shift + scale*m.mean, sd: scale * m.sd}
	for _, part := range m.parts {
		out.parts = append(out.parts, part.Scaled(shift, scale).(Mixture))
	}
	return out
}

// scaleMixtures are a mixture with equal weights of mixtures whose nodes differ.
type scaleMixtures []*scaleMixture

// average returns the mean of what f says of each.
func (m scaleMixtures) average(f func(part *scaleMixture) float64) float64 {
	var s float64
	for _, part := range m {
		s += f(part)
	}
	return s / float64(len(m))
}

func (m scaleMixtures) Moments() (mean, sd float64) {
	mean = m.average(func(part *scaleMixture) float64 { return part.mean })
	return mean, math.Sqrt(m.average(func(part *scaleMixture) float64 {
		return part.sd*part.sd + (part.mean-mean)*(part.mean-mean)
	}))
}

func (m scaleMixtures) CDF(x float64) float64 {
	return m.average(func(part *scaleMixture) float64 { return part.CDF(x) })
}

func (m scaleMixtures) survival(x float64) float64 {
	return m.average(func(part *scaleMixture) float64 { return part.survival(x) })
}

func (m scaleMixtures) density(x float64) float64 {
	return m.average(func(part *scaleMixture) float64 { return part.density(x) })
}

func (m scaleMixtures) LogDensity(y float64) float64 {
	l := make([]float64, len(m))
	for t, part := range m {
		l[t] = part.LogDensity(y)
	}
	return floats.LogSumExp(l) - math.Log(float64(len(m)))
}

func (m scaleMixtures) Quantile(p float64) float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, part := range m {
		l, h := part.bracket(normalQuantile(p))
		lo, hi = min(lo, l), max(hi, h)
	}
	mean, sd := m.Moments()
	return invert(m, p, lo, min(max(mean+normalQuantile(p)*sd, lo), hi), hi)
}

func (m scaleMixtures) CRPS(y float64) float64 {
	mean, sd := m.Moments()
	return m.average(func(part *scaleMixture) float64 { return part.spread(y) }) - halfDistance(m, mean, sd)
}

func (m scaleMixtures) Scaled(shift, scale float64) Predictive {
	var out scaleMixtures
	for _, part := range m {
		out = append(out, part.Scaled(shift, scale).(*scaleMixture))
	}
	return out
}
