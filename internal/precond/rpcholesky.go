package precond

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/random"
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
func randomCholesky(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	cols, _ := randomPivots(op, rank, key)
	return parts{newDiagonal(op.Noise(), op.Budget()), cols}, nil
}

// randomPivots returns the factor and its pivots in order.
func randomPivots(op *cmvp.Operator, rank int, key random.Key) ([][]float64, []int) {
	r := key.Stream(random.Pivot, 0)
	propose := func(residual []float64) []int {
		rows := make([]int, proposals)
		for i := range rows {
			rows[i] = sample(r, residual)
		}
		return rows
	}
	accept := func(now, proposed float64) bool { return r.Float64()*proposed < now }
	return blockCholesky(op, rank, propose, accept)
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
// their pivots. propose returns rows
// given the residual diagonal, none to end; those that accept becomes pivots,
// given the residual variance now, after the pivots before it, and when it was
// proposed.
func blockCholesky(op *cmvp.Operator, rank int, propose func(residual []float64) []int, accept func(now, proposed float64) bool) (cols [][]float64, rows []int) {
	n, sigma := op.Len(), op.Params().Sigma
	residual := make([]float64, n)
	for i := range residual {
		residual[i] = sigma
	}
	floor := residualFloor * sigma
	l := dense.New(n, rank)
	for len(cols) < rank && floats.Max(residual) > floor {
		proposed := propose(residual)
		if len(proposed) == 0 {
			break
		}
		pivots, tri := choose(op, l, len(cols), proposed, residual, floor, accept)
		m := min(len(pivots), rank-len(cols))
		if m == 0 {
			continue
		}
		pivots = pivots[:m]
		block := op.CrossMatrix(op.Inputs().Select(pivots))
		if k := len(cols); k > 0 { // K_XT − L·L_Tᵀ
			at := columns(k, m)
			for c, p := range pivots {
				l.First(k).Row(at[c], p)
				floats.Scale(-1, at[c])
			}
			l.First(k).MulAdd(block, at, op.Budget())
		}
		op.Budget().Chunks(n, 1024, func(_, lo, hi int) { // times C⁻ᵀ
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
	return cols, rows
}

// choose returns the pivots among the proposed rows and the Cholesky factor of
// their residual covariance, k columns of l being done. It clears the residual
// of a row of which rounding is all that is left.
func choose(op *cmvp.Operator, l *dense.Matrix, k int, rows []int, residual []float64, floor float64, accept func(now, proposed float64) bool) ([]int, *mat.TriDense) {
	b := len(rows)
	g := covariance(op, rows)
	if k > 0 { // − L_S·L_Sᵀ
		ls := mat.NewDense(b, k, nil)
		for i, p := range rows {
			l.First(k).Row(ls.RawRowView(i), p)
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
