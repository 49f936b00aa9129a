// Package accuracy says how wrong a posterior's means, standard deviations and quantiles
// may be, from all sources: the finite number of draws, and a log density that is known with
// an error only.
//
// Every estimate is, to first order, a mean over the draws: its influence function says
// what a draw at x contributes. With it all errors become errors of means. An error δ(x) of
// the log density moves an estimate with influence u by
//
//	Cov(u(x), δ(x))
//
// over the posterior, so that a density −½L with a posterior covariance of the unknown L
// (a regression's) gives the variance of every estimate.
package accuracy

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Draws are draws of one quantity: those of chains of equal length, x[c][t], or
// independent ones with weights of sum 1, x[0][t].
type Draws struct {
	X       [][]float64
	Weights []float64 // nil: chains
}

// Estimate is a functional of a posterior with its influence function at the draws, which
// has mean zero over them.
type Estimate struct {
	Value     float64
	Influence [][]float64 // as Draws.X
	weights   []float64
}

func (d Draws) flat() []float64 { return slices.Concat(d.X...) }

// estimate makes an Estimate of an influence function of the value.
func (d Draws) estimate(value float64, influence func(x float64) float64) Estimate {
	e := Estimate{Value: value, Influence: make([][]float64, len(d.X)), weights: d.Weights}
	for c, xs := range d.X {
		e.Influence[c] = make([]float64, len(xs))
		for t, x := range xs {
			e.Influence[c][t] = influence(x)
		}
	}
	return e
}

// Mean returns the mean.
func (d Draws) Mean() Estimate {
	m := stat.Mean(d.flat(), d.Weights)
	return d.estimate(m, func(x float64) float64 { return x - m })
}

// SD returns the standard deviation.
func (d Draws) SD() Estimate {
	x := d.flat()
	m := stat.Mean(x, d.Weights)
	s := math.Sqrt(stat.MomentAbout(2, x, m, d.Weights))
	return d.estimate(s, func(x float64) float64 { return ((x-m)*(x-m) - s*s) / (2 * s) })
}

// Quantile returns the quantile of order p.
func (d Draws) Quantile(p float64) Estimate {
	x, w := d.flat(), d.Weights
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	below := make([]float64, len(x)) // weight up to the middle of each draw's own
	var sum float64
	for i, o := range order {
		wi := 1 / float64(len(x))
		if w != nil {
			wi = w[o]
		}
		below[i] = sum + wi/2
		sum += wi
	}
	at := func(p float64) float64 {
		i, _ := slices.BinarySearch(below, p)
		switch {
		case i == 0:
			return x[order[0]]
		case i == len(x):
			return x[order[i-1]]
		}
		f := (p - below[i-1]) / (below[i] - below[i-1])
		return (1-f)*x[order[i-1]] + f*x[order[i]]
	}
	q := at(p)
	// The slope of the quantile with p, one over the density. Where a chain stood still for
	// long, draws are equal within the bandwidth.
	var gap float64
	for h := min(bandwidth(p, d.size()), p/2, (1-p)/2); gap == 0 && h < 1; h *= 2 {
		lo, hi := max(0, p-h), min(1, p+h)
		gap = (at(hi) - at(lo)) / (hi - lo)
	}
	share := 0.0 // below q, which ties may put off p
	for i, o := range order {
		if x[o] > q {
			break
		}
		if w != nil {
			share += w[order[i]]
		} else {
			share += 1 / float64(len(x))
		}
	}
	return d.estimate(q, func(x float64) float64 {
		if x <= q {
			return -gap * (1 - share)
		}
		return gap * share
	})
}

// size is the number of draws, or what weighted ones count as.
func (d Draws) size() float64 {
	if d.Weights != nil {
		return 1 / floats.Dot(d.Weights, d.Weights)
	}
	n := 0
	for _, x := range d.X {
		n += len(x)
	}
	return float64(n)
}

// bandwidth is Bofinger's for the slope of a quantile function at p, as of a normal
// distribution.
func bandwidth(p, n float64) float64 {
	z := distuv.UnitNormal.Quantile(p)
	phi := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
	return math.Pow(4.5*math.Pow(phi, 4)/math.Pow(2*z*z+1, 2)/n, 0.2)
}

// MonteCarlo returns the standard error for the finite number of draws, by the effective
// sample size of the influence function (Vehtari et al. 2021), and for weighted draws by
// the delta method.
func (e Estimate) MonteCarlo() float64 {
	if e.weights != nil {
		var sum float64
		for i, u := range e.Influence[0] {
			sum += e.weights[i] * e.weights[i] * u * u
		}
		return math.Sqrt(sum)
	}
	return diagnostics.MCSEMean(e.Influence)
}
