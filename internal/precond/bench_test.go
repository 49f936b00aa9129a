package precond

import (
	"testing"

	"gonum.org/v1/gonum/blas"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Probes are made with F and F⁻ᵀ: two triangular systems of order m for each.
// "mat" is what gonum's SolveVec takes for one of them, with its condition number.
func BenchmarkRoots(b *testing.B) {
	const rank, cols = 1000, 6
	op := operator(4000, 8, 2, kernel.RBF, 1, 0.1)
	low, err := Build(b.Context(), "rpcholesky", op, rank, random.Key{})
	if err != nil {
		b.Fatal(err)
	}
	v, u := solve.Columns(op.Len(), cols), solve.Columns(op.Len(), cols)
	for c := range v {
		random.Normal(random.Key{}.Stream(random.Probe, c), v[c])
	}
	b.Run("F and F⁻ᵀ", func(b *testing.B) {
		for range b.N {
			low.MulRoot(u, v)
			low.SolveRootTrans(u, v)
		}
	})
	w := solve.Columns(low.Rank(), cols)
	b.Run("triangular", func(b *testing.B) {
		for range b.N {
			low.solveTri(0, blas.NoTrans, w)
		}
	})
}
