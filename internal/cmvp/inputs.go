package cmvp

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Inputs are n points of dimension d, shared read-only by operators.
type Inputs struct {
	n, d   int
	x      []float64 // n×d, row by row
	centre []float64 // a typical value of each input
}

// NewInputs returns the n×d inputs stored row by row in x, which it keeps.
// It panics if the sizes disagree.
func NewInputs(n, d int, x []float64) *Inputs {
	if n < 1 || d < 1 || len(x) != n*d {
		panic(fmt.Sprintf("cmvp: %d numbers for %d×%d inputs", len(x), n, d))
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

// Select returns the points with the given indices, in that order.
func (in *Inputs) Select(idx []int) *Inputs {
	x := make([]float64, 0, len(idx)*in.d)
	for _, i := range idx {
		x = append(x, in.Row(i)...)
	}
	return NewInputs(len(idx), in.d, x)
}

const log2e = math.Log2E

// scale returns the factor s_k of input k in z = (x−centre)·s_k (see the
// package comment).
func scale(f kernel.Family, tau float64) float64 {
	if f == kernel.RBF {
		return math.Sqrt(tau * log2e)
	}
	return math.Sqrt(f.Rate()*tau) * log2e
}

// unscale returns q with u = q·w.
func unscale(f kernel.Family) float64 {
	if f == kernel.RBF {
		return math.Ln2
	}
	return math.Ln2 * math.Ln2 / f.Rate()
}

// limit is the size at which scaled inputs saturate, so that no power of a
// distance that a kernel takes overflows.
func limit[T tile.Real]() float64 {
	if unsafe.Sizeof(T(0)) == 4 {
		return 1e17
	}
	return 1e100
}

// pack writes the scaled inputs of n points into panels: panel p holds, for
// each input k, its values at tile.Panel points side by side, from
// dst[(p·d+k)·tile.Panel] on. Points beyond n are zero; their weights are zero
// too.
func pack[T tile.Real](dst []T, in *Inputs, centre []float64, f kernel.Family, p kernel.Params) {
	d, most := in.d, limit[T]()
	clear(dst)
	for k, c := range centre {
		s := scale(f, p.TauAt(k))
		for i := range in.n {
			z := (in.x[i*d+k] - c) * s
			dst[(i/tile.Panel*d+k)*tile.Panel+i%tile.Panel] = T(max(-most, min(most, z)))
		}
	}
}
