package kernel

import (
	"fmt"
	"slices"
)

// Inputs are n points of dimension d, shared read-only by all who compute with
// them.
type Inputs struct {
	n, d   int
	x      []float64 // n×d, row by row
	centre []float64 // a typical value of each input

	order    []int   // of arranged: its point i is point order[i] here; nil if there is none
	arranged *Inputs // see Arrange
}

// NewInputs returns the n×d inputs stored row by row in x, which it keeps.
// It panics if the sizes disagree.
func NewInputs(n, d int, x []float64) *Inputs {
	if n < 1 || d < 1 || len(x) != n*d {
		panic(fmt.Sprintf("kernel: %d numbers for %d×%d inputs", len(x), n, d))
	}
	in := &Inputs{n: n, d: d, x: x, centre: make([]float64, d)}
	step := 1 + n/1000
	sample := make([]float64, 0, 1+n/step)
	for k := range in.centre {
		sample = sample[:0]
		for i := 0; i < n; i += step {
			sample = append(sample, x[i*d+k])
		}
		slices.Sort(sample)
		in.centre[k] = sample[len(sample)/2]
	}
	return in
}

// Len returns n.
func (in *Inputs) Len() int { return in.n }

// Dim returns d.
func (in *Inputs) Dim() int { return in.d }

// Row returns point i, to read.
func (in *Inputs) Row(i int) []float64 { return in.x[i*in.d : (i+1)*in.d] }

// Centre returns a typical value of input k, about its median.
func (in *Inputs) Centre(k int) float64 { return in.centre[k] }

// Select returns the points with the given indices, in that order, without an arrangement.
func (in *Inputs) Select(idx []int) *Inputs {
	x := make([]float64, 0, len(idx)*in.d)
	for _, i := range idx {
		x = append(x, in.Row(i)...)
	}
	return NewInputs(len(idx), in.d, x)
}
