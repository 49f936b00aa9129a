package precond

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// residualFloor is the residual variance, relative to the largest variance, that is rounding:
// no row with less becomes a pivot.
const residualFloor = 1e-12

// greedyCholesky is the pivoted Cholesky factor of K_f that takes the row with
// the largest residual variance each time (Harbrecht et al. 2012).
func greedyCholesky(ctx context.Context, k Covariance, rank int, _ random.Key) (parts, error) {
	n, residual := k.Len(), variances(k, nil)
	floor := residualFloor * floats.Max(residual)
	var cols [][]float64
	for len(cols) < rank {
		p := floats.MaxIdx(residual)
		if residual[p] <= floor {
			break
		}
		block, err := k.CrossMatrix(ctx, k.Inputs().Select([]int{p}))
		if err != nil {
			return parts{}, err
		}
		col := block[0]
		root := math.Sqrt(residual[p])
		k.Budget().Chunks(n, 2048, func(_, lo, hi int) {
			x := col[lo:hi]
			for _, c := range cols {
				floats.AddScaled(x, -c[p], c[lo:hi])
			}
		})
		for i := range col {
			col[i] /= root
			residual[i] = max(0, residual[i]-col[i]*col[i])
		}
		residual[p] = 0
		cols = append(cols, col)
	}
	return parts{base: newDiagonal(k.Noise(), k.Budget()), cols: cols}, nil
}
