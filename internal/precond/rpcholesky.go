package precond

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// proposals is the number of pivots proposed at once: enough for level-3 work,
// few enough that most of them are accepted.
const proposals = 128

// randomCholesky is the pivoted Cholesky factor of K_f that takes a row with
// probability proportional to its residual variance (RPCholesky: Chen,
// Epperly, Tropp and Webber 2023). It avoids the outliers that the greedy rule
// spends its rank on.
//
// Pivots are proposed a block at a time from the residuals as they stand and
// accepted with the probability by which those have shrunk meanwhile, so that
// their distribution is that of one at a time (Epperly, Tropp and Webber 2024).
func randomCholesky(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	cols, _, err := randomPivots(ctx, k, rank, key)
	return parts{newDiagonal(k.Noise(), k.Budget()), cols}, err
}

// randomPivots returns the factor and its pivots in order.
func randomPivots(ctx context.Context, k Covariance, rank int, key random.Key) ([][]float64, []int, error) {
	r := key.Stream(random.Pivot, 0)
	propose := func(residual []float64) []int {
		rows := make([]int, proposals)
		for i := range rows {
			rows[i] = sample(r, residual)
		}
		return rows
	}
	accept := func(now, proposed float64) bool { return r.Float64()*proposed < now }
	return blockCholesky(ctx, k, rank, propose, accept)
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

// blockCholesky computes up to rank columns of K_f ≈ L·Lᵀ and returns them and
// their pivots. propose returns rows given the residual diagonal, none to end. One
// becomes a pivot if accept says so, given its residual variance after the pivots
// before it, and when it was proposed. The only error is that of ctx.
func blockCholesky(ctx context.Context, k Covariance, rank int, propose func(residual []float64) []int, accept func(now, proposed float64) bool) (cols [][]float64, rows []int, err error) {
	n, residual := k.Len(), variances(k)
	floor := residualFloor * floats.Max(residual)
	l := dense.New(n, rank)
	for len(cols) < rank && floats.Max(residual) > floor {
		proposed := propose(residual)
		if len(proposed) == 0 {
			break
		}
		pivots, tri := choose(k, l, len(cols), proposed, residual, floor, accept)
		m := min(len(pivots), rank-len(cols))
		if m == 0 {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			continue
		}
		pivots = pivots[:m]
		block, err := residualColumns(ctx, k, l, len(cols), pivots)
		if err != nil {
			return nil, nil, err
		}
		k.Budget().Chunks(n, 1024, func(_, lo, hi int) { // times C⁻ᵀ
			if ctx.Err() != nil {
				return
			}
			for i := range block {
				x := block[i][lo:hi]
				for j := range i {
					floats.AddScaled(x, -tri.At(i, j), block[j][lo:hi])
				}
				floats.Scale(1/tri.At(i, i), x)
				for q, v := range x {
					residual[lo+q] = max(0, residual[lo+q]-v*v)
				}
			}
		})
		for c, p := range pivots {
			residual[p] = 0
			l.SetCol(len(cols), block[c])
			cols, rows = append(cols, block[c]), append(rows, p)
		}
	}
	return cols, rows, nil
}

// residualColumns returns the columns K_XT − L·L_Tᵀ of the pivots T, done columns of
// L being there.
func residualColumns(ctx context.Context, k Covariance, l *dense.Matrix, done int, pivots []int) ([][]float64, error) {
	block, err := k.CrossMatrix(ctx, k.Inputs().Select(pivots))
	if err != nil || done == 0 {
		return block, err
	}
	at := solve.Columns(done, len(pivots))
	for c, p := range pivots {
		l.First(done).Row(at[c], p)
		floats.Scale(-1, at[c])
	}
	return block, l.First(done).MulAdd(ctx, block, at, k.Budget())
}

// choose returns the pivots among the proposed rows and the Cholesky factor of
// their residual covariance, done columns of l being there. It clears the residual
// of a row of which rounding is all that is left.
func choose(k Covariance, l *dense.Matrix, done int, rows []int, residual []float64, floor float64, accept func(now, proposed float64) bool) ([]int, *mat.TriDense) {
	b := len(rows)
	g := covariance(k, rows)
	if done > 0 { // − L_S·L_Sᵀ
		ls := mat.NewDense(b, done, nil)
		for i, p := range rows {
			l.First(done).Row(ls.RawRowView(i), p)
		}
		g.SymRankK(g, -1, ls)
	}
	var pivots, at []int
	factor := make([][]float64, 0, b) // columns of C over the proposed rows
	for i, p := range rows {
		now := g.At(i, i)
		for _, c := range factor {
			now -= c[i] * c[i]
		}
		if !(now > floor) {
			residual[p] = 0
			continue
		}
		if !accept(now, residual[p]) {
			continue
		}
		col, root := make([]float64, b), math.Sqrt(now)
		for j := i; j < b; j++ {
			x := g.At(i, j)
			for _, c := range factor {
				x -= c[i] * c[j]
			}
			col[j] = x / root
		}
		pivots, at, factor = append(pivots, p), append(at, i), append(factor, col)
	}
	if len(pivots) == 0 {
		return nil, nil
	}
	tri := mat.NewTriDense(len(pivots), mat.Lower, nil)
	for j, c := range factor {
		for q := j; q < len(pivots); q++ {
			tri.SetTri(q, j, c[at[q]])
		}
	}
	return pivots, tri
}
