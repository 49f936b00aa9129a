package likelihood

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// OfClasses reports whether the targets of a likelihood are classes, whose distributions are Class.
func OfClasses(l Likelihood) bool {
	switch l.(type) {
	case Bernoulli, Probit, NoisyLabels:
		return true
	}
	return false
}

// OfOrder reports whether the targets of a likelihood are classes in order, whose distributions are Classes.
func OfOrder(l Likelihood) bool {
	_, ok := l.(Ordinal)
	return ok
}

// OfCategories reports whether the targets of a likelihood are classes without an order, whose distributions are Categories.
func OfCategories(l Likelihood) bool {
	_, ok := l.(Categorical)
	return ok
}

// OfCounts reports whether the targets of a likelihood are whole numbers, classes aside.
func OfCounts(l Likelihood) bool {
	switch l.(type) {
	case Poisson, NegativeBinomial, Binomial:
		return true
	}
	return false
}

// Class is the distribution of a target that is 0 or 1, with the probability of 1.
type Class struct{ P float64 }

// Moments returns p and √(p(1−p)).
func (c Class) Moments() (mean, sd float64) { return c.P, math.Sqrt(c.P * (1 - c.P)) }

// CDF returns the probability of targets up to y.
func (c Class) CDF(y float64) float64 {
	switch {
	case y < 0:
		return 0
	case y < 1:
		return 1 - c.P
	}
	return 1
}

// Quantile returns the least class whose CDF is p or more.
func (c Class) Quantile(p float64) float64 {
	if p <= 1-c.P {
		return 0
	}
	return 1
}

// LogDensity returns the log probability of class y, −∞ where it is neither 0 nor 1.
func (c Class) LogDensity(y float64) float64 {
	switch y {
	case 0:
		return math.Log1p(-c.P)
	case 1:
		return math.Log(c.P)
	}
	return math.Inf(-1)
}

// CRPS returns that of class y, which is the Brier score (p−y)².
func (c Class) CRPS(y float64) float64 { return (c.P - y) * (c.P - y) }

// Scaled returns the distribution itself: classes have no units.
func (c Class) Scaled(_, _ float64) Predictive { return c }

// Classes is the distribution of a target that is one of the classes 0, 1, 2, …, with the probability of each.
type Classes struct{ P []float64 }

// Likeliest returns the class of the greatest probability, the first of several.
func (c Classes) Likeliest() int { return floats.MaxIdx(c.P) }

// Moments returns those of the classes' numbers.
func (c Classes) Moments() (mean, sd float64) {
	for k, p := range c.P {
		mean += p * float64(k)
	}
	for k, p := range c.P {
		sd += p * (float64(k) - mean) * (float64(k) - mean)
	}
	return mean, math.Sqrt(sd)
}

// CDF returns the probability of classes up to y.
func (c Classes) CDF(y float64) float64 {
	if y >= float64(len(c.P)-1) {
		return 1
	}
	var sum float64
	for k, p := range c.P {
		if float64(k) <= y {
			sum += p
		}
	}
	return min(1, sum)
}

// Quantile returns the least class whose CDF is p or more.
func (c Classes) Quantile(p float64) float64 {
	for k := range c.P {
		if c.CDF(float64(k)) >= p {
			return float64(k)
		}
	}
	return float64(len(c.P) - 1)
}

// LogDensity returns the log probability of class y, −∞ where it is none.
func (c Classes) LogDensity(y float64) float64 {
	if !(y >= 0 && y < float64(len(c.P)) && y == math.Round(y)) {
		return math.Inf(-1)
	}
	return math.Log(c.P[int(y)])
}

// CRPS returns the ranked probability score of class y, the sum over all classes k of (CDF(k) − 1{y ≤ k})² (Epstein 1969).
func (c Classes) CRPS(y float64) float64 {
	var sum, cdf float64
	for k, p := range c.P {
		cdf += p
		d := cdf
		if y <= float64(k) {
			d--
		}
		sum += d * d
	}
	return sum
}

// Scaled returns the distribution itself: classes have no units.
func (c Classes) Scaled(_, _ float64) Predictive { return c }
