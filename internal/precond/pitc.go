package precond

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// pitc is Nyström's Q with the diagonal blocks of K: P = bldiag(K−Q) + Q
// (Quiñonero-Candela and Rasmussen 2005; Cutajar et al. 2016, section 3.1). A
// block is rows that are near each other, as many as the rank.
func pitc(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	f, err := subset(ctx, k, rank, key)
	if err != nil {
		return parts{}, err
	}
	cols := f.cols()
	f.l = nil // as large
	rows, err := Clusters(ctx, k.Inputs(), k.Function(), rank, key, k.Budget())
	if err != nil {
		return parts{}, err
	}
	b, err := newBlocks(ctx, k, rows, cols)
	return parts{base: b, cols: cols}, err
}
