// Package modes tells which of a posterior's maxima are modes of their own, which draws
// belong to each, and what separates them.
package modes

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/mixture"
)

// Peak is a local maximum with the covariance of the normal approximation there.
type Peak struct {
	X       []float64
	Value   float64 // log density
	LogMass float64 // by Laplace's approximation
	Cov     *mat.SymDense
}

// Drop returns by how much the log density falls, at least, below the lower end on the way
// from a to b along a straight line: an upper bound on the depth of the valley between them,
// since another way may be higher.
func Drop(logDensity func(x []float64) float64, a, b []float64) float64 {
	const points = 33
	x := make([]float64, len(a))
	least, ends := math.Inf(1), math.Inf(1)
	for i := range points {
		t := float64(i) / (points - 1)
		for k := range x {
			x[k] = (1-t)*a[k] + t*b[k]
		}
		v := logDensity(x)
		if i == 0 || i == points-1 {
			ends = min(ends, v)
		}
		least = min(least, v)
	}
	return ends - least
}

// Merge returns, for each peak, the number of its mode, counted from 0 for the one that
// holds the most mass by Laplace's approximation. Two peaks belong to one mode if the log
// density falls by less than drop on the way between them, or on the ways over other peaks.
func Merge(peaks []Peak, logDensity func(x []float64) float64, drop float64) []int {
	mode := make([]int, len(peaks))
	for i := range mode {
		mode[i] = i
	}
	for i := range peaks {
		for j := range i {
			if mode[i] != mode[j] && Drop(logDensity, peaks[i].X, peaks[j].X) < drop {
				from, to := mode[i], mode[j]
				for k := range mode {
					if mode[k] == from {
						mode[k] = to
					}
				}
			}
		}
	}
	mass := map[int]float64{}
	for i, m := range mode {
		if _, ok := mass[m]; !ok {
			mass[m] = math.Inf(-1)
		}
		mass[m] = floats.LogSumExp([]float64{mass[m], peaks[i].LogMass})
	}
	var order []int
	for m := range mass {
		order = append(order, m)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(mass[b], mass[a]), a-b) })
	for i, m := range mode {
		mode[i] = slices.Index(order, m)
	}
	return mode
}

// rounds is how often draws are assigned anew before the assignment is taken as it is.
const rounds = 50

// Assign returns the mode, of those that Merge numbered, that each draw belongs to. Draws
// go to the peak whose t distribution makes them most likely; then the distributions are
// made those of their draws, until nothing changes, so that a skewed mode keeps its tails.
// Peaks that no draw comes to keep their own. Weights may be nil.
func Assign(draws [][]float64, weights []float64, peaks []Peak, mode []int) []int {
	comps := make([]mixture.Component, len(peaks))
	top := math.Inf(-1)
	for _, p := range peaks {
		top = max(top, p.LogMass)
	}
	for i, p := range peaks {
		comps[i] = mixture.Component{Weight: max(math.Exp(p.LogMass-top), 1e-6), Mean: p.X, Scale: p.Cov}
	}
	label, share := make([]int, len(draws)), make([]float64, len(peaks))
	for round := range rounds {
		m, err := mixture.New(comps)
		if err != nil {
			break // the last assignment stands
		}
		changed := false
		for i, x := range draws {
			m.Shares(share, x)
			best := floats.MaxIdx(share)
			changed = changed || best != label[i]
			label[i] = best
		}
		if !changed && round > 0 {
			break
		}
		for k := range comps {
			if c, ok := moments(draws, weights, label, k); ok {
				comps[k] = c
			}
		}
	}
	for i, k := range label {
		label[i] = mode[k]
	}
	return label
}

