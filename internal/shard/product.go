package shard

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// State is θ, numbered.
type State struct {
	Version uint64    // from 1 on; a change of θ changes it
	Theta   []float64 // the covariance's parameters
	Noise   []float64 // variances: one for all rows, or one for each
}

// Kind is what is computed from the vectors.
type Kind int

const (
	Double Kind = iota // K·V
	Single             // K·V in single precision
	Forms              // gradient forms of U and V
	Hold               // nothing: a chunk of L goes to a member, which keeps it
	Trans              // Lᵀ·V
	Low                // L·V
	Pass               // sums over rows of a sparse approximation
)

// width returns how many bytes a number of the vectors takes on the wire. Products in
// single precision round them to float32 in any case.
func (k Kind) width() int {
	if k == Single {
		return 4
	}
	return 8
}

// precision returns that of a product K·V.
func (k Kind) precision() cmvp.Precision {
	if k == Single {
		return cmvp.Single
	}
	return cmvp.Double
}

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
	// Factor is what the columns of V are multiplied by, for K·V (see cmvp.Scales).
	Factor []float64
	// L is the factor of a preconditioner that is to be held, or multiplied by: nil for products with
	// K. State then numbers L. Chunk is what is to be held of it.
	L     *matrix
	Chunk int
	// Exchange is set if members keep the sums of K·V and add them up among themselves; Add says that the
	// units are points whose sums are to be added up, not parts.
	Exchange *exchange
	Add      bool
	// Pass is what is summed of an approximation, whose rows V are: nil for products.
	Pass *pass
	// Bound is the largest |K_f|, to check answers by, and Scale what the sums of K·V are in
	// units of.
	Bound, Scale float64
	// Trace tells members of the span that the product is; empty for none.
	Trace []byte

	again []share // if set, the units to compute: again, not by who computed them

	once  sync.Once
	norms []float64 // ‖·‖₁ of V, then of U

	encode sync.Once
	pieces []chunks

	doubtful []atomic.Bool // of each chunk, whether an answer is less like its checksum than rounding explains
}

// Unit is a part of a product: the units [Lo,Hi) of cmvp.Grid for K·V, its tasks
// [Lo,Hi) for the forms, blocks [Lo,Hi) of a pass, or the chunks [Lo,Hi) of L. What it comes to are sums, which are added up in the
// order of the grid, or of chunks, when all are there.
type Unit struct{ Lo, Hi int }

// Size returns how many numbers a unit's answer has: unit after unit, or task after task,
// of its sums.
func (p *Product) Size(u Unit) int {
	if p.Exchange != nil {
		return p.Exchange.size(p, u)
	}
	switch p.Kind {
	case Forms:
		return (u.Hi - u.Lo) * p.Sums
	case Hold, Trans, Low:
		return p.L.size(p, u)
	case Pass:
		return p.Pass.size(p.N, u)
	}
	return cmvp.UnitSums(p.N, len(p.V), u.Lo, u.Hi)
}

// place returns where a unit's answer lies among those of all.
func (p *Product) place(sums []float64, u Unit) []float64 {
	return sums[p.Size(Unit{0, u.Lo}):][:p.Size(u)]
}

// units returns the number of units, or tasks.
func (p *Product) units() int {
	switch x := p.Exchange; {
	case x != nil && p.Add:
		return x.grid.Points()
	case x != nil:
		return x.len()
	}
	switch p.Kind {
	case Forms:
		return cmvp.NewGrid(p.N).Tasks()
	case Hold:
		return 1
	case Trans, Low:
		return len(p.L.chunks)
	case Pass:
		return sparse.Blocks(p.N)
	}
	return cmvp.NewGrid(p.N).Units()
}

// work returns how many elements of K a unit ranges over, of a pass once for each inducing input, or of L, those once for each column.
func (p *Product) work(u Unit) float64 {
	switch {
	case p.L != nil:
		return p.L.elements(u) * float64(len(p.V))
	case p.Pass != nil:
		return p.Pass.work(p.N, u)
	case p.Add:
		return 0
	case p.Exchange != nil:
		return float64(p.N) * float64(p.N) * p.Exchange.share(u.Lo)
	}
	return float64(p.N) * float64(p.N) / float64(p.units()) * float64(u.Hi-u.Lo)
}

// extent returns what a unit is of those of the grid, or how many tasks it has of forms.
func (p *Product) extent(u Unit) float64 {
	if x := p.Exchange; x != nil && !p.Add {
		return x.share(u.Lo) * float64(x.grid.Units())
	}
	return float64(u.Hi - u.Lo)
}

// pairs returns how many elements of K a unit ranges over.
func (p *Product) pairs(u Unit) float64 {
	switch {
	case p.L != nil:
		return 0
	case p.Pass != nil:
		return p.work(u) / float64(p.Pass.Z.Len())
	}
	return p.work(u)
}

