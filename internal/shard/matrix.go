package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// matrix is a factor L of a preconditioner, n×m, in chunks of its rows: all of them on a driver, those that
// it holds on a member. Lᵀ·V is the sum of what chunks make, and L·V lies in rows: products are the same
// bits wherever chunks are computed (dense.Matrix.Chunk).
type matrix struct {
	rows, cols int
	chunks     []*dense.Matrix // nil for those that are not here
	sums       checksums       // of a driver
	recipe     *recipe         // of a driver, if members are to compute chunks by it
	grower     *grower         // of a member that does
}

// checksums are what answers are held against (Huang and Abraham 1984): for random signs g and h,
// gᵀ(L·w) = (gᵀL)·w and hᵀ(Lᵀ·v) = (L·h)ᵀ·v, chunk by chunk. What is wrong in an answer shows for
// most signs if it is more than rounding.
type checksums struct {
	once     sync.Once
	rows     []float64   // g, of all rows
	cols     []float64   // h
	gl       [][]float64 // gᵀL of each chunk, m numbers
	lh       [][]float64 // L·h of each chunk
	norm     []float64   // of each chunk, the root of its sum of squares
	elements []float64   // of each chunk, the sum of its elements, as they are stored
}

func newMatrix(rows, cols int) *matrix {
	return &matrix{rows: rows, cols: cols, chunks: make([]*dense.Matrix, dense.Chunks(rows))}
}

// matrixOf returns a matrix all of which is here.
func matrixOf(l *dense.Matrix) *matrix {
	m := newMatrix(l.Dims())
	for i := range m.chunks {
		m.chunks[i] = l.Chunk(i)
	}
	return m
}

// rowsOf returns the chunks of a unit.
func rowsOf(u Unit) pieces { return (1<<u.Hi - 1) &^ (1<<u.Lo - 1) }

// rowRange returns the rows of a unit.
func (m *matrix) rowRange(u Unit) (lo, hi int) {
	if u.Hi == u.Lo {
		return 0, 0
	}
	lo, _ = dense.ChunkRows(m.rows, u.Lo)
	_, hi = dense.ChunkRows(m.rows, u.Hi-1)
	return lo, hi
}

// elements returns how many elements of L a unit ranges over.
func (m *matrix) elements(u Unit) float64 {
	lo, hi := m.rowRange(u)
	return float64(hi-lo) * float64(m.cols)
}

// bytes returns what a chunk takes.
func (m *matrix) bytes(chunk int) int64 {
	return 8 * int64(m.elements(Unit{chunk, chunk + 1}))
}

// seed returns about how many bytes chunks are computed from beside the inputs: the factor at its pivots.
func (m *matrix) seed() int64 { return 4 * int64(m.cols) * int64(m.cols) }

// anew returns about how long it takes to compute a chunk that somebody else has, at a rate that elements are multiplied at.
func (m *matrix) anew(rate float64) time.Duration {
	seconds := Apply{Rows: m.rows, Rank: m.cols, Rate: cmp.Or(rate, startRate/10)}.Growing(len(m.chunks))
	return hiccup + time.Duration(min(2*seconds, 1e6)*1e9)
}

// hiccup is how much later than usual an answer may be without others beginning to compute what somebody else has.
const hiccup = 200 * time.Millisecond

// drop forgets a chunk that somebody else has.
func (m *matrix) drop(i int) {
	m.chunks[i] = nil
	m.grower.drop(i)
}

// size returns how many numbers the answer of a unit has.
func (m *matrix) size(p *Product, u Unit) int {
	switch p.Kind {
	case Hold:
		return 2 * (u.Hi - u.Lo)
	case Trans:
		return (u.Hi - u.Lo) * m.cols * len(p.V)
	case Gram:
		n := 0
		for i := u.Lo; i < u.Hi; i++ {
			n += m.gram(p.Chunk, i)
		}
		return n
	case Grow:
		lo, hi := m.rowRange(u)
		return hi - lo
	}
	lo, hi := m.rowRange(u)
	return (hi - lo) * len(p.V)
}

// region is where the elements of a chunk lie.
func (m *matrix) region(chunk int) region {
	tiles := m.chunks[chunk].Stored()
	return region{columns: tiles, hi: len(tiles[0])}
}

// compute sets out to the answer of a unit, a chunk.
func (m *matrix) compute(ctx context.Context, p *Product, u Unit, out []float64, b *parallel.Budget) error {
	switch p.Kind {
	case Hold:
		l, err := m.chunk(ctx, p.Chunk)
		if err == nil {
			out[0] = total(l)
		}
		return err
	case Grow:
		lo, hi := m.rowRange(u)
		return m.grower.residual(ctx, out, u.Lo, lo, hi, m.cols)
	}
	l, err := m.chunk(ctx, u.Lo)
	if err != nil {
		return err
	}
	switch p.Kind {
	case Low:
		return l.Mul(ctx, out, p.V, b)
	case Gram:
		copy(out, p.V[u.Lo])
		return l.AddGram(ctx, out, p.Chunk-u.Lo, b)
	}
	return l.SumTrans(ctx, out, m.part(p.V, u), b)
}

// chunk returns a chunk, which it computes if it is not here.
func (m *matrix) chunk(ctx context.Context, i int) (*dense.Matrix, error) {
	if m.chunks[i] == nil {
		lo, hi := dense.ChunkRows(m.rows, i)
		l, err := m.grower.chunk(ctx, i, lo, hi, m.cols)
		if err != nil {
			return nil, err
		}
		m.chunks[i] = l
	}
	return m.chunks[i], nil
}

