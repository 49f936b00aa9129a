package posterior

import (
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// The quadratic form lies between what is returned and that with its bound, which is within
// the tolerance or comes to enough, with a basis and without, near it and far away; with a
// basis nearby next to no iterations are needed.
func TestQuadratic(t *testing.T) {
	b := parallel.NewBudget(2)
	p := testProblem(t, kernel.Families()[0], 120, 2, false)
	psi := testPsi(p.Model)
	op := cmvp.New(p.Inputs, p.Covariance, b)
	op.Set(p.At(psi))
	pre, err := precond.Build(t.Context(), "rpcholesky", op, 30, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	stored := NewStored(p, b)
	moved := func(by float64) []float64 {
		x := append([]float64(nil), psi...)
		for i := range x {
			x[i] += by * float64(1-2*(i%2))
		}
		return x
	}
	basis := [][]float64{moved(-0.2), moved(-0.1), psi, moved(0.1), moved(0.2)}
	for _, c := range []struct {
		name      string
		basis     [][]float64
		psi       []float64
		tolerance float64
		enough    float64
		solves    int
	}{
		{"no basis", nil, psi, 1e-4, 1e300, 1},
		{"nearby", basis, moved(0.05), 1e-2, 1e300, 0},
		{"far", basis, moved(2), 1e-4, 1e300, 1},
		{"far and enough", basis, moved(2), 1e-8, 1, 0},
	} {
		want, err := stored.At(t.Context(), c.psi, false)
		if err != nil || want == nil {
			t.Fatal(c.name, err)
		}
		q := NewQuadratic(p, op, solve.New(op, solve.Options{Tolerance: 1e-8, Precond: pre, Mixed: true, Budget: b}))
		solutions, err := q.Basis(t.Context(), c.basis)
		if n := len(q.Report().Iterations); err != nil || n != len(c.basis) {
			t.Fatal(c.name, n, err)
		}
		value, bound, err := q.At(t.Context(), c.psi, solutions, c.tolerance, c.enough)
		if err != nil {
			t.Fatal(err)
		}
		if rounding := 1e-9 * want.Quad; want.Quad < value-rounding || want.Quad > value+bound+rounding {
			t.Errorf("%s: %v is not within %v and %v more", c.name, want.Quad, value, bound)
		}
		if !(bound <= c.tolerance*1.01 || value >= c.enough) {
			t.Errorf("%s: the bound is %v, the value %v", c.name, bound, value)
		}
		if n := len(q.Report().Iterations); n < c.solves || c.solves == 0 && n > 0 {
			t.Errorf("%s: %d solves", c.name, n)
		}
		if math.IsNaN(value) {
			t.Errorf("%s: %v", c.name, value)
		}
	}
}
