package precond

import (
	"errors"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// nystromJitter is added to the diagonal of K_UU, relative to σ, so that
// repeated rows do not make it singular.
const nystromJitter = 1e-9

// nystrom is P = D + K_XU K_UU⁻¹ K_UX with U a random subset of the rows
// (Williams and Seeger 2001; Cutajar et al. 2016, section 3.1).
func nystrom(op *cmvp.Operator, rank int, key random.Key) ([]float64, [][]float64, error) {
	subset := key.Stream(random.Pivot, 0).Perm(op.Len())[:rank]
	slices.Sort(subset)
	return nystromOn(op, subset)
}

// nystromOn is nystrom with the subset given.
func nystromOn(op *cmvp.Operator, subset []int) ([]float64, [][]float64, error) {
	rank := len(subset)
	rows := op.CrossMatrix(op.Inputs().Select(subset)) // K_UX
	kuu := mat.NewSymDense(rank, nil)
	for i := range rank {
		for j := i; j < rank; j++ {
			kuu.SetSym(i, j, rows[i][subset[j]])
		}
		kuu.SetSym(i, i, kuu.At(i, i)+nystromJitter*op.Params().Sigma)
	}
	var chol mat.Cholesky
	if !chol.Factorize(kuu) {
		return nil, nil, errors.New("the covariance of the subset is numerically singular")
	}
	l := mat.NewTriDense(rank, mat.Lower, nil)
	chol.LTo(l)

	// Lᵀ = chol⁻¹·K_UX by forward substitution, a range of rows of L at a time.
	const chunk = 1024
	op.Budget().Chunks(op.Len(), chunk, func(_, lo, hi int) {
		for i := range rank {
			ri := rows[i][lo:hi]
			for j := range i {
				lij := l.At(i, j)
				for q, x := range rows[j][lo:hi] {
					ri[q] -= lij * x
				}
			}
			for q := range ri {
				ri[q] /= l.At(i, i)
			}
		}
	})
	return slices.Clone(op.Noise()), rows, nil
}
