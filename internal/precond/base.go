package precond

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// base is the part B = G·Gᵀ of a preconditioner that is not of low rank. Its
// methods take columns of n numbers; dst may be v.
type base interface {
	mul(dst, v [][]float64)        // dst = G·v
	mulTrans(dst, v [][]float64)   // dst = Gᵀ·v
	solve(dst, v [][]float64)      // dst = G⁻¹·v
	solveTrans(dst, v [][]float64) // dst = G⁻ᵀ·v
	logDet() float64               // log |B|
}

// diagonal is a diagonal B: its square root.
type diagonal struct {
	root   []float64
	budget *parallel.Budget
}

func newDiagonal(d []float64, budget *parallel.Budget) *diagonal {
	b := &diagonal{root: make([]float64, len(d)), budget: budget}
	for i, x := range d {
		b.root[i] = math.Sqrt(x)
	}
	return b
}

func (b *diagonal) mul(dst, v [][]float64) {
	b.budget.NewLoop(func(_, c int) {
		d, x := dst[c], v[c]
		for i, r := range b.root {
			d[i] = r * x[i]
		}
	}).Run(len(v))
}

func (b *diagonal) solve(dst, v [][]float64) {
	b.budget.NewLoop(func(_, c int) {
		d, x := dst[c], v[c]
		for i, r := range b.root {
			d[i] = x[i] / r
		}
	}).Run(len(v))
}

func (b *diagonal) mulTrans(dst, v [][]float64) { b.mul(dst, v) }

func (b *diagonal) solveTrans(dst, v [][]float64) { b.solve(dst, v) }

func (b *diagonal) logDet() float64 {
	var sum float64
	for _, r := range b.root {
		sum += 2 * math.Log(r)
	}
	return sum
}
