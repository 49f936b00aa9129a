package posterior

import (
	"math"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/diff/fd"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testProblem is a smooth function of the inputs with noise.
func testProblem(t testing.TB, f kernel.Family, n, d int, ard bool) *Problem {
	r := random.Key{Seed: uint64(n + d)}.Stream(random.Synthetic, 0)
	x := make([]float64, n*d)
	random.Normal(r, x)
	y := make([]float64, n)
	for i := range y {
		y[i] = 0.3 * r.NormFloat64()
		for k := range d {
			y[i] += math.Sin(x[i*d+k] * (1 + 0.3*float64(k)))
		}
	}
	return NewProblem(testModel(t, kernel.Single(f, d, ard)), kernel.NewInputs(n, d, x), y)
}

func testModel(t testing.TB, c *kernel.Covariance) Model {
	return NewModel(c, likelihood.Gaussian{}, func(p param.Param) param.Prior {
		prior, err := param.ParsePrior(map[param.Role]string{param.Variance: "gamma(1,1)", param.Rate: "invgamma(2,1)", param.Noise: "halfnormal(1)"}[p.Role], p.Role)
		if err != nil {
			t.Fatal(err)
		}
		return prior
	})
}

func testPsi(m Model) []float64 {
	psi := make([]float64, m.NumParams())
	for i := range psi {
		psi[i] = 0.3 - 0.2*float64(i)
	}
	psi[len(psi)-1] = -1.5
	return psi
}

func TestDenseGradientAgainstFiniteDifferences(t *testing.T) {
	for _, f := range kernel.Families() {
		for _, ard := range []bool{false, true} {
			p := testProblem(t, f, 60, 3, ard)
			d := NewDense(p, parallel.NewBudget(2))
			psi := testPsi(p.Model)
			got, ok := d.Gradient(psi)
			if !ok {
				t.Fatal("singular")
			}
			want := fd.Gradient(nil, d.LogDensity, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5})
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-5*(1+math.Abs(want[i])) {
					t.Errorf("%v ard=%v: g[%d] = %v, finite differences %v", f, ard, i, got[i], want[i])
				}
			}
			info, ok := d.Information(psi)
			if !ok {
				t.Fatal("singular")
			}
			for i := range want {
				step := 1e-4
				x := append([]float64(nil), psi...)
				x[i] += step
				up := d.LogDensity(x)
				x[i] -= 2 * step
				down := d.LogDensity(x)
				second := (up - 2*d.LogDensity(psi) + down) / (step * step)
				if math.Abs(info.At(i, i)+second) > 1e-3*(1+math.Abs(second)) {
					t.Errorf("%v ard=%v: information[%d,%d] = %v, second differences %v", f, ard, i, i, info.At(i, i), -second)
				}
			}
		}
	}
}

func TestDenseAtImpossibleParameters(t *testing.T) {
	p := testProblem(t, kernel.RBF, 20, 2, false)
	d := NewDense(p, parallel.NewBudget(1))
	if v := d.LogDensity([]float64{800, 0, 0}); !math.IsInf(v, -1) {
		t.Errorf("log density %v at σ = e^800", v)
	}
	if _, ok := d.Gradient([]float64{800, 0, 0}); ok {
		t.Error("gradient at σ = e^800")
	}
}
