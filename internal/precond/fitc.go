package precond

import (
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// fitc is Nyström's Q with the diagonal of K: P = diag(K−Q) + Q, which takes
// the noise in (Snelson and Ghahramani 2006; Cutajar et al. 2016, section 3.1).
func fitc(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	cols := subsetColumns(op, rank, key)
	left := make([]float64, op.Len()) // diag(K_f − Q)
	for i := range left {
		left[i] = op.Params().Sigma
	}
	for _, c := range cols {
		for i, x := range c {
			left[i] -= x * x
		}
	}
	d := slices.Clone(op.Noise())
	for i, x := range left {
		d[i] += max(0, x) // below zero by rounding
	}
	return parts{newDiagonal(d, op.Budget()), cols}, nil
}
