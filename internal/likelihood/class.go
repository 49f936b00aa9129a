package likelihood

import "math"

// OfClasses reports whether the targets of a likelihood are classes, whose distributions are Class.
func OfClasses(l Likelihood) bool {
	switch l.(type) {
	case Bernoulli, Probit:
		return true
	}
	return false
}

// OfCounts reports whether the targets of a likelihood are whole numbers, classes aside.
func OfCounts(l Likelihood) bool {
	switch l.(type) {
	case NegativeBinomial, Binomial:
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
