package precond

import (
	"fmt"

	"gonum.org/v1/gonum/blas"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Pivots returns the rows that the randomly pivoted Cholesky factor of K_f
// takes, in the order in which it does: at most rank, fewer if they leave
// nothing.
func Pivots(op *cmvp.Operator, rank int, key random.Key) ([]int, error) {
	_, rows := randomPivots(op, min(rank, op.Len()), key)
	return rows, nil
}

// OnRows returns P = D + K_XU K_UU⁻¹ K_UX for K(θ) as the operator stands, with
// U the given rows: a function of θ alone, as the exact sampler needs. With the
// pivots of a pivoted Cholesky factor it is that preconditioner.
func OnRows(op *cmvp.Operator, rows []int) (*LowRank, error) {
	pt := parts{newDiagonal(op.Noise(), op.Budget()), pivotsInOrder(op, len(rows), rows)}
	p, err := newLowRank("fixed", pt, op.Budget())
	if err != nil {
		return nil, fmt.Errorf("preconditioner on %d fixed rows: %w", len(rows), err)
	}
	return p, nil
}

// MulRootTrans sets dst = Fᵀ·v.
func (p *LowRank) MulRootTrans(dst, v [][]float64) {
	p.base.mulTrans(dst, v)
	p.update(dst, 1, func(w [][]float64) [][]float64 {
		p.solveTri(p.ic, blas.Trans, w)
		return w
	})
}
