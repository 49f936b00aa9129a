package precond

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Covariance is K(θ) = K_f(θ) + diag(noise) as it stands, for preconditioners to
// be built from. Mul may be computed by a group of workers: that is where the
// products of svd go. All else is computed here: an element of K costs less than
// sending it would.
type Covariance interface {
	solve.Operator
	Inputs() *kernel.Inputs
	Function() *kernel.Function // K_f at θ
	Noise() []float64           // one for each row, to read
	Budget() *parallel.Budget
	// CrossMatrix returns K_f(X*,X): a row of n numbers for each point. Its only
	// error is that of ctx.
	CrossMatrix(ctx context.Context, points *kernel.Inputs) ([][]float64, error)
	// CrossRows returns the columns of CrossMatrix that belong to some rows of X, to the last bit.
	CrossRows(ctx context.Context, points *kernel.Inputs, of []int) ([][]float64, error)
}

// variances returns the diagonal of K_f in some rows, all if of is nil.
func variances(k Covariance, of []int) []float64 {
	in, f := k.Inputs(), k.Function()
	if of == nil {
		of = make([]int, in.Len())
		for i := range of {
			of[i] = i
		}
	}
	d := make([]float64, len(of))
	for q, i := range of {
		d[q] = f.Variance(in.Row(i))
	}
	return d
}
