package likelihood

import (
	"math"
	"math/rand/v2"
)

func normalCDF(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }

func normalDensity(z float64) float64 { return math.Exp(-0.5*z*z) / math.Sqrt(2*math.Pi) }

func normalQuantile(p float64) float64 { return -math.Sqrt2 * math.Erfcinv(2*p) }

func logNormalDensity(z float64) float64 { return -0.5*z*z - 0.5*math.Log(2*math.Pi) }

// farTail is where the tail of the normal distribution is computed by its continued fraction.
const farTail = 10

// logNormalTail returns log(1−Φ(x)), finite however far x lies.
func logNormalTail(x float64) float64 {
	switch {
	case x < 0:
		return math.Log1p(-normalCDF(x))
	case x < farTail:
		return math.Log(normalCDF(-x))
	}
	return logNormalDensity(x) + math.Log(farMills(x))
}

// logNormalBetween returns log(Φ(hi)−Φ(lo)), finite however far lo < hi lie; either may be infinite.
func logNormalBetween(lo, hi float64) float64 {
	switch {
	case hi <= 0:
		return logNormalBetween(-hi, -lo)
	case lo <= 0:
		return math.Log((math.Erf(hi/math.Sqrt2) - math.Erf(lo/math.Sqrt2)) / 2)
	case math.IsInf(hi, 1):
		return logNormalTail(lo)
	}
	tail := logNormalTail(lo)
	return tail + math.Log(-math.Expm1(logNormalTail(hi)-tail))
}

// farMills returns Mills's ratio (1−Φ(x))/φ(x), x ≥ farTail, by Laplace's continued fraction
// 1/(x+1/(x+2/(x+3/…))).
func farMills(x float64) float64 {
	const terms = 40
	down := x
	for k := float64(terms); k > 0; k-- {
		down = x + k/down
	}
	return 1 / down
}

// hazard returns φ(x)/(1−Φ(x)).
func hazard(x float64) float64 { return math.Exp(logNormalDensity(x) - logNormalTail(x)) }

// truncatedNormal draws from the standard normal distribution between lo and hi, lo < hi, either of which may
// be infinite, by rejection (Robert 1995).
func truncatedNormal(r *rand.Rand, lo, hi float64) float64 {
	switch {
	case hi <= 0:
		return -truncatedNormal(r, -hi, -lo)
	case lo > 0:
		return truncatedTail(r, lo, hi)
	case hi-lo > math.Sqrt(2*math.Pi):
		for {
			if x := r.NormFloat64(); x > lo && x < hi {
				return x
			}
		}
	}
	for {
		if x := lo + (hi-lo)*r.Float64(); r.ExpFloat64() > x*x/2 {
			return x
		}
	}
}

// truncatedTail is truncatedNormal for lo > 0: from an exponential proposal or, where the interval is short
// beside that, from a uniform one.
func truncatedTail(r *rand.Rand, lo, hi float64) float64 {
	root := math.Sqrt(lo*lo + 4)
	rate := (lo + root) / 2
	if hi-lo < math.Exp((lo*lo-lo*root)/4+0.5)/rate {
		for {
			if x := lo + (hi-lo)*r.Float64(); r.ExpFloat64() > (x*x-lo*lo)/2 {
				return x
			}
		}
	}
	for {
		x := lo + r.ExpFloat64()/rate
		if x < hi && r.ExpFloat64() > (x-rate)*(x-rate)/2 {
			return x
		}
	}
}
