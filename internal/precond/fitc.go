package precond

import (
	"context"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// fitc is Nyström's Q with the diagonal of K: P = diag(K−Q) + Q, which takes
// the noise in (Snelson and Ghahramani 2006; Cutajar et al. 2016, section 3.1).
func fitc(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	f, err := subset(ctx, k, rank, key)
	if err != nil {
		return parts{}, err
	}
	cols := f.cols()
	left := variances(k, nil) // of K_f − Q
	for _, c := range cols {
		for i, x := range c {
			left[i] -= x * x
		}
	}
	d := slices.Clone(k.Noise())
	for i, x := range left {
		d[i] += max(0, x) // below zero by rounding
	}
	return parts{base: newDiagonal(d, k.Budget()), cols: cols}, nil
}
