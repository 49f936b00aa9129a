// Package dense multiplies by tall stored matrices, such as the factors of
// low-rank preconditioners, with the kernels of covariance products.
//
// The bits of every result depend on the matrices and the instruction set
// alone, not on the number of threads, nor, for products with several
// columns, on the other columns.
package dense

import (
	"fmt"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
)

// TileRows is the number of rows of a tile.
const TileRows = tile.Size

// Matrix is a rows×cols matrix, best with rows ≫ cols. It is stored in tiles
// of tile.Size rows, column by column within a tile. Reading methods and
// products may run concurrently.
type Matrix struct {
	rows, cols int
	ld         int // columns stored in each tile, a multiple of tile.Strip
	data       []float64
	kern       *tile.Kernels[float64]
}

// New returns a zero matrix. It panics if tile.Default has an error.
func New(rows, cols int) *Matrix {
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	return newMatrix(rows, cols, isa)
}

func newMatrix(rows, cols int, isa tile.ISA) *Matrix {
	if rows < 1 || cols < 1 {
		panic(fmt.Sprintf("dense: a %d×%d matrix", rows, cols))
	}
	ld := pad(cols)
	return &Matrix{
		rows: rows, cols: cols, ld: ld,
		data: make([]float64, tiles(rows)*ld*tile.Size),
		kern: tile.For[float64](isa),
	}
}

func tiles(rows int) int { return (rows + tile.Size - 1) / tile.Size }

// pad returns cols rounded up to a whole number of strips.
func pad(cols int) int { return (cols + tile.Strip - 1) / tile.Strip * tile.Strip }

// Dims returns the numbers of rows and columns.
func (m *Matrix) Dims() (rows, cols int) { return m.rows, m.cols }

// Clone returns a copy.
func (m *Matrix) Clone() *Matrix {
	c := *m
	c.data = slices.Clone(m.data)
	return &c
}

// First returns the matrix of the first q columns, which shares the elements
// of m.
func (m *Matrix) First(q int) *Matrix {
	if q < 1 || q > m.cols {
		panic(fmt.Sprintf("dense: the first %d of %d columns", q, m.cols))
	}
	first := *m
	first.cols = q
	return &first
}

// Tiles returns the number of tiles.
func (m *Matrix) Tiles() int { return tiles(m.rows) }

// Tile returns tile t, to read and write: its column j begins at element j*tile.Size, and holds
// the rows [lo,hi). What is beyond the last row and column must stay zero.
func (m *Matrix) Tile(t int) (data []float64, lo, hi int) {
	size := m.ld * tile.Size
	return m.data[t*size:][:size], t * tile.Size, min(m.rows, (t+1)*tile.Size)
}

// SetCol sets column j.
func (m *Matrix) SetCol(j int, col []float64) {
	m.check(j, len(col))
	for t := range tiles(m.rows) {
		data, lo, hi := m.Tile(t)
		copy(data[j*tile.Size:], col[lo:hi])
	}
}

// Col sets dst to column j.
func (m *Matrix) Col(dst []float64, j int) {
	m.check(j, len(dst))
	for t := range tiles(m.rows) {
		data, lo, hi := m.Tile(t)
		copy(dst[lo:hi], data[j*tile.Size:])
	}
}

func (m *Matrix) check(j, rows int) {
	if j < 0 || j >= m.cols || rows != m.rows {
		panic(fmt.Sprintf("dense: column %d of %d elements in a %d×%d matrix", j, rows, m.rows, m.cols))
	}
}

// Row sets dst to row i.
func (m *Matrix) Row(dst []float64, i int) {
	if i < 0 || i >= m.rows || len(dst) != m.cols {
		panic(fmt.Sprintf("dense: row %d of %d elements in a %d×%d matrix", i, len(dst), m.rows, m.cols))
	}
	data, lo, _ := m.Tile(i / tile.Size)
	for j := range dst {
		dst[j] = data[j*tile.Size+i-lo]
	}
}
