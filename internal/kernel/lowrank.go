package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// split is a covariance in two parts. A term of which all leaves are of the profile Dot is a dot product of
// a few functions of the points itself, σ·Σ_q a_q(x)·a_q(y), q over the products of the leaves' features:
// its matrix is of low rank, whatever the number of points. What is left has to be evaluated pair by pair.
type split struct {
	low   []int // terms of low rank
	rank  int   // of all of them
	pairs *Covariance
	at    []int // the places of its parameters in the whole
}

// MaxRank bounds the features of the terms of low rank together.
const MaxRank = 1024

// divide fills in the split.
func (c *Covariance) divide() error {
	var rest []int
	for t := range c.terms {
		if rank := c.TermRank(t); rank > 0 {
			c.split.low = append(c.split.low, t)
			if c.split.rank += rank; c.split.rank > MaxRank {
				return fmt.Errorf("the terms without a function of distance, such as linear, come to more than %d features", MaxRank)
			}
		} else {
			rest = append(rest, t)
		}
	}
	switch {
	case len(c.split.low) == 0:
		c.split.pairs = c
	case len(rest) > 0:
		c.split.pairs, c.split.at = c.of(rest)
	}
	return nil
}

// TermRank returns the number of features of a term of low rank, which are the products of those of its
// leaves; 0 of another term.
func (c *Covariance) TermRank(term int) int {
	rank := 1
	for _, l := range c.terms[term].Leaves {
		if c.leaves[l].Profile() != Dot {
			return 0
		}
		rank = min(rank*c.leaves[l].NumFeatures(), MaxRank+1)
	}
	return rank
}

// Pairs returns the sum of the terms that are not of low rank, nil if there are none, and the places of its
// parameters among those of the whole. It is c itself where nothing is of low rank.
func (c *Covariance) Pairs() (pairs *Covariance, at []int) {
	if c.split.pairs == c {
		at = make([]int, len(c.params))
		for i := range at {
			at[i] = i
		}
		return c, at
	}
	return c.split.pairs, c.split.at
}

// LowRank returns the terms of low rank, in increasing order, to read.
func (c *Covariance) LowRank() []int { return c.split.low }

// Rank returns the number of features of the terms of low rank.
func (c *Covariance) Rank() int { return c.split.rank }

// Pairs returns the part of the function that is not of low rank, nil if there is none.
func (f *Function) Pairs() *Function { return f.pairs }

// cut returns what Pairs does.
func (f *Function) cut() *Function {
	s := f.cov.split
	if s.pairs == f.cov {
		return f
	}
	if s.pairs == nil {
		return nil
	}
	theta := make([]float64, len(s.at))
	for i, at := range s.at {
		theta[i] = f.theta[at]
	}
	return s.pairs.At(theta)
}

// Features sets dst, of Rank numbers, to what the part of low rank is the dot product of: term by term,
// the root of its variance times its features.
func (f *Function) Features(dst, x []float64) {
	for _, t := range f.cov.split.low {
		rank := f.cov.TermRank(t)
		f.termFeatures(dst[:rank], t, x, -1, 0)
		root := math.Sqrt(f.TermVariance(t))
		for q := range rank {
			dst[q] *= root
		}
		dst = dst[rank:]
	}
}

// FeatureSlopes sets dst, of TermRank numbers, to what the derivatives of the features of one leaf of a term of
// low rank add to those of what Features returns of the term. The leaf is a place among the term's, its parameter a
// place among the leaf's.
func (f *Function) FeatureSlopes(dst []float64, term, leaf, param int, x []float64) {
	f.termFeatures(dst, term, x, leaf, param)
	root := math.Sqrt(f.TermVariance(term))
	for q := range dst {
		dst[q] *= root
	}
}

// termFeatures sets dst to the products of the features of a term's leaves, of one leaf, unless that is -1, their
// derivatives by one of its parameters.
func (f *Function) termFeatures(dst []float64, term int, x []float64, slope, param int) {
	dst[0] = 1
	done := 1 // products
	for at, l := range f.cov.terms[term].Leaves {
		leaf := f.cov.leaves[l]
		n := leaf.NumFeatures()
		for q := n - 1; q >= 0; q-- { // the first last: it is overwritten
			a := 0.0
			switch {
			case at != slope:
				a = f.leaves[l].Feature(q, x, nil)
			case slices.Contains(leaf.WarpsOf(q), param):
				a = f.leaves[l].Slope(q, param, x, nil)
			}
			for i := range done {
				dst[q*done+i] = dst[i] * a
			}
		}
		done *= n
	}
}

// Amplitude returns a random linear combination b(x) = Σ_q ε_q·a_q(x) of the features of each leaf of the
// profile Dot of a term, and of what those of the profile Levels are the product of, ε_q = ±1, multiplied:
// E b(x)·b(y) is the product of these leaves.
func (f *Function) Amplitude(r *rand.Rand, term int) func(x []float64) float64 {
	type dot struct {
		feature func(q int, x []float64) float64
		sign    []float64
	}
	var dots []dot
	for _, l := range f.cov.terms[term].Leaves {
		var d dot
		switch leaf := f.leaves[l].(type) {
		case *CoregionAt:
			d = dot{leaf.loading, make([]float64, leaf.columns())}
		default:
			if f.cov.leaves[l].Profile() != Dot {
				continue
			}
			d = dot{func(q int, x []float64) float64 { return leaf.Feature(q, x, nil) }, make([]float64, f.cov.leaves[l].NumFeatures())}
		}
		for q := range d.sign {
			d.sign[q] = 1 - 2*float64(r.IntN(2))
		}
		dots = append(dots, d)
	}
	if len(dots) == 0 {
		return func([]float64) float64 { return 1 }
	}
	return func(x []float64) float64 {
		b := 1.0
		for _, d := range dots {
			var sum float64
			for q, s := range d.sign {
				sum += s * d.feature(q, x)
			}
			b *= sum
		}
		return b
	}
}

// Stationary reports whether the covariance depends on the difference of two points alone.
func (c *Covariance) Stationary() bool {
	return !slices.ContainsFunc(c.leaves, func(l Leaf) bool {
		_, warped := l.(*Warped)
		return warped || l.Profile() == Dot || l.Profile() == Levels
	})
}
