package precond

import (
	"context"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// nystromFloor is the residual variance, relative to the largest variance, below which a row of
// the subset adds nothing but rounding and is left out: repeated rows, for
// instance, which would make K_UU singular.
const nystromFloor = 1e-9

// nystrom is P = D + K_XU K_UU⁻¹ K_UX with U a random subset of the rows
// (Williams and Seeger 2001; Cutajar et al. 2016, section 3.1). The second term
// is the partial Cholesky factorisation of K_f with the rows of U as pivots.
func nystrom(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	f, err := subset(ctx, k, rank, key)
	return f.parts(k), err
}

// subset returns L with L·Lᵀ = K_XU K_UU⁻¹ K_UX for a random U.
func subset(ctx context.Context, k Covariance, rank int, key random.Key) (pivoted, error) {
	return pivotsInOrder(ctx, k, rank, key.Stream(random.Pivot, 0).Perm(k.Len()))
}

// pivotsInOrder takes the rows as pivots in their order, up to rank of them.
func pivotsInOrder(ctx context.Context, k Covariance, rank int, rows []int) (pivoted, error) {
	propose := func([]float64) []int {
		m := min(Proposals, len(rows))
		next := rows[:m]
		rows = rows[m:]
		return next
	}
	floor := nystromFloor * floats.Max(variances(k, nil))
	return blockCholesky(ctx, k, rank, propose, func(now, _ float64) bool { return now > floor })
}
