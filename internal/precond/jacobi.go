package precond

import (
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// blockJacobi is P = bldiag(K) with blocks of rank rows near each other
// (Cutajar et al. 2016, section 3.4).
func blockJacobi(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	b, err := newBlocks(op, Clusters(op.Inputs(), op.Params(), rank, key, op.Budget()), nil)
	return parts{base: b}, err
}
