// Package cholesky factors stored covariance matrices: float64, in place, block by
// block, with the vector kernels of package tile on all cores.
//
// An element of the factor is computed by the same operations in the same order
// whatever the number of threads, of members of a group, or the size of blocks:
// l_ij = (k_ij − l_i1·l_j1 − … − l_i,j−1·l_j,j−1)·(1/l_jj), one product subtracted
// after the other. So its bits depend on the matrix and the instruction set alone.
package cholesky

import (
	"context"
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Matrix is the lower triangle of a symmetric n×n matrix, or its factor, or its
// inverse. It is stored in square blocks; in a block, strips of tile.Strip rows
// follow each other, and element (r,j) of a strip is at j·tile.Strip+r. Rows beyond
// n are those of the identity. A Matrix is not safe for concurrent use.
type Matrix struct {
	steps
	blocks  [][]float64 // of the lower triangle, row by row
	content content
}

// content is what the blocks hold.
type content int

const (
	nothing content = iota
	symmetric
	factor
	inverse
)

// grid is how n rows are cut into blocks, a function of n alone.
type grid struct {
	n, edge, count int
}

// Large matrices have blocks of largeEdge rows, which multiply at full speed from
// the second-level cache; below smallUpTo rows smaller ones keep more cores at work.
const (
	largeEdge = 256
	smallEdge = 128
	smallUpTo = 4096
)

func newGrid(n int) grid {
	if n < 1 {
		panic(fmt.Sprintf("cholesky: a matrix of %d rows", n))
	}
	edge := largeEdge
	if n <= smallUpTo {
		edge = min(smallEdge, pad(n))
	}
	return grid{n: n, edge: edge, count: (n + edge - 1) / edge}
}

// pad returns n rounded up to whole strips.
func pad(n int) int { return (n + tile.Strip - 1) / tile.Strip * tile.Strip }

// ld is the number of elements of a strip.
func (g grid) ld() int { return g.edge * tile.Strip }

// elements is the number of elements of a block.
func (g grid) elements() int { return g.edge * g.edge }

// at returns where element (r,c) of a block is.
func (g grid) at(r, c int) int { return r/tile.Strip*g.ld() + c*tile.Strip + r%tile.Strip }

// size returns the rows of block b with padding, a multiple of tile.Strip.
func (g grid) size(b int) int { return min(g.edge, pad(g.n)-b*g.edge) }

func (g grid) strips(b int) int { return g.size(b) / tile.Strip }

// rows returns the range of rows of block b.
func (g grid) rows(b int) (lo, hi int) { return b * g.edge, min(g.n, (b+1)*g.edge) }

// index returns where block (i,j), i ≥ j, of a lower triangle is.
func index(i, j int) int { return i*(i+1)/2 + j }

// pair is the inverse of index.
func pair(at int) (i, j int) {
	i = int((math.Sqrt(8*float64(at)+1) - 1) / 2)
	for index(i+1, 0) <= at {
		i++
	}
	for index(i, 0) > at {
		i--
	}
	return i, at - index(i, 0)
}

// Bytes returns the memory of a Matrix of n rows.
func Bytes(n int) int64 {
	g := newGrid(n)
	return 8 * (int64(index(g.count, 0))*int64(g.elements()) + int64(pad(n)))
}

// InvertBytes returns the memory that Invert takes besides.
func InvertBytes(n int) int64 {
	g := newGrid(n)
	return 8 * int64(g.count) * int64(g.elements())
}

// New returns a matrix for Fill. It panics if n < 1, or if tile.Default has an
// error.
func New(n int) *Matrix {
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	return newMatrix(newGrid(n), isa)
}

func newMatrix(g grid, isa tile.ISA) *Matrix {
	m := &Matrix{
		steps:  newSteps(g, isa),
		blocks: make([][]float64, index(g.count, 0)),
	}
	for at := range m.blocks {
		m.blocks[at] = make([]float64, g.elements())
	}
	return m
}

// Len returns n.
func (m *Matrix) Len() int { return m.n }

func (m *Matrix) block(i, j int) []float64 { return m.blocks[index(i, j)] }

func (m *Matrix) want(c content, what string) {
	if m.content != c {
		panic("cholesky: " + what)
	}
}

// Strip is a place in a matrix: rows ILo ≤ i < IHi, at most tile.Size of them and ILo a
// multiple of tile.Panel, of columns JLo ≤ j < JHi, at most tile.Strip. Strips on the
// diagonal cover both triangles, the others the lower one alone.
type Strip struct {
	ILo, IHi, JLo, JHi int
	Block              int // that it is in, below Blocks
	Worker             int // who works on it, as in parallel.Loop
}

// Diagonal reports whether the strip's block is on the diagonal.
func (s Strip) Diagonal() bool { return s.ILo <= s.JLo }

// Blocks returns the number of blocks that strips belong to. One worker visits the
// strips of a block, in a fixed order.
func (g grid) Blocks() int { return index(g.count, 0) }

// each visits all strips of the lower triangle until ctx is done.
func (m *Matrix) each(ctx context.Context, b *parallel.Budget, visit func(s Strip)) error {
	b.NewLoop(func(worker, at int) {
		if m.blocks[at] == nil {
			return // another member's of a group
		}
		i, j := pair(at)
		s := Strip{Block: at, Worker: worker}
		s.ILo, s.IHi = m.rows(i)
		lo, hi := m.rows(j)
		for s.JLo = lo; s.JLo < hi && ctx.Err() == nil; s.JLo += tile.Strip {
			s.JHi = min(s.JLo+tile.Strip, hi)
			visit(s)
		}
	}).Run(m.Blocks())
	return ctx.Err()
}

// Fill sets the matrix to what eval computes: element (i,j) of a strip into
// k[(j−JLo)·tile.Size+i−ILo]. What k holds beyond is ignored. The only error is that
// of ctx, which leaves the matrix without content.
func (m *Matrix) Fill(ctx context.Context, b *parallel.Budget, eval func(s Strip, k []float64)) error {
	m.content = nothing
	spaces := newWorkspaces(b, tile.Strip*tile.Size)
	err := m.each(ctx, b, func(s Strip) {
		block, k := m.blocks[s.Block], spaces.of(s.Worker)
		eval(s, k)
		for j := s.JLo; j < s.JHi; j++ {
			m.putColumn(block, j%m.edge, k[(j-s.JLo)*tile.Size:][:s.IHi-s.ILo])
		}
		for j := m.n; s.JHi == m.n && j < pad(m.n); j++ { // the identity beyond n
			m.putColumn(block, j%m.edge, nil)
			block[m.at(j%m.edge, j%m.edge)] = 1
		}
	})
	if err == nil {
		m.content = symmetric
	}
	return err
}

// Each shows the elements of the matrix, or of its inverse after Invert, as Fill takes
// them. The only error is that of ctx.
func (m *Matrix) Each(ctx context.Context, b *parallel.Budget, look func(s Strip, k []float64)) error {
	if m.content != symmetric && m.content != inverse {
		panic("cholesky: no symmetric matrix to look at")
	}
	spaces := newWorkspaces(b, tile.Strip*tile.Size)
	return m.each(ctx, b, func(s Strip) {
		block, k := m.blocks[s.Block], spaces.of(s.Worker)
		for j := s.JLo; j < s.JHi; j++ {
			from := j % m.edge * tile.Strip
			for i := 0; i < s.IHi-s.ILo; i += tile.Strip {
				copy(k[(j-s.JLo)*tile.Size+i:][:tile.Strip], block[from:])
				from += m.ld()
			}
		}
		look(s, k)
	})
}

// putColumn sets column c of a block, zero beyond col.
func (m *Matrix) putColumn(block []float64, c int, col []float64) {
	for at := c * tile.Strip; at < len(block); at += m.ld() {
		n := copy(block[at:at+tile.Strip], col)
		clear(block[at+n : at+tile.Strip])
		col = col[n:]
	}
}

// workspaces are arrays of one length for each worker of a budget, made when it first wants one.
type workspaces struct {
	each   [][]float64
	length int
}

func newWorkspaces(b *parallel.Budget, length int) *workspaces {
	return &workspaces{make([][]float64, b.MaxWorkers()), length}
}

func (w *workspaces) of(worker int) []float64 {
	if w.each[worker] == nil {
		w.each[worker] = make([]float64, w.length)
	}
	return w.each[worker]
}

// NotPositive is the error of a matrix that is not positive definite, to rounding.
type NotPositive struct{ Row int } // where it shows, from 0

func (e *NotPositive) Error() string {
	return fmt.Sprintf("the matrix is not positive definite: row %d depends on those before it", e.Row+1)
}

// Factor replaces the matrix by its factor L, K = L·Lᵀ. The error is NotPositive, or
// that of ctx; either leaves the matrix without content.
func (m *Matrix) Factor(ctx context.Context, b *parallel.Budget) error {
	m.want(symmetric, "no symmetric matrix to factor")
	m.content = nothing
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ready := make([]chan struct{}, len(m.blocks))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	// Blocks are computed column by column, each when those that it depends on are.
	// They come before it, so that somebody computes them.
	wait := func(i, j int) bool {
		select {
		case <-ready[index(i, j)]:
			return true
		case <-ctx.Done():
			return false
		}
	}
	order := columnOrder(m.count)
	b.NewLoop(func(_, t int) {
		i, j := order[t][0], order[t][1]
		c := m.block(i, j)
		for k := range j {
			if ctx.Err() != nil || !wait(i, k) || !wait(j, k) {
				return
			}
			m.update(c, m.block(i, k), m.block(j, k), i, j, k)
		}
		if i == j {
			if err := m.diagonal(c, j); err != nil {
				stop(err)
				return
			}
		} else if wait(j, j) {
			m.below(c, m.block(j, j), m.strips(i), j)
		}
		close(ready[index(i, j)])
	}).Run(len(order))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.content = factor
	return nil
}

// columnOrder lists the blocks of a lower triangle column by column.
func columnOrder(count int) [][2]int {
	order := make([][2]int, 0, index(count, 0))
	for j := range count {
		for i := j; i < count; i++ {
			order = append(order, [2]int{i, j})
		}
	}
	return order
}
