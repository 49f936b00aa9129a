package likelihood

import (
	"math"
	"sort"
)

// counts is the distribution of a count: a mixture of negative binomial ones, or Poisson ones where the size is infinite.
type counts struct {
	parts []countPart
	cdf   []float64 // of 0, 1, …, until what is left is countsLeft or there are mostCounts
}

type countPart struct{ weight, size, mean float64 }

// Of the table of a distribution of counts.
const (
	countsLeft = 1e-10
	mostCounts = 100_000
)

// logProbability is that of the count k in the part.
func (p countPart) logProbability(k float64) float64 {
	if math.IsInf(p.size, 1) {
		v, _, _ := Poisson{}.LogDensity(nil, k, math.Log(p.mean))
		return v
	}
	v, _, _ := NegativeBinomial{}.LogDensity([]float64{p.size}, k, math.Log(p.mean))
	return v
}

// ratio returns p(k+1)/p(k) in the part: (k+r)/(k+1)·μ/(r+μ).
func (p countPart) ratio(k float64) float64 {
	if math.IsInf(p.size, 1) {
		return p.mean / (k + 1)
	}
	return (k + p.size) / (k + 1) * p.mean / (p.size + p.mean)
}

// tabulate computes the CDF by the recurrence p(k+1) = p(k)·ratio(k) of each part, which begins
// where p is not too small to be a number.
func (c *counts) tabulate() {
	now := make([]float64, len(c.parts))
	for i, p := range c.parts {
		now[i] = p.weight * math.Exp(p.logProbability(0))
	}
	var sum float64
	for k := 0.0; ; k++ {
		for i, p := range c.parts {
			sum += now[i]
			if now[i] > 1e-290 {
				now[i] *= p.ratio(k)
			} else if k+1 < p.mean { // on its way up
				now[i] = p.weight * math.Exp(p.logProbability(k+1))
			}
		}
		c.cdf = append(c.cdf, min(sum, 1))
		if sum > 1-countsLeft || len(c.cdf) == mostCounts {
			return
		}
	}
}

// Moments returns E μ and the root of E[μ+μ²/r] + Var μ.
func (c *counts) Moments() (mean, sd float64) {
	var within float64
	for _, p := range c.parts {
		mean += p.weight * p.mean
		within += p.weight * (p.mean + p.mean*p.mean/p.size)
	}
	v := within
	for _, p := range c.parts {
		v += p.weight * (p.mean - mean) * (p.mean - mean)
	}
	return mean, math.Sqrt(v)
}

// CDF returns the probability of counts up to y.
func (c *counts) CDF(y float64) float64 {
	switch k := math.Floor(y); {
	case k < 0:
		return 0
	case k < float64(len(c.cdf)):
		return c.cdf[int(k)]
	}
	return 1
}

// Quantile returns the least count whose CDF is p or more.
func (c *counts) Quantile(p float64) float64 {
	return float64(sort.SearchFloat64s(c.cdf, p))
}

// LogDensity returns the log probability of y, −∞ where it is no count.
func (c *counts) LogDensity(y float64) float64 {
	if y < 0 || y != math.Round(y) {
		return math.Inf(-1)
	}
	top, sum := math.Inf(-1), 0.0
	logs := make([]float64, len(c.parts))
	for i, p := range c.parts {
		logs[i] = math.Log(p.weight) + p.logProbability(y)
		top = max(top, logs[i])
	}
	for _, l := range logs {
		sum += math.Exp(l - top)
	}
	return top + math.Log(sum)
}

// CRPS returns the sum over all counts of (CDF − 1{y ≤ k})².
func (c *counts) CRPS(y float64) float64 {
	var sum float64
	for k, f := range c.cdf {
		if float64(k) >= y {
			f--
		}
		sum += f * f
	}
	return sum + max(0, y-float64(len(c.cdf)))
}

// Scaled returns the distribution itself: counts have no units.
func (c *counts) Scaled(_, _ float64) Predictive { return c }
