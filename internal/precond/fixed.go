package precond

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Pivots returns the rows that the randomly pivoted Cholesky factor of K_f
// takes, in the order in which it does: at most rank, fewer if they leave
// nothing.
func Pivots(op *cmvp.Operator, rank int, key random.Key) ([]int, error) {
	r := key.Stream(random.Pivot, 0)
	var rows []int
	_, cols, err := pivotedCholesky(op, min(rank, op.Len()), func(d []float64) int {
		rows = append(rows, sample(r, d))
		return rows[len(rows)-1]
	})
	if err != nil {
		return nil, err
	}
	return rows[:len(cols)], nil
}

// OnRows returns P = D + K_XU K_UU⁻¹ K_UX for K(θ) as the operator stands, with
// U the given rows, from which the smooth function θ ↦ P is made that the exact
// sampler needs. With the pivots of a pivoted Cholesky factor it is that
// preconditioner.
func OnRows(op *cmvp.Operator, rows []int) (*LowRank, error) {
	d, cols, err := nystromOn(op, rows)
	if err == nil {
		var p *LowRank
		if p, err = newLowRank("fixed", d, cols, op.Budget()); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("preconditioner on %d fixed rows: %w", len(rows), err)
}

// MulRootTrans sets dst = Fᵀ·v.
func (p *LowRank) MulRootTrans(dst, v [][]float64) {
	p.scale(dst, v, true)
	w := p.inner(dst)
	solveTri(p.ic, true, w)
	p.update(dst, w, 1)
}
