package posterior

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// The likelihood of a latent function with an offset is that of their sum: its density, and its auxiliary variables and
// pseudo-targets, of which the offset is taken off. A subset keeps its own rows' offsets.
func TestOffset(t *testing.T) {
	const n = 6
	x := make([]float64, n)
	y, f, offset, sum := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		x[i], y[i], f[i], offset[i] = float64(i), float64(i*i%5), math.Sin(float64(i)), float64(i)/2-1
		sum[i] = f[i] + offset[i]
	}
	c := kernel.Single(kernel.RBF, 1, false)
	m := NewModel(c, likelihood.NegativeBinomial{}, func(p param.Param) param.Prior {
		prior, err := param.ParsePrior("gamma(1,1)", p.Role)
		if err != nil {
			t.Fatal(err)
		}
		return prior
	})
	with, without := NewProblem(m, kernel.NewInputs(n, 1, x), y), NewProblem(m, kernel.NewInputs(n, 1, x), y)
	with.Offset = offset
	psi := []float64{0.1, -0.2, 0.3}
	if a, b := with.LogDensityGiven(psi, f), without.LogDensityGiven(psi, sum); a != b {
		t.Errorf("densities %v and %v", a, b)
	}
	check := func(a, b *Problem) {
		t.Helper()
		if !slices.Equal(a.State, b.State) {
			t.Error("auxiliary variables differ")
		}
		za, zb := a.Targets(), b.Targets()
		for i := range za {
			if za[i] != zb[i]-a.Offset[i] {
				t.Errorf("pseudo-target %d: %v and %v", i, za[i], zb[i])
			}
		}
	}
	check(with.Expect(psi, f), without.Expect(psi, sum))
	with.Refresh(rand.New(rand.NewPCG(1, 2)), psi, f)
	without.Refresh(rand.New(rand.NewPCG(1, 2)), psi, sum)
	check(with, without)
	check(with.Subset([]int{4, 1}), without.Subset([]int{4, 1}))
	check(with.WithState(), without)
}
