package precond

import (
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// nystromFloor is the residual variance, relative to σ, below which a row of
// the subset adds nothing but rounding and is left out: repeated rows, for
// instance, which would make K_UU singular.
const nystromFloor = 1e-9

// nystrom is P = D + K_XU K_UU⁻¹ K_UX with U a random subset of the rows
// (Williams and Seeger 2001; Cutajar et al. 2016, section 3.1). The second term
// is the partial Cholesky factorisation of K_f with the rows of U as pivots.
func nystrom(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	return parts{newDiagonal(op.Noise(), op.Budget()), subsetColumns(op, rank, key)}, nil
}

// subsetColumns returns L with L·Lᵀ = K_XU K_UU⁻¹ K_UX for a random U.
func subsetColumns(op *cmvp.Operator, rank int, key random.Key) [][]float64 {
	return pivotsInOrder(op, rank, key.Stream(random.Pivot, 0).Perm(op.Len()))
}

// pivotsInOrder takes the rows as pivots in their order, up to rank of them.
func pivotsInOrder(op *cmvp.Operator, rank int, rows []int) [][]float64 {
	propose := func([]float64) []int {
		m := min(proposals, len(rows))
		next := rows[:m]
		rows = rows[m:]
		return next
	}
	floor := nystromFloor * op.Params().Sigma
	cols, _ := blockCholesky(op, rank, propose, func(now, _ float64) bool { return now > floor })
	return cols
}