// gram returns how many numbers a chunk adds to in a step of LᵀL; 0 if that is none of its.
func (m *matrix) gram(step, chunk int) int {
	if b := step - chunk; b >= 0 && b < dense.GramBlocks(m.cols) {
		return dense.GramSize(m.cols, b)
	}
	return 0
}

// part returns the rows of V that a unit reads.
func (m *matrix) part(v [][]float64, u Unit) [][]float64 {
	lo, hi := m.rowRange(u)
	rows := make([][]float64, len(v))
	for c := range v {
		rows[c] = v[c][lo:hi]
	}
	return rows
}

// total returns the sum of the elements of a matrix in the order in which they are stored.
func total(l *dense.Matrix) (sum float64) {
	for _, x := range l.Stored() {
		sum += floats.Sum(x)
	}
	return sum
}

// reduce adds what the chunks of a product come to to dst.
func (m *matrix) reduce(p *Product, dst [][]float64, sums []float64, b *parallel.Budget) {
	b.NewLoop(func(_, c int) {
		if p.Kind == Trans {
			clear(dst[c])
		}
		for i := range m.chunks {
			u := Unit{i, i + 1}
			to, per := dst[c], m.cols
			if p.Kind == Low {
				lo, hi := m.rowRange(u)
				to, per = dst[c][lo:hi], hi-lo
			}
			floats.Add(to, p.place(sums, u)[c*per:][:per])
		}
	}).Run(len(dst))
}

// prepare makes the checksums. It takes about as long as applying P to one vector.
func (m *matrix) prepare(b *parallel.Budget) {
	m.sums.once.Do(func() {
		s := &m.sums
		s.rows, s.cols = signs(m.rows), signs(m.cols)
		ctx := context.Background()
		for i, l := range m.chunks {
			lo, hi := dense.ChunkRows(m.rows, i)
			gl, lh, square := make([]float64, m.cols), make([]float64, hi-lo), 0.0
			_ = l.SumTrans(ctx, gl, [][]float64{s.rows[lo:hi]}, b)
			_ = l.Mul(ctx, lh, [][]float64{s.cols}, b)
			for _, x := range l.Stored() {
				square += floats.Dot(x, x)
			}
			s.gl, s.lh, s.norm = append(s.gl, gl), append(s.lh, lh), append(s.norm, math.Sqrt(square))
			s.elements = append(s.elements, total(l))
		}
	})
}

// signs returns n numbers that are 1 or −1.
func signs(n int) []float64 {
	x := make([]float64, n)
	var bits uint64
	for i := range x {
		if i%64 == 0 {
			bits = rand.Uint64()
		}
		x[i] = float64(int(bits>>(i%64)&1)*2 - 1)
	}
	return x
}

// doubt is how much less like its checksum an answer must be than rounding makes it, on average, to
// be computed again. A sixth of it is the most that was seen of answers that are right, in 450 runs of
// TestChecksumsOfRightAnswers.
const doubt = 5.0

// errDamaged is what a chunk is that is not the driver's.
var errDamaged = errors.New("the rows that it holds are not those of the factor")

// check returns an error if an answer cannot be right, and notes if it is doubtful.
func (m *matrix) check(p *Product, u Unit, out []float64) error {
	s := &m.sums
	switch {
	case p.Kind == Grow || p.Kind == Gram || p.raw:
		return checkGrown(p, u, out)
	case p.Kind == Hold:
		if s.elements != nil && math.Float64bits(out[0]) != math.Float64bits(s.elements[p.Chunk]) {
			return errDamaged
		}
		return nil
	}
	for c := range p.V {
		column := out[c*len(out)/len(p.V):][:len(out)/len(p.V)]
		bound := slack * s.norm[u.Lo] * p.norms[c]
		for i, x := range column {
			if finite(bound) && !(math.Abs(x) <= bound) {
				return fmt.Errorf("number %d of column %d for chunk %d is %g, but %g at most", i, c, u.Lo, x, bound)
			}
		}
		if d := m.differs(p, u, c, column); finite(bound) && !(d <= doubt) {
			p.doubtful[u.Lo].Store(true)
		}
	}
	return nil
}

// checkGrown returns an error if an answer cannot be right of a factor that is being built.
func checkGrown(p *Product, u Unit, out []float64) error {
	for i, x := range out {
		if !finite(x) || p.Kind == Grow && (x < 0 || x > slack*p.Bound) {
			return fmt.Errorf("number %d for chunk %d is %g", i, u.Lo, x)
		}
	}
	return nil
}

// differs returns how far a column of an answer is from its checksum, in units of what rounding
// makes of it.
func (m *matrix) differs(p *Product, u Unit, c int, column []float64) float64 {
	s, lo, hi := &m.sums, 0, 0
	lo, hi = m.rowRange(u)
	v, sign, of := p.V[c], s.rows[lo:hi], s.gl[u.Lo]
	if p.Kind == Trans {
		v, sign, of = v[lo:hi], s.cols, s.lh[u.Lo]
	}
	unit := 0x1p-53 * math.Sqrt(float64(m.cols+hi-lo)) * s.norm[u.Lo] * length(v)
	if d := math.Abs(floats.Dot(sign, column) - floats.Dot(of, v)); d > 0 || math.IsNaN(d) {
		return d / unit
	}
	return 0
}
