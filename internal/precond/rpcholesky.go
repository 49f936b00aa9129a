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

// Proposals is the number of pivots proposed at once: enough for level-3 work,
// few enough that most of them are accepted.
const Proposals = 128

// randomCholesky is the pivoted Cholesky factor of K_f that takes a row with
// probability proportional to its residual variance (RPCholesky: Chen,
// Epperly, Tropp and Webber 2023). It avoids the outliers that the greedy rule
// spends its rank on.
//
// Pivots are proposed a block at a time from the residuals as they stand and
// accepted with the probability by which those have shrunk meanwhile, so that
// their distribution is that of one at a time (Epperly, Tropp and Webber 2024).
func randomCholesky(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	f, err := randomPivots(ctx, k, rank, key)
	return f.parts(k), err
}

// randomPivots returns the factor.
func randomPivots(ctx context.Context, k Covariance, rank int, key random.Key) (pivoted, error) {
	r := key.Stream(random.Pivot, 0)
	propose := func(residual []float64) []int {
		rows := make([]int, Proposals)
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

// pivoted is the factor L of a pivoted Cholesky factorisation, n×m, and how it came about.
type pivoted struct {
	l      *dense.Matrix // nil if m = 0, or if a group has it
	blocks []Block
	spread Spread
}

// parts returns what a LowRank with the noise as B is made of.
func (f pivoted) parts(k Covariance) parts {
	return parts{base: newDiagonal(k.Noise(), k.Budget()), l: f.l, blocks: f.blocks, spread: f.spread}
}

// cols returns the columns of L.
func (f pivoted) cols() [][]float64 {
	if f.l == nil {
		return nil
	}
	n, m := f.l.Dims()
	cols := solve.Columns(n, m)
	for j := range cols {
		f.l.Col(cols[j], j)
	}
	return cols
}

// blockCholesky computes up to rank columns of K_f ≈ L·Lᵀ. propose returns rows given the residual diagonal, none to end. One
// becomes a pivot if accept says so, given its residual variance after the pivots
// before it, and when it was proposed. The only error is that of ctx.
func blockCholesky(ctx context.Context, k Covariance, rank int, propose func(residual []float64) []int, accept func(now, proposed float64) bool) (f pivoted, err error) {
	residual := variances(k, nil)
	floor := residualFloor * floats.Max(residual)
	st, done := newStore(k, rank), 0
	for done < rank && floats.Max(residual) > floor {
		proposed := propose(residual)
		if len(proposed) == 0 {
			break
		}
		rows, err := st.rows(ctx, proposed, residual)
		if err != nil {
			return f, err
		}
		block, at := choose(k, rows, proposed, residual, floor, accept)
		m := min(len(block.Pivots), rank-done)
		if m == 0 {
			if err := ctx.Err(); err != nil {
				return f, err
			}
			continue
		}
		block = block.first(m)
		here := make([][]float64, m)
		for c := range here {
			here[c] = rows[at[c]]
		}
		if err := st.grow(ctx, block, here, residual); err != nil {
			return f, err
		}
		for _, p := range block.Pivots {
			residual[p] = 0
		}
		f.blocks = append(f.blocks, block)
		done += m
	}
	return st.end(f), nil
}

// store keeps L while it is built.
type store interface {
	// rows returns L at some rows, the columns so far, given the residual variances as they stand.
	rows(ctx context.Context, of []int, residual []float64) ([][]float64, error)
	// grow adds the columns of a block, given L at its pivots, and takes what they explain from the residual variances.
	grow(ctx context.Context, b Block, at [][]float64, residual []float64) error
	// end adds what is kept to a factor of which the blocks are known.
	end(f pivoted) pivoted
}

func newStore(k Covariance, rank int) store {
	if o, ok := k.(*over); ok {
		return o
	}
	return &whole{part{k: k, l: dense.New(k.Len(), rank)}}
}

// whole keeps all of L here.
type whole struct{ part }

func (w *whole) rows(_ context.Context, of []int, _ []float64) ([][]float64, error) {
	rows := make([][]float64, len(of))
	for i, p := range of {
		rows[i] = w.row(p)
	}
	return rows, nil
}

func (w *whole) grow(ctx context.Context, b Block, at [][]float64, residual []float64) error {
	return w.part.grow(ctx, b, at, func(cols [][]float64, lo, hi int) { lessen(residual, cols, lo, hi) })
}

func (w *whole) end(f pivoted) pivoted {
	if w.done > 0 {
		f.l = w.l.First(w.done)
	}
	return f
}

// lessen takes what new columns of L explain of the rows [lo,hi) from their residual variances.
func lessen(residual []float64, cols [][]float64, lo, hi int) {
	for _, x := range cols {
		for q, v := range x[lo:hi] {
			residual[lo+q] = max(0, residual[lo+q]-v*v)
		}
	}
}

// choose returns the block of the pivots among the proposed rows, and which of these they are, given L there. It clears the residual
// of a row of which rounding is all that is left.
func choose(k Covariance, at [][]float64, rows []int, residual []float64, floor float64, accept func(now, proposed float64) bool) (block Block, chosen []int) {
	b, done := len(rows), len(at[0])
	g := covariance(k, rows)
	if done > 0 { // − L_S·L_Sᵀ
		ls := mat.NewDense(b, done, nil)
		for i, row := range at {
			ls.SetRow(i, row)
		}
		g.SymRankK(g, -1, ls)
	}
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
		block.Pivots, chosen, factor = append(block.Pivots, p), append(chosen, i), append(factor, col)
	}
	for q, i := range chosen {
		for _, c := range factor[:q+1] {
			block.Factor = append(block.Factor, c[i])
		}
	}
	return block, chosen
}