// Label returns the mode that each draw belongs to as Assign does, given no more of the modes than their maxima and masses: first
// each goes to the nearest maximum, in standard deviations of all draws.
func Label(draws, at [][]float64, mass []float64) []int {
	label := make([]int, len(draws))
	if len(draws) == 0 {
		return label
	}
	sd := make([]float64, len(draws[0]))
	for k := range sd {
		_, v := meanVariance(draws, k)
		sd[k] = max(math.Sqrt(v), 1e-12)
	}
	for i, x := range draws {
		least := math.Inf(1)
		for m, a := range at {
			var d float64
			for k := range x {
				d += (x[k] - a[k]) * (x[k] - a[k]) / (sd[k] * sd[k])
			}
			if d < least {
				label[i], least = m, d
			}
		}
	}
	peaks, mode := make([]Peak, len(at)), make([]int, len(at))
	for m := range peaks {
		mode[m] = m
		c, ok := moments(draws, nil, label, m)
		if !ok { // too few: as wide as all
			c.Mean, c.Scale = at[m], mat.NewSymDense(len(sd), nil)
			for k, v := range sd {
				c.Scale.SetSym(k, k, v*v)
			}
		}
		peaks[m] = Peak{X: c.Mean, LogMass: math.Log(max(mass[m], 1e-6)), Cov: c.Scale}
	}
	return Assign(draws, nil, peaks, mode)
}

// Renumber numbers modes anew, in the labels of peaks and of draws, so that the one of the most draws is the first.
func Renumber(count int, peaks, draws []int) {
	held := make([]int, count)
	for _, m := range draws {
		held[m]++
	}
	order := make([]int, count)
	for m := range order {
		order[m] = m
	}
	slices.SortStableFunc(order, func(a, b int) int { return held[b] - held[a] })
	for _, labels := range [][]int{peaks, draws} {
		for i, m := range labels {
			labels[i] = slices.Index(order, m)
		}
	}
}

// moments returns the weight, mean and scale of the draws of a label, and false if they
// are too few.
func moments(draws [][]float64, weights []float64, label []int, k int) (mixture.Component, bool) {
	p := len(draws[0])
	c := mixture.Component{Mean: make([]float64, p), Scale: mat.NewSymDense(p, nil)}
	weight := func(i int) float64 {
		if weights == nil {
			return 1
		}
		return weights[i]
	}
	var square float64
	for i, x := range draws {
		if label[i] == k {
			c.Weight += weight(i)
			square += weight(i) * weight(i)
			floats.AddScaled(c.Mean, weight(i), x)
		}
	}
	if c.Weight == 0 || c.Weight*c.Weight/square < float64(3*p) {
		return c, false
	}
	floats.Scale(1/c.Weight, c.Mean)
	off := make([]float64, p)
	for i, x := range draws {
		if label[i] == k {
			floats.SubTo(off, x, c.Mean)
			c.Scale.SymRankOne(c.Scale, weight(i)/c.Weight, mat.NewVecDense(p, off))
		}
	}
	var chol mat.Cholesky
	return c, chol.Factorize(c.Scale)
}

// Separation is how far apart two modes are in one coordinate: the difference of their means
// over the root of the sum of their variances.
type Separation struct {
	Coordinate int
	Distance   float64
}

// Separations returns how two sets of draws differ, the coordinate that separates them most
// first.
func Separations(a, b [][]float64) []Separation {
	out := make([]Separation, len(a[0]))
	for k := range out {
		ma, va := meanVariance(a, k)
		mb, vb := meanVariance(b, k)
		out[k] = Separation{k, (mb - ma) / math.Sqrt(va+vb)}
	}
	slices.SortStableFunc(out, func(x, y Separation) int {
		return cmp.Compare(math.Abs(y.Distance), math.Abs(x.Distance))
	})
	return out
}

func meanVariance(x [][]float64, k int) (mean, variance float64) {
	for _, v := range x {
		mean += v[k] / float64(len(x))
	}
	for _, v := range x {
		variance += (v[k] - mean) * (v[k] - mean) / float64(len(x))
	}
	return mean, variance
}
