package dense

import (
	"context"
	"fmt"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// blockCols is the number of columns of the blocks of a product of matrices:
// two tiles of as many columns fit in the second-level cache.
const blockCols = 128

// MulTrans sets dst[c] = Mᵀ·v[c]: columns of cols numbers from columns of rows.
// Rows are summed tile by tile within chunks that depend on their number
// alone. The only error is that of ctx, which leaves dst undefined.
func (m *Matrix) MulTrans(ctx context.Context, dst, v [][]float64, b *parallel.Budget) error {
	s := len(v)
	m.checkProduct(dst, m.cols, v, m.rows)
	n, per, chunks := tiles(m.rows), perChunk(m.rows), Chunks(m.rows)
	ws := newSpace(chunks * s * (m.ld + tile.Size))
	defer ws.free()
	b.NewLoop(func(_, chunk int) {
		w := ws.part(chunk, s*(m.ld+tile.Size))
		sum, vt := w[:s*m.ld], w[s*m.ld:]
		clear(sum)
		for t := chunk * per; t < min(n, (chunk+1)*per) && ctx.Err() == nil; t++ {
			m.sumTile(sum, vt, v, t, 0, m.cols)
		}
	}).Run(chunks)
	b.NewLoop(func(_, c int) {
		clear(dst[c])
		for chunk := range chunks {
			for j, x := range ws.part(chunk, s*(m.ld+tile.Size))[c*m.ld:][:m.cols] {
				dst[c][j] += x
			}
		}
	}).Run(s)
	return ctx.Err()
}

// MulAdd adds M·w[c] to dst[c]: columns of rows numbers from columns of cols.
// The columns of M are summed in increasing order. The only error is that of ctx,
// which leaves dst undefined.
func (m *Matrix) MulAdd(ctx context.Context, dst, w [][]float64, b *parallel.Budget) error {
	m.checkProduct(dst, m.rows, w, m.cols)
	return m.mulTiles(ctx, w, b, func(_ int, y []float64, lo, hi int) {
		for c, d := range dst {
			d = d[lo:hi]
			for i, x := range y[c*tile.Size:][:hi-lo] {
				d[i] += x
			}
		}
	})
}

// MulRight sets M to M·W, in place and so with the memory of M alone. W is given
// by its columns, of cols numbers each and cols of them at most: M keeps as many.
// A matrix that shares M's elements is void after it. The only error is that of
// ctx, which leaves M undefined.
func (m *Matrix) MulRight(ctx context.Context, w [][]float64, b *parallel.Budget) error {
	s := len(w)
	if s < 1 || s > m.cols {
		panic(fmt.Sprintf("dense: %d columns in the place of %d", s, m.cols))
	}
	for c, wc := range w {
		if len(wc) != m.cols {
			panic(fmt.Sprintf("dense: column %d has %d rows, want %d", c, len(wc), m.cols))
		}
	}
	err := m.mulTiles(ctx, w, b, func(t int, y []float64, _, _ int) {
		data, _, _ := m.Tile(t)
		clear(data[copy(data, y):]) // a tile is stored column by column, as y is
	})
	m.cols = s
	return err
}

// mulTiles computes M·W tile by tile, and hands over each with its number and
// its rows [lo,hi): columns of tile.Size numbers.
func (m *Matrix) mulTiles(ctx context.Context, w [][]float64, b *parallel.Budget, take func(t int, y []float64, lo, hi int)) error {
	s := len(w)
	ws := newSpace(b.MaxWorkers()*s*tile.Size + s*m.ld)
	defer ws.free()
	wp := ws.buf[b.MaxWorkers()*s*tile.Size:]
	for c, wc := range w {
		col := wp[c*m.ld:][:m.ld]
		clear(col[copy(col, wc):])
	}
	b.NewLoop(func(worker, t int) {
		if ctx.Err() != nil {
			return
		}
		y := ws.part(worker, s*tile.Size)
		clear(y)
		data, lo, hi := m.Tile(t)
		for j := 0; j < m.cols; j += tile.Strip {
			k, next := strips(data, j)
			m.kern.Trans(y, k, next, wp[j:], m.ld, s, tile.Panels(hi-lo))
		}
		take(t, y, lo, hi)
	}).Run(tiles(m.rows))
	return ctx.Err()
}

// strips returns the strip of a tile that begins with column j, and the one
// after it, or the last.
func strips(data []float64, j int) (k, next []float64) {
	const size = tile.Strip * tile.Size
	k = data[j*tile.Size:]
	return k[:size], k[min(size, len(k)-size):]
}

func (m *Matrix) checkProduct(dst [][]float64, rows int, v [][]float64, cols int) {
	if len(dst) != len(v) {
		panic(fmt.Sprintf("dense: %d columns from %d", len(dst), len(v)))
	}
	for c := range v {
		if len(dst[c]) != rows || len(v[c]) != cols {
			panic(fmt.Sprintf("dense: column %d has %d and %d rows, want %d and %d", c, len(dst[c]), len(v[c]), rows, cols))
		}
	}
}

// TransMul returns AᵀB. Rows are summed in increasing order of tile. The only
// error is that of ctx.
func TransMul(ctx context.Context, a, b *Matrix, budget *parallel.Budget) (*mat.Dense, error) {
	if a.rows != b.rows {
		panic(fmt.Sprintf("dense: AᵀB of %d and %d rows", a.rows, b.rows))
	}
	out := blas64.General{Rows: a.cols, Cols: b.cols, Stride: b.ld, Data: make([]float64, a.cols*b.ld)}
	across := blocks(b.cols)
	budget.NewLoop(func(_, i int) {
		transMulBlock(ctx, out.Data, a, b, i/across, i%across)
	}).Run(blocks(a.cols) * across)
	var d mat.Dense
	d.SetRawMatrix(out)
	return &d, ctx.Err()
}

// Gram returns MᵀM. Rows are summed in increasing order of tile. The only error
// is that of ctx.
func (m *Matrix) Gram(ctx context.Context, budget *parallel.Budget) (*mat.SymDense, error) {
	out := blas64.Symmetric{N: m.cols, Stride: m.ld, Data: make([]float64, m.cols*m.ld), Uplo: blas.Upper}
	n := blocks(m.cols)
	budget.NewLoop(func(_, i int) {
		if i/n <= i%n {
			transMulBlock(ctx, out.Data, m, m, i/n, i%n)
		}
	}).Run(n * n)
	var s mat.SymDense
	s.SetRawSymmetric(out)
	return &s, ctx.Err()
}

func blocks(cols int) int { return (cols + blockCols - 1) / blockCols }

// transMulBlock sets block (p,q) of AᵀB, stored row by row with stride b.ld.
func transMulBlock(ctx context.Context, dst []float64, a, b *Matrix, p, q int) {
	s := min(blockCols, a.cols-p*blockCols)
	for t := range tiles(a.rows) {
		if ctx.Err() != nil {
			return
		}
		at, lo, hi := a.Tile(t)
		bt, _, _ := b.Tile(t)
		for j := q * blockCols; j < min((q+1)*blockCols, b.cols); j += tile.Strip {
			k, next := strips(bt, j)
			a.kern.Direct(dst[p*blockCols*b.ld+j:], b.ld, k, next, at[p*blockCols*tile.Size:], s, tile.Panels(hi-lo))
		}
	}
}

// space is workspace that outlives a product in a pool.
type space struct{ buf []float64 }

var spaces = sync.Pool{New: func() any { return new(space) }}

func newSpace(n int) *space {
	ws := spaces.Get().(*space)
	if cap(ws.buf) < n {
		ws.buf = make([]float64, n)
	}
	ws.buf = ws.buf[:n]
	return ws
}

// part returns the i-th run of n numbers.
func (ws *space) part(i, n int) []float64 { return ws.buf[i*n:][:n:n] }

func (ws *space) free() { spaces.Put(ws) }
