package precond

import (
	"context"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

func trialsOf(t *testing.T, cores int, kind string, ell, lambda float64, w Work) []Trial {
	t.Helper()
	op := operator(800, 3, cores, kernel.RBF, ell, lambda)
	trials, err := Choose(context.Background(), kind, op, func() solve.Operator { return op }, w, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return trials
}

// The choice is the cheapest candidate, or one of higher rank for little more;
// it does not depend on threads; and it follows the problem.
func TestChoose(t *testing.T) {
	if testing.Short() {
		t.Skip("many factorisations")
	}
	w := Work{Solves: 1000, Columns: 9, Tolerance: 1e-6}
	long := trialsOf(t, 1, "auto", 3, 1e-3, w)
	for _, x := range long[1:] {
		if long[0].Flops > trialSlack*x.Flops {
			t.Errorf("%+v was chosen before %+v", long[0], x)
		}
	}
	if long[0].Kind == "pitc" {
		t.Errorf("%+v at a long length-scale", long[0])
	}
	if again := trialsOf(t, 3, "auto", 3, 1e-3, w); !slices.Equal(again, long) {
		t.Errorf("%+v with other threads, %+v", again, long)
	}
	if short := trialsOf(t, 2, "auto", 0.05, 1e-3, w); short[0].Kind != "pitc" {
		t.Errorf("%+v at a short length-scale", short[0])
	}
	// A preconditioner that is used once is not worth a high rank.
	often := trialsOf(t, 2, "cholesky", 0.7, 1e-3, w)
	w.Solves, w.Columns, w.Tolerance = 1, 1, 0.1
	if once := trialsOf(t, 2, "cholesky", 0.7, 1e-3, w); once[0].Kind != "cholesky" || once[0].Rank >= often[0].Rank {
		t.Errorf("%+v for one solve, %+v for many", once[0], often[0])
	}
}

// Where K is exact at θ it takes one iteration there; what counts is how many
// it takes near by.
func TestChooseLooksNearBy(t *testing.T) {
	op := operator(400, 2, 2, kernel.RBF, 2, 1e-2)
	at, err := Choose(context.Background(), "rpcholesky", op, func() solve.Operator { return op }, Work{Solves: 100, Columns: 5, Tolerance: 1e-6}, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	near := operator(400, 2, 2, kernel.RBF, 1.8, 1.1e-2)
	from, err := Choose(context.Background(), "rpcholesky", op, func() solve.Operator { return near }, Work{Solves: 100, Columns: 5, Tolerance: 1e-6}, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if at[0].Iterations > 2 || from[0].Iterations < 4 || from[0].Rank > at[0].Rank {
		t.Errorf("%+v at θ, %+v near by", at[0], from[0])
	}
}

// The iterations expected are those of a solve, within a factor of two.
func TestChooseExtrapolates(t *testing.T) {
	w := Work{Solves: 1, Columns: 1, Tolerance: 1e-6}
	if testing.Short() {
		t.Skip("solves with every rank")
	}
	op := operator(800, 3, 2, kernel.Matern32, 1, 1e-2)
	trials, err := Choose(context.Background(), "rpcholesky", op, func() solve.Operator { return op }, w, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range trials {
		p, err := Build(t.Context(), x.Kind, op, x.Rank, random.Key{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if it := iterationsWith(t, op, p, w.Tolerance); it > 2*x.Iterations || it < x.Iterations/2 {
			t.Errorf("rank %d: %v iterations, expected %v", x.Rank, it, x.Iterations)
		}
	}
}

func TestLadder(t *testing.T) {
	for n, want := range map[int][]int{10: {4, 5}, 1000: {32, 64, 127, 253, 500}, 1_000_000: {134}} {
		if got := ladder(n, 16); !slices.Equal(got, want) {
			t.Errorf("n=%d: %v, want %v", n, got, want)
		}
	}
}
