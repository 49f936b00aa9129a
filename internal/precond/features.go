package precond

import (
	"context"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// rest is K without the part A·Aᵀ of its covariance that is of low rank itself, such as that of a mean. Every
// preconditioner has the columns of A beside its own, which approximate the rest alone: a wide prior of a mean,
// whose variance is large beside all others, then costs no accuracy and no iterations.
type rest struct {
	Covariance
	f     *kernel.Function
	cols  [][]float64 // A
	pairs *cmvp.Operator
}

// withoutFeatures returns K without the part of low rank, and its columns. It is nil if K_f is of low rank; and k
// itself if nothing is.
func withoutFeatures(k Covariance) (Covariance, [][]float64) {
	f := k.Function()
	if f.Covariance().Rank() == 0 {
		return k, nil
	}
	in := k.Inputs()
	cols, row := solve.Columns(in.Len(), f.Covariance().Rank()), make([]float64, f.Covariance().Rank())
	for i := range in.Len() {
		f.Features(row, in.Row(i))
		for q, a := range row {
			cols[q][i] = a
		}
	}
	pairs := f.Pairs()
	if pairs == nil {
		return nil, cols
	}
	r := &rest{k, pairs, cols, cmvp.New(in, pairs.Covariance(), k.Budget())}
	r.pairs.Set(pairs.Theta(), k.Noise())
	return r, cols
}

// Function returns that of the rest.
func (r *rest) Function() *kernel.Function { return r.f }

// CrossMatrix is that of the rest.
func (r *rest) CrossMatrix(ctx context.Context, points *kernel.Inputs) ([][]float64, error) {
	return r.pairs.CrossMatrix(ctx, points)
}

// CrossRows is that of the rest.
func (r *rest) CrossRows(ctx context.Context, points *kernel.Inputs, of []int) ([][]float64, error) {
	return r.pairs.CrossRows(ctx, points, of)
}

// Mul leaves the product with K to whoever computes it, and takes the other part from it.
func (r *rest) Mul(ctx context.Context, dst, v [][]float64) error {
	err := r.Covariance.Mul(ctx, dst, v)
	addFeatures(dst, v, r.cols, -1)
	return err
}

// addFeatures adds sign·A·Aᵀ·v[c] to dst[c].
func addFeatures(dst, v, cols [][]float64, sign float64) {
	for c := range dst {
		for _, a := range cols {
			floats.AddScaled(dst[c], sign*floats.Dot(a, v[c]), a)
		}
	}
}

// plus is an operator and A·Aᵀ.
type plus struct {
	solve.Operator
	cols [][]float64
}

func (p plus) Mul(ctx context.Context, dst, v [][]float64) error {
	err := p.Operator.Mul(ctx, dst, v)
	addFeatures(dst, v, p.cols, 1)
	return err
}
