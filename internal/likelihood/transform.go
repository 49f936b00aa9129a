package likelihood

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/optimize"
	"gonum.org/v1/gonum/stat"
)

// The kinds of transforms. None is the target itself.
const (
	None       = ""
	Log        = "log"
	Logit      = "logit"
	YeoJohnson = "yeo-johnson"
	Normit     = "probit" // the inverse of Φ, of links alone
)

// Transforms are the kinds that targets may have, but None.
var Transforms = []string{Log, Logit, YeoJohnson}

// Transform is an increasing map T from the target's units to those in which the model is normal. The zero
// Transform is that of no change. Yeo and Johnson's (2000) is, with λ from 0 to 2, where it takes all numbers to all,
//
//	T(y) = ((1+y)^λ − 1)/λ for y ≥ 0,  −((1−y)^(2−λ) − 1)/(2−λ) for y < 0
//
// with logarithms where a power is 0.
type Transform struct {
	Kind   string  `json:"kind"`
	Lambda float64 `json:"lambda,omitempty"` // of YeoJohnson
}

// Check returns an error, for who brought the target, if T is not defined there.
func (t Transform) Check(y float64) error {
	switch {
	case t.Kind == Log && !(y > 0):
		return fmt.Errorf("%g has no logarithm: the targets have to be positive; add a constant to the column, or take data.transform: yeo-johnson", y)
	case (t.Kind == Logit || t.Kind == Normit) && !(y > 0 && y < 1):
		return fmt.Errorf("%g has no logit: the targets have to be between 0 and 1, and neither of them", y)
	}
	return nil
}

// Forward returns T(y).
func (t Transform) Forward(y float64) float64 {
	switch t.Kind {
	case Log:
		return math.Log(y)
	case Logit:
		return math.Log(y) - math.Log1p(-y)
	case Normit:
		return normalQuantile(y)
	case YeoJohnson:
		if y < 0 {
			return -power(-y, 2-t.Lambda)
		}
		return power(y, t.Lambda)
	}
	return y
}

// Inverse returns the y with T(y) = z.
func (t Transform) Inverse(z float64) float64 {
	switch t.Kind {
	case Log:
		return math.Exp(z)
	case Logit:
		return 1 / (1 + math.Exp(-z))
	case Normit:
		return normalCDF(z)
	case YeoJohnson:
		if z < 0 {
			return -root(-z, 2-t.Lambda)
		}
		return root(z, t.Lambda)
	}
	return z
}

// power returns ((1+y)^p − 1)/p, y ≥ 0, and root its inverse.
func power(y, p float64) float64 {
	if p == 0 {
		return math.Log1p(y)
	}
	return math.Expm1(p*math.Log1p(y)) / p
}

func root(z, p float64) float64 {
	if p == 0 {
		return math.Expm1(z)
	}
	return math.Expm1(math.Log1p(p*z) / p)
}

// LogSlope returns log T'(y), the Jacobian of densities.
func (t Transform) LogSlope(y float64) float64 {
	switch t.Kind {
	case Log:
		return -math.Log(y)
	case Logit:
		return -math.Log(y) - math.Log1p(-y)
	case Normit:
		return -logNormalDensity(normalQuantile(y))
	case YeoJohnson:
		if y < 0 {
			return (1 - t.Lambda) * math.Log1p(-y)
		}
		return (t.Lambda - 1) * math.Log1p(y)
	}
	return 0
}

// inverseSlope returns dT⁻¹/dz.
func (t Transform) inverseSlope(z float64) float64 {
	switch t.Kind { // 1−y has no digits where y rounds to 1
	case Logit:
		return 1 / (2 + math.Exp(z) + math.Exp(-z))
	case Normit:
		return normalDensity(z)
	}
	return math.Exp(-t.LogSlope(t.Inverse(z)))
}

// lambdaDigits is to how many places Yeo and Johnson's λ is rounded: far below its standard error.
const lambdaDigits = 1000

// Fit returns the transform of a kind for targets: Yeo and Johnson's with the λ under which they
// are most likely to be normal, by maximum likelihood (Yeo and Johnson 2000, section 4).
func Fit(kind string, y []float64) Transform {
	t := Transform{Kind: kind}
	if kind != YeoJohnson {
		return t
	}
	z := make([]float64, len(y))
	fault := func(lambda float64) float64 {
		t.Lambda = lambda
		var jacobian float64
		for i, v := range y {
			z[i] = t.Forward(v)
			jacobian += t.LogSlope(v)
		}
		_, variance := stat.PopMeanVariance(z, nil)
		return 0.5*float64(len(y))*math.Log(variance) - jacobian
	}
	best, least := 1.0, math.Inf(1)
	for lambda := 0.0; lambda <= 2; lambda += 0.125 {
		if f := fault(lambda); f < least {
			best, least = lambda, f
		}
	}
	sq := func(u float64) float64 { return min(2, max(0, best+0.125*math.Sin(u))) } // within a step of the grid
	res, err := optimize.Minimize(optimize.Problem{Func: func(x []float64) float64 { return fault(sq(x[0])) }}, []float64{0}, nil, &optimize.NelderMead{})
	if err == nil && res.F < least {
		best = sq(res.X[0])
	}
	t.Lambda = math.Round(lambdaDigits*best) / lambdaDigits
	return t
}

// Transformed returns the distribution of T⁻¹(z), in the units of the target, of a z that is distributed as p,
// which has to be a Mixture unless there is no transform.
func Transformed(p Predictive, t Transform) Predictive {
	if t.Kind == None {
		return p
	}
	return transformed{p.(Mixture), t, 0, 1}
}

// transformed is the distribution of shift + scale·T⁻¹(z).
type transformed struct {
	z            Mixture
	t            Transform
	shift, scale float64
}

