// Package study tests stated errors against true ones: on posteriors that were constructed
// so that every mean, standard deviation, quantile and mass is known, it learns a part of the
// log density from noisy gradients, draws by Metropolis–Hastings, states errors, and compares (Run); or it
// runs the sampler auto as a whole (Whole).
package study

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/mixture"
)

// Target is a posterior whose answers are known. Its log density is −½(q + L) of two
// functions, q known exactly, L to be learned; any smooth L will do, since q makes up for it.
type Target struct {
	Name       string
	logDensity func(x []float64) float64
	// marginals by coordinate
	mean, sd []float64
	cdf      []func(x float64) float64
	// rough is a mixture that is roughly the posterior, as a warm-up leaves it.
	rough []mixture.Component
	// second tells the draws of a second mode, of the given mass; nil if there is one only.
	second func(x []float64) bool
	mass   float64
}

// SD returns the standard deviation of coordinate i.
func (t *Target) SD(i int) float64 { return t.sd[i] }

// Targets returns the constructed posteriors.
func Targets() []*Target { return []*Target{modes(), banana(), funnel(), tails()} }

// unknown is the L that is learned, neither a polynomial nor far from one.
func unknown(x []float64) float64 {
	var sum float64
	for i, v := range x {
		sum += float64(10-7*i)*v + 0.8*v*v
	}
	return sum + 6*math.Sin(0.3*x[0]+0.2*x[1]) + 3*math.Log1p(math.Exp(x[1]-x[len(x)-1]))
}

// known is q, which is evaluated exactly.
func (t *Target) known(x []float64) float64 { return -2*t.logDensity(x) - unknown(x) }

// quantile returns the quantile of order p of coordinate i, by bisection.
func (t *Target) quantile(i int, p float64) float64 {
	lo, hi := -60.0, 60.0
	for range 80 {
		if mid := (lo + hi) / 2; t.cdf[i](mid) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

func normalCDF(mean, sd float64) func(float64) float64 {
	return distuv.Normal{Mu: mean, Sigma: sd}.CDF
}

func diagonal(v ...float64) *mat.SymDense {
	m := mat.NewSymDense(len(v), nil)
	for i, x := range v {
		m.SetSym(i, i, x)
	}
	return m
}

// modes are two normal modes of three coordinates, a quarter of the mass in the second.
func modes() *Target {
	const mass = 0.25
	means := [][]float64{{0, 0, 0}, {4, -3, 2}}
	sds := [][]float64{{1, 1, 1}, {0.5, 1.2, 0.8}}
	weights := []float64{1 - mass, mass}
	t := &Target{Name: "two modes", second: func(x []float64) bool { return x[0] > 2.1 }}
	part := func(k int, x []float64) float64 {
		sum := math.Log(weights[k])
		for i, v := range x {
			sum += distuv.Normal{Mu: means[k][i], Sigma: sds[k][i]}.LogProb(v)
		}
		return sum
	}
	t.logDensity = func(x []float64) float64 {
		a, b := part(0, x), part(1, x)
		return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b)))
	}
	for i := range 3 {
		m := weights[0]*means[0][i] + weights[1]*means[1][i]
		var v float64
		for k, w := range weights {
			v += w * (sds[k][i]*sds[k][i] + (means[k][i]-m)*(means[k][i]-m))
		}
		t.mean, t.sd = append(t.mean, m), append(t.sd, math.Sqrt(v))
		a, b := normalCDF(means[0][i], sds[0][i]), normalCDF(means[1][i], sds[1][i])
		t.cdf = append(t.cdf, func(x float64) float64 { return weights[0]*a(x) + weights[1]*b(x) })
	}
	// What is in the first mode beyond the border, and the other way round, counts.
	t.mass = weights[0]*(1-normalCDF(0, 1)(2.1)) + weights[1]*(1-normalCDF(4, 0.5)(2.1))
	t.rough = []mixture.Component{{Weight: 1, Mean: means[0], Scale: diagonal(1.2, 1.2, 1.2)}, {Weight: 1, Mean: means[1], Scale: diagonal(0.4, 1.6, 0.8)}}
	return t
}

// banana is a normal coordinate, and one that is normal around its square.
func banana() *Target {
	const spread = 0.5
	t := &Target{Name: "banana", mean: []float64{0, 0}, sd: []float64{1, math.Sqrt(2 + spread*spread)}}
	t.logDensity = func(x []float64) float64 {
		return distuv.UnitNormal.LogProb(x[0]) + distuv.Normal{Mu: x[0]*x[0] - 1, Sigma: spread}.LogProb(x[1])
	}
	t.cdf = []func(float64) float64{distuv.UnitNormal.CDF, func(y float64) float64 {
		return quad.Fixed(func(x float64) float64 {
			return distuv.UnitNormal.Prob(x) * normalCDF(x*x-1, spread)(y)
		}, -9, 9, 300, quad.Legendre{}, 0)
	}}
	t.rough = []mixture.Component{{Weight: 1, Mean: t.mean, Scale: diagonal(1.2, 2.5)}}
	return t
}

// funnel is a normal logarithm of a variance, and two coordinates of that variance.
func funnel() *Target {
	const width = 0.8
	marginal := math.Exp(width * width / 4)
	t := &Target{Name: "funnel", mean: []float64{0, 0, 0}, sd: []float64{width, marginal, marginal}}
	t.logDensity = func(x []float64) float64 {
		sd := math.Exp(x[0] / 2)
		return distuv.Normal{Sigma: width}.LogProb(x[0]) + distuv.Normal{Sigma: sd}.LogProb(x[1]) + distuv.Normal{Sigma: sd}.LogProb(x[2])
	}
	cdf := func(y float64) float64 {
		return quad.Fixed(func(v float64) float64 {
			return distuv.Normal{Sigma: width}.Prob(v) * normalCDF(0, math.Exp(v/2))(y)
		}, -9*width, 9*width, 300, quad.Legendre{}, 0)
	}
	t.cdf = []func(float64) float64{normalCDF(0, width), cdf, cdf}
	t.rough = []mixture.Component{{Weight: 1, Mean: t.mean, Scale: diagonal(width*width, 1.5, 1.5)}}
	return t
}

// tails are what few data leave of a prior: logarithms of exponential variables, whose lower
// tails are exponential, beside a normal coordinate.
func tails() *Target {
	const euler = 0.57721566490153286
	sd := math.Pi / math.Sqrt(6)
	t := &Target{Name: "tails", mean: []float64{-euler, -euler, 0}, sd: []float64{sd, sd, 0.5}}
	t.logDensity = func(x []float64) float64 {
		return x[0] - math.Exp(x[0]) + x[1] - math.Exp(x[1]) + distuv.Normal{Sigma: 0.5}.LogProb(x[2])
	}
	gumbel := func(x float64) float64 { return -math.Expm1(-math.Exp(x)) }
	t.cdf = []func(float64) float64{gumbel, gumbel, normalCDF(0, 0.5)}
	t.rough = []mixture.Component{{Weight: 1, Mean: t.mean, Scale: diagonal(1.7, 1.7, 0.3)}}
	return t
}
