package precond

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// blockJacobi is P = bldiag(K) with blocks of rank rows near each other
// (Cutajar et al. 2016, section 3.4).
func blockJacobi(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	rows, err := Clusters(ctx, k.Inputs(), k.Function(), rank, key, k.Budget())
	if err != nil {
		return parts{}, err
	}
	b, err := newBlocks(ctx, k, rows, nil)
	return parts{base: b}, err
}
