package precond

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// greedyCholesky is the pivoted Cholesky factor of K_f that takes the row with
// the largest residual variance each time (Harbrecht et al. 2012).
func greedyCholesky(op *cmvp.Operator, rank int, _ random.Key) ([]float64, [][]float64, error) {
	return pivotedCholesky(op, rank, floats.MaxIdx)
}

// randomCholesky takes a random row with probability proportional to its
// residual variance (RPCholesky: Chen, Epperly, Tropp and Webber 2023). It
// avoids the outliers that the greedy rule spends its rank on.
func randomCholesky(op *cmvp.Operator, rank int, key random.Key) ([]float64, [][]float64, error) {
	r := key.Stream(random.Pivot, 0)
	return pivotedCholesky(op, rank, func(d []float64) int { return sample(r, d) })
}

// sample returns an index with probability proportional to its weight.
func sample(r *rand.Rand, weights []float64) int {
	u := r.Float64() * floats.Sum(weights)
	for i, w := range weights {
		if u -= w; u < 0 {
			return i
		}
	}
	return floats.MaxIdx(weights)
}

// residualFloor ends the factorisation where what is left of the variance is
// rounding.
const residualFloor = 1e-12

// pivotedCholesky computes up to rank columns of K_f ≈ L·Lᵀ, choosing each
// pivot from the residual diagonal.
func pivotedCholesky(op *cmvp.Operator, rank int, choose func(residual []float64) int) ([]float64, [][]float64, error) {
	n, sigma := op.Len(), op.Params().Sigma
	residual := make([]float64, n)
	for i := range residual {
		residual[i] = sigma
	}
	var cols [][]float64
	for len(cols) < rank {
		p := choose(residual)
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
	return slices.Clone(op.Noise()), cols, nil
}
