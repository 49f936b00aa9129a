package precond

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"

	"github.com/ulisse-gp/ulisse/internal/solve"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// Pivots returns the rows that the randomly pivoted Cholesky factor of K_f
// takes, in the order in which it does: at most rank, fewer if they leave
// nothing.
func Pivots(ctx context.Context, k Covariance, rank int, key random.Key) ([]int, error) {
	k, _ = withoutFeatures(k)
	if k == nil {
		return nil, nil
	}
	f, err := randomPivots(ctx, k, min(rank, k.Len()), key)
	var rows []int
	for _, b := range f.blocks {
		rows = append(rows, b.Pivots...)
	}
	return rows, err
}

// OnRows returns P = D + K_XU K_UU⁻¹ K_UX for K(θ) as it stands, with
// U the given rows: a function of θ alone, as the exact sampler needs. With the
// pivots of a pivoted Cholesky factor it is that preconditioner.
func OnRows(ctx context.Context, k Covariance, rows []int) (*LowRank, error) {
	rest, exact := withoutFeatures(k)
	pt := parts{base: newDiagonal(k.Noise(), k.Budget())}
	if rest != nil {
		f, err := pivotsInOrder(ctx, rest, len(rows), rows)
		if err != nil {
			return nil, err
		}
		pt = f.parts(rest)
	}
	p, err := newLowRank(ctx, "fixed", pt, exact, k)
	if err != nil {
		return nil, fmt.Errorf("preconditioner on %d fixed rows: %w", len(rows), err)
	}
	return p, nil
}

// MulFactor sets dst = L·w, w having Rank rows. Of a preconditioner on some rows K_f − L·Lᵀ is positive semi-definite.
func (p *LowRank) MulFactor(dst, w [][]float64) {
	for _, c := range dst {
		clear(c)
	}
	if p.rank > 0 {
		_ = p.by.MulAdd(context.Background(), dst, w, p.budget) // who multiplies looks at his own context
	}
	p.base.mul(dst, dst)
}

// MulFactorTrans sets dst = Lᵀ·v, dst having Rank rows.
func (p *LowRank) MulFactorTrans(dst, v [][]float64) {
	if p.rank == 0 {
		return
	}
	g := solve.Columns(len(v[0]), len(v))
	p.base.mulTrans(g, v)
	_ = p.by.MulTrans(context.Background(), dst, g, p.budget)
}

// MulRootTrans sets dst = Fᵀ·v.
func (p *LowRank) MulRootTrans(dst, v [][]float64) {
	p.base.mulTrans(dst, v)
	p.update(dst, 1, func(w [][]float64) [][]float64 {
		p.solveTri(1, blas.Trans, w)
		return w
	})
}
