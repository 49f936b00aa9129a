package fit

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// Under Gaussian noise batches come to the maximum of SGPR's bound, to the same bits on any number of cores; where inducing inputs move,
// higher.
func TestStochastic(t *testing.T) {
	p, ctx := sparseProblem(t, 400), context.Background()
	z := func() *kernel.Inputs { return p.Inputs.Select([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) }
	start := []float64{0, 0, -1}
	stochastic := func(cores, rows int, move bool, seed uint64) *Result {
		t.Helper()
		b := parallel.NewBudget(cores)
		if err := b.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		r, err := Stochastic(ctx, p, posterior.NewSparse(p, sparse.SVGP, z(), b), rows, move, seed, start, 400, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want, err := Sparse(ctx, p, posterior.NewSparse(p, sparse.SGPR, z(), parallel.NewBudget(1)), false, parallel.NewBudget(1), 1, [][]float64{start}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := stochastic(1, 40, false, 3)
	if !got.Converged || got.Value < want.Value-0.5 || got.Value > want.Value+1e-6 || len(got.Trace) != 400 {
		t.Errorf("the bound is %v, %v standard errors from its maximum; that is %v", got.Value, got.Distance, want.Value)
	}
	if all := stochastic(1, 1000, false, 3); all.Value < want.Value-0.1 {
		t.Errorf("with all rows the bound is %v, at most %v", all.Value, want.Value)
	}
	if again := stochastic(3, 40, false, 3); !slices.Equal(again.Psi, got.Psi) || math.Float64bits(again.Value) != math.Float64bits(got.Value) {
		t.Errorf("on three cores ψ = %v, on one %v", again.Psi, got.Psi)
	}
	if other := stochastic(1, 40, false, 4); slices.Equal(other.Psi, got.Psi) {
		t.Error("another seed draws the same batches")
	}
	if moved := stochastic(1, 40, true, 3); !(moved.Value > got.Value) || len(moved.Extra) != 24 {
		t.Errorf("with moved inducing inputs the bound is %v, with fixed ones %v", moved.Value, got.Value)
	}
}
