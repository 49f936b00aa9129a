package precond

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// regularization is what is added relative to the noise (Cutajar et al. 2016).
const regularization = 100

// regularized is P = K + δD, D the noise, which is better conditioned than K (Srinivasan et
// al. 2014; Cutajar et al. 2016, section 3.5, whose D is 1). Where the noise differs between rows
// a multiple of 1 would drown the rows with little. Each inner iteration costs a product with K,
// computed here.
func regularized(_ context.Context, k Covariance, _ int) (func() solve.Operator, int, error) {
	in, f, budget := k.Inputs(), k.Function(), k.Budget()
	noise := slices.Clone(k.Noise())
	n, ratio := float64(len(noise)), make([]float64, len(noise))
	for i, d := range noise {
		ratio[i] = d / noise[0] // exactly 1 where all are equal
	}
	floats.AddScaled(noise, regularization*floats.Sum(noise)/n/(floats.Sum(ratio)/n), ratio)
	return func() solve.Operator {
		own := cmvp.New(in, f.Covariance(), budget)
		own.Set(f.Theta(), noise)
		return own
	}, 0, nil
}
