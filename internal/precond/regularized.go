package precond

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// regularization is δ relative to the mean noise (Cutajar et al. 2016).
const regularization = 100

// regularized is P = K + δI, which is better conditioned than K (Srinivasan et
// al. 2014; Cutajar et al. 2016, section 3.5). Each inner iteration costs a
// product with K, computed here.
func regularized(_ context.Context, k Covariance, _ int) (func() solve.Operator, int, error) {
	in, f, budget := k.Inputs(), k.Function(), k.Budget()
	noise := slices.Clone(k.Noise())
	floats.AddConst(regularization*floats.Sum(noise)/float64(len(noise)), noise)
	return func() solve.Operator {
		own := cmvp.New(in, f.Covariance(), budget)
		own.Set(f.Theta(), noise)
		return own
	}, 0, nil
}
