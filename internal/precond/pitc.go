package precond

import (
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// pitc is Nyström's Q with the diagonal blocks of K: P = bldiag(K−Q) + Q
// (Quiñonero-Candela and Rasmussen 2005; Cutajar et al. 2016, section 3.1). A
// block is rows that are near each other, as many as the rank.
func pitc(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	cols := subsetColumns(op, rank, key)
	b, err := newBlocks(op, Clusters(op.Inputs(), op.Params(), rank, key, op.Budget()), cols)
	return parts{b, cols}, err
}
