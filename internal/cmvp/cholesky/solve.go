package cholesky

import (
	"context"
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// LogDet returns log|K| from the factor.
func (m *Matrix) LogDet() float64 {
	m.want(factor, "no factor to take the determinant of")
	var sum float64
	for j := range m.count {
		sum += m.logDet(j)
	}
	return sum
}

// logDet returns the part of block (j,j).
func (f *steps) logDet(j int) float64 {
	lo, hi := f.rows(j)
	var sum float64
	for _, r := range f.inv[lo:hi] {
		sum -= 2 * math.Log(r)
	}
	return sum
}

// Solve replaces each column x[c] of n numbers by K⁻¹x[c]. The only error is that of
// ctx, which leaves x undefined.
func (m *Matrix) Solve(ctx context.Context, b *parallel.Budget, x [][]float64) error {
	return m.solve(ctx, b, x, true, true)
}

// SolveRoot replaces each column x[c] by L⁻¹x[c]; the error is as of Solve.
func (m *Matrix) SolveRoot(ctx context.Context, b *parallel.Budget, x [][]float64) error {
	return m.solve(ctx, b, x, true, false)
}

// SolveRootTrans replaces each column x[c] by L⁻ᵀx[c]; the error is as of Solve.
func (m *Matrix) SolveRootTrans(ctx context.Context, b *parallel.Budget, x [][]float64) error {
	return m.solve(ctx, b, x, false, true)
}

func (m *Matrix) solve(ctx context.Context, b *parallel.Budget, x [][]float64, forward, back bool) error {
	m.want(factor, "no factor to solve with")
	for c := range x {
		if len(x[c]) != m.n {
			panic(fmt.Sprintf("cholesky: a right-hand side of %d rows, want %d", len(x[c]), m.n))
		}
	}
	s := newSides(m, b, x)
	if forward {
		s.forward(ctx)
	}
	if back {
		s.back(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.each(x, func(stored, v *float64) { *v = *stored })
	return nil
}

// sides are right-hand sides, stored as rows below a matrix would be: block j holds
// their elements in block j of the matrix. X = B·L⁻ᵀ is then found as the blocks
// below the diagonal of a factor are.
type sides struct {
	*Matrix
	budget *parallel.Budget
	strips int // of tile.Strip right-hand sides
	data   [][]float64
	spaces *workspaces // a block for each worker
}

func newSides(m *Matrix, b *parallel.Budget, x [][]float64) *sides {
	s := &sides{Matrix: m, budget: b, strips: pad(len(x)) / tile.Strip,
		data: make([][]float64, m.count), spaces: newWorkspaces(b, m.elements())}
	for j := range s.data {
		s.data[j] = make([]float64, s.strips*m.ld())
	}
	s.each(x, func(stored, v *float64) { *stored = *v })
	return s
}

// each visits all elements of the columns x with where they are stored.
func (s *sides) each(x [][]float64, visit func(stored, v *float64)) {
	s.budget.NewLoop(func(_, r int) {
		for i := range x[r] {
			visit(&s.data[i/s.edge][s.at(r, i%s.edge)], &x[r][i])
		}
	}).Run(len(x))
}

// stripsAtOnce is how many strips of rows a task takes.
const stripsAtOnce = 8

// chunks runs body for each b in [0,blocks) and ranges of strips, until ctx is done.
func chunks(ctx context.Context, budget *parallel.Budget, blocks, strips int, body func(b, lo, strips int)) {
	per := (strips + stripsAtOnce - 1) / stripsAtOnce
	budget.NewLoop(func(_, t int) {
		lo := t % per * stripsAtOnce
		if ctx.Err() == nil {
			body(t/per, lo, min(stripsAtOnce, strips-lo))
		}
	}).Run(blocks * per)
}

// forward multiplies the rows by L⁻ᵀ.
func (s *sides) forward(ctx context.Context) {
	ld := s.ld()
	for j, x := range s.data {
		chunks(ctx, s.budget, 1, s.strips, func(_, lo, strips int) { s.below(x[lo*ld:], s.block(j, j), strips, j) })
		chunks(ctx, s.budget, s.count-j-1, s.strips, func(i, lo, strips int) {
			i += j + 1
			s.product(s.data[i][lo*ld:], x[lo*ld:], s.block(i, j), strips, s.grid.strips(i), s.size(j))
		})
	}
}

// back multiplies the rows by L⁻¹, from the last block to the first.
func (s *sides) back(ctx context.Context) {
	ld := s.ld()
	turned, inv := make([]float64, s.elements()), make([]float64, s.edge)
	for j := s.count - 1; j >= 0; j-- {
		// X·L = B with the order of rows and columns reversed is X'·L'ᵀ = B' with a
		// lower triangle L'.
		x, size := s.data[j], s.size(j)
		s.turn(turned, s.block(j, j), size)
		for r := range size {
			inv[r] = s.inv[j*s.edge+size-1-r]
		}
		chunks(ctx, s.budget, 1, s.strips, func(_, lo, strips int) {
			s.turnColumns(x[lo*ld:], strips, size)
			s.triangle(x[lo*ld:], turned, inv, strips, s.grid.strips(j))
			s.turnColumns(x[lo*ld:], strips, size)
		})
		s.budget.NewLoop(func(worker, i int) {
			if ctx.Err() == nil {
				t := s.spaces.of(worker)
				s.transpose(t, s.block(j, i), s.grid.strips(j), s.grid.strips(i))
				s.product(s.data[i], x, t, s.strips, s.grid.strips(i), size)
			}
		}).Run(j)
	}
}
