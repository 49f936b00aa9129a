package precond

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// residualFloor is the residual variance, relative to σ, that is rounding:
// no row with less becomes a pivot.
const residualFloor = 1e-12

// greedyCholesky is the pivoted Cholesky factor of K_f that takes the row with
// the largest residual variance each time (Harbrecht et al. 2012).
func greedyCholesky(op *cmvp.Operator, rank int, _ random.Key) (parts, error) {
	n, sigma := op.Len(), op.Params().Sigma
	residual := make([]float64, n)
	for i := range residual {
		residual[i] = sigma
	}
	var cols [][]float64
	for len(cols) < rank {
		p := floats.MaxIdx(residual)
		if residual[p] <= residualFloor*sigma {
			break
		}
		col := op.CrossMatrix(op.Inputs().Select([]int{p}))[0]
		root := math.Sqrt(residual[p])
		op.Budget().Chunks(n, 2048, func(_, lo, hi int) {
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
	return parts{newDiagonal(op.Noise(), op.Budget()), cols}, nil
}
