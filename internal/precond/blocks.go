package precond

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// blocks is a block-diagonal B. A block is a set of rows, not a range of them:
// the data keep their order and the preconditioner gathers.
type blocks struct {
	rows   [][]int
	chol   []blas64.Triangular // lower Cholesky factors
	budget *parallel.Budget
}

// newBlocks returns the blocks of K − L·Lᵀ, noise included.
func newBlocks(op *cmvp.Operator, rows [][]int, cols [][]float64) (*blocks, error) {
	b := &blocks{rows: rows, chol: make([]blas64.Triangular, len(rows)), budget: op.Budget()}
	noise := op.Noise()
	bad := make([]bool, len(rows))
	b.budget.NewLoop(func(_, i int) {
		block := rows[i]
		a := covariance(op, block)
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
		b.chol[i] = t.RawTriangular()
	}).Run(len(rows))
	for i := range bad {
		if bad[i] {
			return nil, fmt.Errorf("the block of %d rows from row %d is numerically singular", len(rows[i]), rows[i][0])
		}
	}
	return b, nil
}

// covariance returns K_f between some rows.
func covariance(op *cmvp.Operator, rows []int) *mat.SymDense {
	in, f, p := op.Inputs(), op.Family(), op.Params()
	a := mat.NewSymDense(len(rows), nil)
	for i, r := range rows {
		for j := i; j < len(rows); j++ {
			a.SetSym(i, j, p.Sigma*f.Value(p.Dist(in.Row(r), in.Row(rows[j]))))
		}
	}
	return a
}

func (b *blocks) mul(dst, v [][]float64) {
	b.each(dst, v, func(t blas64.Triangular, x blas64.Vector) { blas64.Trmv(blas.NoTrans, t, x) })
}

func (b *blocks) solve(dst, v [][]float64) {
	b.each(dst, v, func(t blas64.Triangular, x blas64.Vector) { blas64.Trsv(blas.NoTrans, t, x) })
}

func (b *blocks) solveTrans(dst, v [][]float64) {
	b.each(dst, v, func(t blas64.Triangular, x blas64.Vector) { blas64.Trsv(blas.Trans, t, x) })
}

// each gathers the rows of each block and column, changes them by f, and puts
// them back.
func (b *blocks) each(dst, v [][]float64, f func(blas64.Triangular, blas64.Vector)) {
	b.budget.NewLoop(func(_, i int) {
		block := b.rows[i]
		x := blas64.Vector{N: len(block), Inc: 1, Data: make([]float64, len(block))}
		for c := range v {
			for q, r := range block {
				x.Data[q] = v[c][r]
			}
			f(b.chol[i], x)
			for q, r := range block {
				dst[c][r] = x.Data[q]
			}
		}
	}).Run(len(b.rows))
}

func (b *blocks) logDet() float64 {
	var sum float64
	for _, t := range b.chol {
		for i := range t.N {
			sum += 2 * math.Log(t.Data[i*t.Stride+i])
		}
	}
	return sum
}
