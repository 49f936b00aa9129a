package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

func sparseProblem(t *testing.T, n int) *posterior.Problem {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	x, y := make([]float64, 2*n), make([]float64, n)
	for i := range y {
		x[2*i], x[2*i+1] = r.NormFloat64(), r.NormFloat64()
		y[i] = math.Sin(2*x[2*i])*x[2*i+1] + 0.2*r.NormFloat64()
	}
	m := posterior.NewModel(kernel.Single(kernel.RBF, 2, false), likelihood.Gaussian{}, func(p param.Param) param.Prior {
		prior, err := param.ParsePrior("gamma(1,1)", p.Role)
		if err != nil {
			t.Fatal(err)
		}
		return prior
	})
	return posterior.NewProblem(m, kernel.NewInputs(n, 2, x), y)
}

// With all rows as inducing inputs the estimate is the exact one; with a few the bound is below, and higher where they
// have moved.
func TestSparse(t *testing.T) {
	ctx, b, p := context.Background(), parallel.NewBudget(1), sparseProblem(t, 60)
	starts := [][]float64{{0, 0, -1}}
	exact, err := Exact(ctx, p, b, 1, starts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Sparse(ctx, p, posterior.NewSparse(p, sparse.SGPR, p.Inputs, b), false, b, 1, starts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range exact.Psi {
		if math.Abs(all.Psi[i]-exact.Psi[i]) > 0.01*math.Sqrt(exact.Cov.At(i, i)) || math.Abs(all.Cov.At(i, i)/exact.Cov.At(i, i)-1) > 0.01 {
			t.Errorf("ψ[%d] = %v with variance %v, exactly %v with %v", i, all.Psi[i], all.Cov.At(i, i), exact.Psi[i], exact.Cov.At(i, i))
		}
	}
	few := func(move bool) *Result {
		r, err := Sparse(ctx, p, posterior.NewSparse(p, sparse.SGPR, p.Inputs.Select([]int{0, 1, 2, 3, 4, 5}), b), move, b, 1, starts, Options{})
		if err != nil || !r.Converged {
			t.Fatalf("%v: %+v", err, r)
		}
		return r
	}
	fixed, moved := few(false), few(true)
	if len(fixed.Extra) != 0 || len(moved.Extra) != 12 {
		t.Errorf("inducing inputs %v and %v", fixed.Extra, moved.Extra)
	}
	if !(fixed.Value < moved.Value && moved.Value < exact.Value) {
		t.Errorf("log densities %v of fixed inducing inputs, %v of moved ones, %v exactly", fixed.Value, moved.Value, exact.Value)
	}
}
