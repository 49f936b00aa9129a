package dense

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Products are those with an n×m matrix M that has many rows. A Matrix computes them; a group of workers that
// have its rows may, too, with the same bits. The only errors are those of contexts.
type Products interface {
	MulTrans(ctx context.Context, dst, v [][]float64, b *parallel.Budget) error // dst[c] = Mᵀ·v[c]
	MulAdd(ctx context.Context, dst, w [][]float64, b *parallel.Budget) error   // dst[c] += M·w[c]
}

// maxChunks bounds the number of partial sums that a product with Mᵀ is made
// of: enough to share it between many cores or machines, few enough to add up.
const maxChunks = 32

// perChunk returns how many tiles a chunk has of a matrix with some rows.
func perChunk(rows int) int { return (tiles(rows) + maxChunks - 1) / maxChunks }

// Chunks returns the number of chunks that the rows of a matrix are in: a function of
// their number alone, at most 32.
func Chunks(rows int) int { return (tiles(rows) + perChunk(rows) - 1) / perChunk(rows) }

// ChunkRows returns the rows [lo,hi) of chunk i.
func ChunkRows(rows, i int) (lo, hi int) {
	size := perChunk(rows) * tile.Size
	return i * size, min(rows, (i+1)*size)
}

// Chunk returns the rows of chunk i as a matrix of their own, which shares the elements of m.
// MulTrans of m is the sum, in order, of what SumTrans of the chunks are, and MulAdd of m adds
// what Mul of the chunks are, to the last bit.
func (m *Matrix) Chunk(i int) *Matrix {
	return m.Part(ChunkRows(m.rows, i))
}

// Part returns the rows [lo,hi) as a matrix of their own, which shares the elements of m. It panics unless lo is a multiple of
// TileRows and hi one, or the number of rows.
func (m *Matrix) Part(lo, hi int) *Matrix {
	if lo < 0 || lo >= hi || hi > m.rows || lo%tile.Size != 0 || hi%tile.Size != 0 && hi != m.rows {
		panic(fmt.Sprintf("dense: the rows [%d,%d) of %d", lo, hi, m.rows))
	}
	first, size := lo/tile.Size, m.ld*tile.Size
	part := *m
	part.rows, part.data = hi-lo, m.data[first*size:][:tiles(hi-lo)*size]
	return &part
}

// Stored returns the elements as they are stored, a slice for each tile, of equal length. A
// matrix of as many rows and columns whose elements are set to the same is the same.
func (m *Matrix) Stored() [][]float64 {
	all := make([][]float64, tiles(m.rows))
	for t := range all {
		data, _, _ := m.Tile(t)
		all[t] = data[:pad(m.cols)*tile.Size]
	}
	return all
}

// SumTrans sets dst to Mᵀ·v, column after column of cols numbers. All rows are summed in increasing
// order of tile: what MulTrans does within a chunk. The only error is that of ctx, which leaves dst
// undefined.
func (m *Matrix) SumTrans(ctx context.Context, dst []float64, v [][]float64, b *parallel.Budget) error {
	s, n := len(v), tiles(m.rows)
	ws := newSpace(b.MaxWorkers()*s*tile.Size + s*m.ld)
	defer ws.free()
	sum := ws.buf[b.MaxWorkers()*s*tile.Size:]
	clear(sum)
	b.NewLoop(func(worker, block int) {
		vt := ws.part(worker, s*tile.Size)
		for t := 0; t < n && ctx.Err() == nil; t++ {
			m.sumTile(sum, vt, v, t, block*blockCols, min(m.cols, (block+1)*blockCols))
		}
	}).Run(blocks(m.cols))
	for c := range v {
		copy(dst[c*m.cols:][:m.cols], sum[c*m.ld:])
	}
	return ctx.Err()
}

// sumTile adds what tile t makes of v to the columns [from,to) of sums, ld apart. It packs v's rows
// into vt.
func (m *Matrix) sumTile(sum, vt []float64, v [][]float64, t, from, to int) {
	data, lo, hi := m.Tile(t)
	for c, vc := range v {
		col := vt[c*tile.Size:][:tile.Size]
		clear(col[copy(col, vc[lo:hi]):])
	}
	for j := from; j < to; j += tile.Strip {
		k, next := strips(data, j)
		m.kern.Direct(sum[j:], m.ld, k, next, vt, len(v), tile.Panels(hi-lo))
	}
}

// Mul sets dst to M·w, column after column of rows numbers. The columns of M are summed in
// increasing order. The only error is that of ctx, which leaves dst undefined.
func (m *Matrix) Mul(ctx context.Context, dst []float64, w [][]float64, b *parallel.Budget) error {
	return m.mulTiles(ctx, w, b, func(_ int, y []float64, lo, hi int) {
		for c := range w {
			copy(dst[c*m.rows+lo:][:hi-lo], y[c*tile.Size:])
		}
	})
}

// GramBlocks returns the number of blocks of rows that MᵀM is in, for a matrix of some columns.
func GramBlocks(cols int) int { return blocks(cols) }

// GramSize returns how many numbers block p of MᵀM takes: some rows of as many numbers, from the diagonal block on.
func GramSize(cols, p int) int { return gramRows(cols, p) * pad(cols-p*blockCols) }

func gramRows(cols, p int) int { return min(blockCols, cols-p*blockCols) }

// AddGram adds what the rows of m make to block p of MᵀM. Gram is what those of all chunks in their order come to, from zeros, to the last
// bit. The only error is that of ctx, which leaves dst undefined.
func (m *Matrix) AddGram(ctx context.Context, dst []float64, p int, b *parallel.Budget) error {
	if len(dst) != GramSize(m.cols, p) {
		panic(fmt.Sprintf("dense: %d numbers for block %d of %d columns", len(dst), p, m.cols))
	}
	s, first, width := gramRows(m.cols, p), p*blockCols, pad(m.cols-p*blockCols)
	b.NewLoop(func(_, q int) {
		for t := range tiles(m.rows) {
			if ctx.Err() != nil {
				return
			}
			data, lo, hi := m.Tile(t)
			for j := first + q*blockCols; j < min(first+(q+1)*blockCols, m.cols); j += tile.Strip {
				k, next := strips(data, j)
				m.kern.Direct(dst[j-first:], width, k, next, data[first*tile.Size:], s, tile.Panels(hi-lo))
			}
		}
	}).Run(blocks(m.cols - first))
	return ctx.Err()
}

// SetGram sets what block p says of MᵀM.
func SetGram(g *mat.SymDense, p int, block []float64) {
	cols := g.SymmetricDim()
	first, width := p*blockCols, pad(cols-p*blockCols)
	for i := range gramRows(cols, p) {
		for j := first + i; j < cols; j++ {
			g.SetSym(first+i, j, block[i*width+j-first])
		}
	}
}
