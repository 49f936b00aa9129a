package kernel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Arrange returns the same points with an arrangement beside them: an order in which those who multiply take them
// (Arranged), while everybody else sees them as they are. Point order[i] is at place i. It panics if order does not
// have each point once.
func (in *Inputs) Arrange(order []int) *Inputs {
	seen := make([]bool, in.n)
	for _, i := range order {
		if i < 0 || i >= in.n || seen[i] {
			panic(fmt.Sprintf("kernel: point %d of %d is twice in an order, or is not there", i, in.n))
		}
		seen[i] = true
	}
	if len(order) != in.n {
		panic(fmt.Sprintf("kernel: an order of %d points, want %d", len(order), in.n))
	}
	out := *in
	out.order, out.arranged = order, in.Select(order)
	out.arranged.centre = in.centre // so that features, and elements, are the same bits
	return &out
}

// Arranged returns the points in the order of their arrangement, and that order: the points themselves and nil if there
// is none.
func (in *Inputs) Arranged() (*Inputs, []int) {
	if in.order == nil {
		return in, nil
	}
	return in.arranged, in.order
}

// SpatialOrder returns an order in which points that follow each other are near in the given inputs, in units of their
// standard deviations: the points are cut in two at a median of the input in which they are spread widest, and so on
// (Bentley 1975), until no more than cell are left. Cuts are at multiples of cell, so that each cell of them in the order lies in
// a box. Cells are cut into smaller ones, if given, alike. It is a function of the points alone.
func (in *Inputs) SpatialOrder(inputs []int, cell int, smaller ...int) []int {
	order := make([]int, in.n)
	for i := range order {
		order[i] = i
	}
	unit := make([]float64, len(inputs))
	for a, k := range inputs {
		unit[a] = in.sd(k)
	}
	in.bisect(order, inputs, unit, cell, smaller)
	return order
}

// sd returns the standard deviation of an input.
func (in *Inputs) sd(k int) float64 {
	var sum, squares float64
	for i := range in.n {
		sum += in.x[i*in.d+k] - in.centre[k]
	}
	mean := sum / float64(in.n)
	for i := range in.n {
		t := in.x[i*in.d+k] - in.centre[k] - mean
		squares += t * t
	}
	return math.Sqrt(squares / float64(in.n))
}

func (in *Inputs) bisect(order, inputs []int, unit []float64, cell int, smaller []int) {
	for len(order) > cell && len(inputs) > 0 {
		widest, width := inputs[0], 0.0
		for a, k := range inputs {
			lo, hi := math.Inf(1), math.Inf(-1)
			for _, i := range order {
				x := in.x[i*in.d+k]
				lo, hi = min(lo, x), max(hi, x)
			}
			if w := (hi - lo) / unit[a]; w > width {
				widest, width = k, w
			}
		}
		slices.SortFunc(order, func(i, j int) int {
			return cmp.Or(cmp.Compare(in.x[i*in.d+widest], in.x[j*in.d+widest]), cmp.Compare(i, j))
		})
		cells := (len(order) + cell - 1) / cell
		at := (cells + 1) / 2 * cell
		in.bisect(order[:at], inputs, unit, cell, smaller)
		order = order[at:]
	}
	slices.Sort(order) // as they are, within a cell
	if len(smaller) > 0 {
		in.bisect(order, inputs, unit, smaller[0], smaller[1:])
	}
}

// Local returns the inputs, in increasing order, that decide how far a covariance reaches: those of the leaves that come to
// nothing with distance faster than any power of it, which are the families and Wendland's functions. everywhere reports whether each term has one of these,
// but for terms of low rank, which are not evaluated pair by pair: then the whole comes to nothing.
func (c *Covariance) Local() (inputs []int, everywhere bool) {
	pairs, _ := c.Pairs()
	if pairs == nil {
		return nil, false
	}
	everywhere = true
	for _, t := range pairs.terms {
		local := false
		for _, l := range t.Leaves {
			if over := reaching(pairs.leaves[l]); over != nil {
				local, inputs = true, union(inputs, over)
			}
		}
		everywhere = everywhere && local
	}
	return inputs, everywhere
}

// reaching returns the inputs of a leaf that comes to nothing with distance, nil for another.
func reaching(l Leaf) []int {
	switch l := l.(type) {
	case *Stationary:
		if l.Family != Rational {
			return l.Inputs
		}
	case *Warped:
		return reaching(l.Stationary)
	}
	return nil
}