// pieces are what vectors are sent in: the points of the grid, at most 64, for K·V, chunks for Lᵀ·V,
// all in one for forms and L·V; of a pass those of each unit's rows, and what is shared.
type pieces uint64

// needs returns the pieces that a unit is computed from.
func (p *Product) needs(u Unit) (needed pieces) {
	switch {
	case p.Add:
		return 0
	case p.Exchange != nil:
		return p.Exchange.points[u.Lo]
	}
	switch p.Kind {
	case Forms, Hold, Low:
		return 1
	case Trans:
		return rowsOf(u)
	case Pass:
		return p.Pass.needs(p.N, u)
	}
	g := cmvp.NewGrid(p.N)
	for i := u.Lo; i < u.Hi; i++ {
		for _, point := range g.Unit(i) {
			needed |= 1 << point
		}
	}
	return needed
}

// regions returns where the numbers of each piece belong in V and U.
func (p *Product) regions() (all []region) {
	switch p.Kind {
	case Forms, Low:
		return []region{{columns: slices.Concat(p.V, p.U), hi: p.N}}
	case Hold:
		return []region{p.L.region(p.Chunk)}
	case Pass:
		return p.Pass.regions(p.N)
	case Trans:
		for i := range p.L.chunks {
			lo, hi := dense.ChunkRows(p.N, i)
			all = append(all, region{columns: p.V, lo: lo, hi: hi, start: lo * len(p.V)})
		}
		return all
	}
	g := cmvp.NewGrid(p.N)
	for point := range g.Points() {
		lo, hi := g.PointRows(point)
		all = append(all, region{columns: p.V, lo: lo, hi: hi, start: lo * len(p.V)})
	}
	return all
}

// split cuts the product into units: K·V into those of the grid, a pass into ranges of blocks, forms for some number of
// members, the first three quarters into some of one size for each, the rest into units of
// a quarter of that, so that members finish close together.
func (p *Product) split(members, coarse int) []Unit {
	if p.Pass != nil {
		units := make([]Unit, passGroups(p.N))
		for i := range units {
			units[i] = passUnit(p.N, i)
		}
		return units
	}
	const fine = 4
	whole := p.units()
	parts, big := members*coarse*fine, members*coarse*fine*3/4 // of the size of the small ones
	if p.Kind != Forms {
		parts, big = whole, 0
	}
	var units []Unit
	lo := 0
	for at := 0; at < parts; {
		if at < big {
			at = min(at+fine, big)
		} else {
			at++
		}
		if hi := at * whole / parts; hi > lo {
			units = append(units, Unit{lo, hi})
			lo = hi
		}
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
// |K_ij| ≤ max K_ii bounds every sum by the sizes of the vectors. Where the vectors
// themselves are not finite anything goes.
func (p *Product) check(u Unit, out []float64) error {
	p.prepare()
	if p.Exchange != nil {
		return p.Exchange.check(p, u, out)
	}
	switch p.Kind {
	case Hold, Trans, Low:
		return p.L.check(p, u, out)
	case Pass:
		return p.Pass.check(u, out)
	case Forms:
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
	g, at := cmvp.NewGrid(p.N), 0
	for i := u.Lo; i < u.Hi; i++ {
		for _, point := range g.Unit(i) {
			lo, hi := g.PointRows(point)
			for c := range p.V {
				if err := p.checkRows(c, lo, out[at:][:hi-lo]); err != nil {
					return fmt.Errorf("unit %d: %w", i, err)
				}
				at += hi - lo
			}
		}
	}
	return nil
}

// checkRows checks sums of rows of column c.
func (p *Product) checkRows(c, lo int, sums []float64) error {
	b := slack * p.Bound / p.Scale * p.Factor[c] * p.norms[c]
	if !finite(b) {
		return nil
	}
	for r, x := range sums {
		if !(math.Abs(x) <= b) {
			return fmt.Errorf("row %d of column %d is %g, but %g at most", lo+r, c, x, b)
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

// prepare computes, once, what all members need of the vectors.
func (p *Product) prepare() {
	p.once.Do(func() {
		for _, v := range slices.Concat(p.V, p.U) {
			var sum float64
			for _, x := range v {
				sum += math.Abs(x)
			}
			p.norms = append(p.norms, sum)
		}
		if p.L != nil {
			p.doubtful = make([]atomic.Bool, len(p.L.chunks))
		}
	})
}

// encoded returns the vectors as they are sent, piece by piece, to be used until free.
func (p *Product) encoded() []chunks {
	p.prepare()
	p.encode.Do(func() {
		for _, r := range p.regions() {
			p.pieces = append(p.pieces, r.encode(p.Kind.width(), p.Factor))
		}
	})
	return p.pieces
}

// free lets the memory of the encoded vectors go, once they have been sent.
func (p *Product) free() {
	for _, c := range p.pieces {
		c.free()
	}
}
