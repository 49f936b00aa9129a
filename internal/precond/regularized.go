package precond

import (
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// regularization is δ relative to the mean noise (Cutajar et al. 2016).
const regularization = 100

// regularized is P = K + δI, which is better conditioned than K (Srinivasan et
// al. 2014; Cutajar et al. 2016, section 3.5). Each inner iteration costs a
// product with K.
func regularized(op *cmvp.Operator, _ int) (func() solve.Operator, int, error) {
	in, family, budget, p := op.Inputs(), op.Family(), op.Budget(), op.Params()
	p.Tau = slices.Clone(p.Tau)
	noise := slices.Clone(op.Noise())
	floats.AddConst(regularization*floats.Sum(noise)/float64(len(noise)), noise)
	return func() solve.Operator {
		k := cmvp.New(in, family, budget)
		k.SetNoise(p, noise)
		return k
	}, 0, nil
}
