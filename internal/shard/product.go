package shard

import (
	"fmt"
	"math"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
)

// State is θ, numbered.
type State struct {
	Version uint64    // from 1 on; a change of θ changes it
	Theta   []float64 // the covariance's parameters
	Noise   []float64 // variances: one for all rows, or one for each
}

// noise returns that of a row.
func (s *State) noise(row int) float64 {
	if len(s.Noise) == 1 {
		return s.Noise[0]
	}
	return s.Noise[row]
}

// Kind is what is computed from the vectors.
type Kind int

const (
	Double Kind = iota // K·V
	Single             // K·V in single precision
	Forms              // gradient forms of U and V
)

// Product is one set of vectors and what is to be computed from it. It is read
// only while units of it are computed.
type Product struct {
	ID    uint64
	Kind  Kind
	State *State
	N     int         // rows
	V, U  [][]float64 // s columns of n; U for Forms alone
	// The groups of the pairs of columns, for Forms (see cmvp.Operator.Forms), and
	// how many numbers a task sums up for all of them.
	Group  []int
	Groups int
	Sums   int
	// Bound is the largest |K_f|, to check answers by.
	Bound float64
	// Trace tells members of the span that the product is; empty for none.
	Trace []byte

	once  sync.Once
	wire  [][]float64 // V, then U
	norms []float64   // ‖·‖₁ of each of them

	encode sync.Once
	chunks chunks
}

// Unit is a part of a product: rows [Lo,Hi) of K·V, whole tiles of
// cmvp.TileRows, or the sums of tasks [Lo,Hi) of the forms.
type Unit struct{ Lo, Hi int }

// Size returns how many numbers a unit's answer has: column after column of its
// rows, or task after task of its sums.
func (p *Product) Size(u Unit) int { return (u.Hi - u.Lo) * p.width() }

// width returns the numbers in an answer for each row or task.
func (p *Product) width() int {
	if p.Kind == Forms {
		return p.Sums
	}
	return len(p.V)
}

// work returns how many elements of K a unit ranges over.
func (p *Product) work(u Unit) int64 {
	if p.Kind == Forms {
		tasks := int64(cmvp.NewGrid(p.N).Tasks())
		return int64(p.N) * int64(p.N) / tasks * int64(u.Hi-u.Lo)
	}
	return int64(u.Hi-u.Lo) * int64(p.N)
}

// split cuts the product into units for some number of members: the first three
// quarters into some of one size for each, the rest into units of a quarter of
// that, so that members finish close together. No unit is less than a tile.
func (p *Product) split(members, coarse int) []Unit {
	whole, step := cmvp.NewGrid(p.N).Tasks(), 1
	if p.Kind != Forms {
		whole, step = cmvp.NewGrid(p.N).Tiles, cmvp.TileRows
	}
	const fine = 4
	parts := members * coarse * fine // of the size of the small ones
	var units []Unit
	lo := 0
	for at := 0; at < parts; {
		if at < parts*3/4 {
			at = min(at+fine, parts*3/4)
		} else {
			at++
		}
		if hi := at * whole / parts * step; hi > lo {
			units = append(units, Unit{lo, hi})
			lo = hi
		}
	}
	if p.Kind != Forms {
		units[len(units)-1].Hi = p.N
	}
	return units
}

// formBound bounds the sums of a task relative to ‖u‖₁‖v‖₁: they are of products of
// g(u), at most 1, of these times u·g'(u), smaller, or of that over the q of package
// cmvp, which is 0.048 at the least.
const formBound = 100

// slack allows for rounding, in single precision too.
const slack = 1.001

// check returns an error if an answer cannot be right, whatever the inputs:
// |K_ij| ≤ max K_ii bounds every number by the sizes of the vectors. Where the vectors
// themselves are not finite anything goes.
func (p *Product) check(u Unit, out []float64) error {
	p.prepare()
	if p.Kind == Forms {
		bounds := make([]float64, p.Groups)
		s := len(p.V)
		for c, g := range p.Group {
			bounds[g] += formBound * p.norms[c] * p.norms[s+c]
		}
		per := p.Sums / p.Groups
		for i, x := range out {
			if b := bounds[i/per%p.Groups]; finite(b) && !(math.Abs(x) <= b) {
				return fmt.Errorf("sum %d of tasks [%d,%d) is %g, but %g at most", i, u.Lo, u.Hi, x, b)
			}
		}
		return nil
	}
	for c, v := range p.V {
		most := slack * p.Bound * p.norms[c]
		for i, x := range out[c*(u.Hi-u.Lo):][:u.Hi-u.Lo] {
			b := most + slack*math.Abs(p.State.noise(u.Lo+i)*v[u.Lo+i])
			if finite(b) && !(math.Abs(x) <= b) {
				return fmt.Errorf("row %d of column %d is %g, but %g at most", u.Lo+i, c, x, b)
			}
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

// prepare computes, once, what all members need of the vectors.
func (p *Product) prepare() {
	p.once.Do(func() {
		p.wire = append(append(p.wire, p.V...), p.U...)
		p.norms = make([]float64, len(p.wire))
		for c, v := range p.wire {
			var sum float64
			for _, x := range v {
				sum += math.Abs(x)
			}
			p.norms[c] = sum
		}
	})
}

// commit stores the answer of a unit in its place.
func (p *Product) commit(dst [][]float64, sums []float64, u Unit, out []float64) {
	if p.Kind == Forms {
		copy(sums[u.Lo*p.width():], out)
		return
	}
	for c, y := range dst {
		copy(y[u.Lo:u.Hi], out[c*(u.Hi-u.Lo):])
	}
}

// encoded returns the vectors as they are sent, to be used until free.
func (p *Product) encoded() chunks {
	p.prepare()
	p.encode.Do(func() { p.chunks = encodeColumns(p.wire) })
	return p.chunks
}

// free lets the memory of the encoded vectors go, once they have been sent.
func (p *Product) free() { p.chunks.free() }
