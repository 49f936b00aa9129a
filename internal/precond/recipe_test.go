package precond

import (
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// arrangedOperator is an operator whose inputs are arranged, with pairs of rows that are passed over.
func arrangedOperator(t *testing.T, n, cores int) *cmvp.Operator {
	t.Helper()
	x := make([]float64, 2*n)
	random.Normal(random.Key{Seed: 5}.Stream(random.Synthetic, 0), x)
	for i := range x {
		x[i] *= 20
	}
	in := cmvp.Arrange(kernel.NewInputs(n, 2, x), []int{0, 1})
	op := cmvp.New(in, kernel.Single(kernel.RBF, 2, false), parallel.NewBudget(cores))
	op.Set([]float64{1.5, 2}, []float64{0.1})
	if op.Evaluated(cmvp.Double) == int64(n)*int64(n) {
		t.Fatal("nothing is passed over")
	}
	return op
}

// Any rows of the factor are computed from its recipe to the last bit, wherever they begin, on any number of cores.
func TestRowsByRecipe(t *testing.T) {
	for name, op := range map[string]func(cores int) *cmvp.Operator{
		"rbf":       func(cores int) *cmvp.Operator { return operator(1337, 3, cores, kernel.RBF, 1, 0.05) },
		"many":      func(cores int) *cmvp.Operator { return operator(850, 40, cores, kernel.Matern32, 5, 0.05) },
		"composite": func(cores int) *cmvp.Operator { return composite(t, 900, cores) },
		"lines":     func(cores int) *cmvp.Operator { return withLines(t, 700, cores) },
		"arranged":  func(cores int) *cmvp.Operator { return arrangedOperator(t, 2500, cores) },
	} {
		for _, kind := range []string{"rpcholesky", "nystrom"} {
			for _, rank := range []int{1, 5, 290, 410} {
				p, err := Build(t.Context(), kind, op(2), rank, random.Key{Seed: 3})
				if err != nil {
					t.Fatal(err)
				}
				if got := p.recipe.Rank(); got != p.Own() {
					t.Fatalf("%s, %s: a recipe of rank %d for %d columns", name, kind, got, p.Own())
				}
				testRows(t, name+" "+kind, op(1), p)
			}
		}
	}
}

func testRows(t *testing.T, name string, k *cmvp.Operator, p *LowRank) {
	t.Helper()
	rows, err := NewRows(k)
	if err != nil {
		t.Fatal(err)
	}
	blocks := p.recipe.Blocks
	if some := (len(blocks) + 1) / 2; rows.Add(t.Context(), blocks[:some]...) != nil || rows.Add(t.Context(), blocks[some:]...) != nil || rows.Rank() != p.Own() {
		t.Fatalf("%s: %d pivots", name, rows.Rank())
	}
	n, want, got := k.Len(), make([]float64, p.Rank()), make([]float64, p.Rank())
	for _, r := range [][2]int{{0, n}, {0, 1}, {n - 1, n}, {3, 200}, {256, 512}, {255, 513}} {
		of := make([]int, r[1]-r[0])
		for i := range of {
			of[i] = r[0] + i
		}
		l, err := rows.At(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := l.Dims(); a != r[1]-r[0] || b != p.Rank() {
			t.Fatalf("%s: %d×%d", name, a, b)
		}
		for i := r[0]; i < r[1]; i++ {
			l.Row(got, i-r[0])
			p.l.Row(want, i)
			for j := range want {
				if math.Float64bits(got[j]) != math.Float64bits(want[j]) {
					t.Fatalf("%s, rank %d: element (%d,%d) among the rows %v is %v, want %v", name, p.Rank(), i, j, r, got[j], want[j])
				}
			}
		}
	}
}

// Preconditioners whose B is not the noise, or whose columns are no pivots', have no recipe, and neither do
// the first columns of one.
func TestWhoHasARecipe(t *testing.T) {
	op := operator(400, 2, 1, kernel.RBF, 1, 0.05)
	for _, kind := range Kinds() {
		p, err := Build(t.Context(), kind, op, 30, random.Key{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		if has := p.recipe != nil; has != (kind == "rpcholesky" || kind == "nystrom") {
			t.Errorf("%s has a recipe: %v", kind, has)
		}
	}
	p, err := Build(t.Context(), "rpcholesky", op, 30, random.Key{Seed: 3})
	if err != nil || p.First(10).recipe != nil {
		t.Errorf("the first columns: %v, %v", p.First(10).recipe, err)
	}
}
