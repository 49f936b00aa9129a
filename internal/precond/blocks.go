package precond

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// blocks is a block-diagonal B. A block is a set of rows, not a range of them:
// the data keep their order and the preconditioner gathers.
type blocks struct {
	rows   [][]int
	chol   []triangle // Cholesky factors
	budget *parallel.Budget
}

// triangle is a lower triangular matrix, row by row.
type triangle struct {
	data   []float64
	stride int
}

// row returns row i left of the diagonal, and the diagonal element.
func (t triangle) row(i int) (left []float64, diag float64) {
	r := t.data[i*t.stride:][:i+1]
	return r[:i], r[i]
}

// newBlocks returns the blocks of K − L·Lᵀ, noise included.
func newBlocks(ctx context.Context, k Covariance, rows [][]int, cols [][]float64) (*blocks, error) {
	b := &blocks{rows: rows, chol: make([]triangle, len(rows)), budget: k.Budget()}
	noise := k.Noise()
	bad := make([]bool, len(rows))
	b.budget.NewLoop(func(_, i int) {
		if ctx.Err() != nil {
			return
		}
		block := rows[i]
		a := covariance(k, block)
		if len(cols) > 0 {
			l := mat.NewDense(len(block), len(cols), nil)
			for q, r := range block {
				row := l.RawRowView(q)
				for c, col := range cols {
					row[c] = col[r]
				}
			}
			a.SymRankK(a, -1, l)
		}
		for q, r := range block {
			a.SetSym(q, q, a.At(q, q)+noise[r])
		}
		var chol mat.Cholesky
		if bad[i] = !chol.Factorize(a); bad[i] {
			return
		}
		var t mat.TriDense
		chol.LTo(&t)
		raw := t.RawTriangular()
		b.chol[i] = triangle{raw.Data, raw.Stride}
	}).Run(len(rows))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range bad {
		if bad[i] {
			return nil, fmt.Errorf("the block of %d rows from row %d is numerically singular", len(rows[i]), rows[i][0])
		}
	}
	return b, nil
}

// covariance returns K_f between some rows.
func covariance(k Covariance, rows []int) *mat.SymDense {
	in, f := k.Inputs(), k.Function()
	a := mat.NewSymDense(len(rows), nil)
	for i, r := range rows {
		for j := i; j < len(rows); j++ {
			a.SetSym(i, j, f.Value(in.Row(r), in.Row(rows[j])))
		}
	}
	return a
}

func (b *blocks) mul(dst, v [][]float64) {
	b.each(dst, v, func(t triangle, x [][]float64) {
		for i := len(x[0]) - 1; i >= 0; i-- {
			row, diag := t.row(i)
			for _, c := range x {
				c[i] = diag*c[i] + floats.Dot(row, c[:i])
			}
		}
	})
}

func (b *blocks) mulTrans(dst, v [][]float64) {
	b.each(dst, v, func(t triangle, x [][]float64) {
		for i := range x[0] {
			row, diag := t.row(i)
			for _, c := range x {
				floats.AddScaled(c[:i], c[i], row)
				c[i] *= diag
			}
		}
	})
}

func (b *blocks) solve(dst, v [][]float64) {
	b.each(dst, v, func(t triangle, x [][]float64) {
		for i := range x[0] {
			row, diag := t.row(i)
			for _, c := range x {
				c[i] = (c[i] - floats.Dot(row, c[:i])) / diag
			}
		}
	})
}

func (b *blocks) solveTrans(dst, v [][]float64) {
	b.each(dst, v, func(t triangle, x [][]float64) {
		for i := len(x[0]) - 1; i >= 0; i-- {
			row, diag := t.row(i)
			for _, c := range x {
				c[i] /= diag
				floats.AddScaled(c[:i], -c[i], row)
			}
		}
	})
}

// each gathers the rows of each block, changes them by f, and puts them back.
func (b *blocks) each(dst, v [][]float64, f func(t triangle, x [][]float64)) {
	b.budget.NewLoop(func(_, i int) {
		block := b.rows[i]
		x := solve.Columns(len(block), len(v))
		for c, vc := range v {
			for q, r := range block {
				x[c][q] = vc[r]
			}
		}
		f(b.chol[i], x)
		for c, dc := range dst {
			for q, r := range block {
				dc[r] = x[c][q]
			}
		}
	}).Run(len(b.rows))
}

func (b *blocks) logDet() float64 {
	var sum float64
	for i, t := range b.chol {
		for q := range b.rows[i] {
			_, diag := t.row(q)
			sum += 2 * math.Log(diag)
		}
	}
	return sum
}