// standard returns y in the units of T⁻¹(z), and whether T is defined there; else what the CDF is.
func (d transformed) standard(y float64) (x float64, inside bool, cdf float64) {
	x = (y - d.shift) / d.scale
	if d.t.Check(x) == nil {
		return x, true, 0
	}
	if x >= 1 {
		cdf = 1
	}
	return x, false, cdf
}

// CDF returns the probability of targets up to y.
func (d transformed) CDF(y float64) float64 {
	x, inside, cdf := d.standard(y)
	if !inside {
		return cdf
	}
	return d.z.CDF(d.t.Forward(x))
}

// Quantile returns the y with CDF(y) = p.
func (d transformed) Quantile(p float64) float64 {
	return d.shift + d.scale*d.t.Inverse(d.z.Quantile(p))
}

// LogDensity returns the log density of y, −∞ where there are no targets.
func (d transformed) LogDensity(y float64) float64 {
	x, inside, _ := d.standard(y)
	if !inside {
		return math.Inf(-1)
	}
	return d.z.LogDensity(d.t.Forward(x)) + d.t.LogSlope(x) - math.Log(d.scale)
}

// Scaled returns the distribution of shift + scale·y.
func (d transformed) Scaled(shift, scale float64) Predictive {
	return transformed{d.z, d.t, shift + scale*d.shift, scale * d.scale}
}

// Moments returns the mean and the standard deviation: of a log-normal mixture in closed form, else by
// quadrature of each component.
func (d transformed) Moments() (mean, sd float64) {
	n := float64(len(d.z.Mean))
	var means, variances []float64
	for i, mu := range d.z.Mean {
		m, v := d.moments(mu, d.z.SD[i])
		means, variances = append(means, m), append(variances, v)
		mean += m / n
	}
	var v float64
	for i, m := range means {
		v += (variances[i] + (m-mean)*(m-mean)) / n
	}
	return d.shift + d.scale*mean, d.scale * math.Sqrt(v)
}

// moments returns mean and variance of T⁻¹(z) of a normal z.
func (d transformed) moments(mu, sigma float64) (mean, variance float64) {
	if d.t.Kind == Log {
		mean = math.Exp(mu + sigma*sigma/2)
		return mean, mean * mean * math.Expm1(sigma*sigma)
	}
	centre := d.t.Inverse(mu)
	integrand := func(power int) func(x float64) float64 {
		return func(x float64) float64 {
			v := normalDensity(x)
			for range power {
				v *= d.t.Inverse(mu+sigma*x) - centre
			}
			return v
		}
	}
	bend := -mu / sigma // where T⁻¹ changes most, or its form
	first := integrate(integrand(1), bend)
	second := integrate(integrand(2), bend)
	return centre + first, max(0, second-first*first)
}

// CRPS integrates (CDF(x) − 1{x≥y})² over x = T⁻¹(z), on both sides of y.
func (d transformed) CRPS(y float64) float64 {
	lowest, highest := math.Inf(1), math.Inf(-1)
	x, inside, cdf := d.standard(y)
	at := math.Inf(int(2*cdf) - 1)
	if inside {
		at = d.t.Forward(x)
	}
	for i, mu := range d.z.Mean {
		lowest, highest = min(lowest, mu-9*d.z.SD[i]), max(highest, mu+9*d.z.SD[i])
	}
	step := max(slices.Min(d.z.SD), (highest-lowest)/maxPieces)
	beyond := 0.0 // where all of the distribution is on one side of y
	switch {
	case at < lowest:
		beyond = d.t.Inverse(lowest) - x
	case at > highest:
		beyond = x - d.t.Inverse(highest)
	}
	below := func(z float64) float64 { p := d.z.CDF(z); return p * p * d.t.inverseSlope(z) }
	above := func(z float64) float64 { p := d.z.survival(z); return p * p * d.t.inverseSlope(z) }
	at = min(highest, max(lowest, at))
	return d.scale * (beyond + pieces(below, lowest, at, step) + pieces(above, at, highest, step))
}

// Gauss-Legendre quadrature is by pieces, each of so many nodes, and of so many at most.
const (
	pieceNodes = 8
	maxPieces  = 400
)

// pieces integrates f from lo to hi, cut at 0 and into pieces no longer than step.
func pieces(f func(x float64) float64, lo, hi, step float64) (sum float64) {
	cut := min(hi, max(lo, 0))
	for _, r := range [][2]float64{{lo, cut}, {cut, hi}} {
		n := math.Ceil((r[1] - r[0]) / step)
		for k := range int(n) {
			a, b := r[0]+(r[1]-r[0])*float64(k)/n, r[0]+(r[1]-r[0])*float64(k+1)/n
			sum += quad.Fixed(f, a, b, pieceNodes, quad.Legendre{}, 0)
		}
	}
	return sum
}

// integrate integrates f, which has the tails of a normal density, over all numbers, cut at a point: by pieces
// of length 1 from 0 outwards, nine at least, until one adds nothing.
func integrate(f func(x float64) float64, cut float64) (sum float64) {
	const least, most = 9, 37
	total := 0.0
	for _, sign := range []float64{-1, 1} {
		for k := range most {
			a, b := sign*float64(k), sign*float64(k+1)
			lo, hi := min(a, b), max(a, b)
			middle := min(hi, max(lo, cut))
			part := quad.Fixed(f, middle, hi, pieceNodes, quad.Legendre{}, 0)
			if middle > lo {
				part += quad.Fixed(f, lo, middle, pieceNodes, quad.Legendre{}, 0)
			}
			sum, total = sum+part, total+math.Abs(part)
			if k >= least && math.Abs(part) <= 1e-14*total {
				break
			}
		}
	}
	return sum
}
