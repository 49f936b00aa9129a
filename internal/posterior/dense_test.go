package posterior

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustPrior(t testing.TB, s string, r Role) Prior {
	t.Helper()
	p, err := ParsePrior(s, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

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
	priors := Priors{mustPrior(t, "gamma(1,1)", Variance), mustPrior(t, "invgamma(2,1)", Rate), mustPrior(t, "halfnormal(1)", Variance)}
	return NewProblem(kernel.Model{Family: f, Dim: d, ARD: ard}, priors, cmvp.NewInputs(n, d, x), y)
}

func testPsi(m kernel.Model) []float64 {
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

// Every prior integrates to one over ψ, and its derivative is right.
func TestPriors(t *testing.T) {
	for _, role := range []Role{Variance, Rate} {
		for _, s := range []string{"gamma(1,1)", "gamma(2.5,0.3)", "invgamma(3,2)", "lognormal(-1,0.7)", "halfnormal(2)", "pc(1.5,0.1)"} {
			p := mustPrior(t, s, role)
			if p.String() != s {
				t.Errorf("%s prints as %s", s, p)
			}
			mass := quad.Fixed(func(psi float64) float64 {
				v, _ := p.LogDensity(psi)
				return math.Exp(v)
			}, -100, 60, 6000, nil, 0)
			if math.Abs(mass-1) > 1e-6 {
				t.Errorf("%s role %d integrates to %v", s, role, mass)
			}
			for _, psi := range []float64{-2, 0, 1.3} {
				_, got := p.LogDensity(psi)
				want := fd.Derivative(func(x float64) float64 { v, _ := p.LogDensity(x); return v }, psi, &fd.Settings{Formula: fd.Central})
				if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
					t.Errorf("%s: derivative %v at %v, finite differences %v", s, got, psi, want)
				}
			}
		}
	}
	// The PC priors mean what they say.
	p := mustPrior(t, "pc(1.5,0.1)", Variance)
	tail := quad.Fixed(func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }, 2*math.Log(1.5), 40, 2000, nil, 0)
	if math.Abs(tail-0.1) > 1e-6 {
		t.Errorf("P(sd > 1.5) = %v, want 0.1", tail)
	}
	p = mustPrior(t, "pc(1.5,0.1)", Rate)
	tail = quad.Fixed(func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }, math.Log(1/(2*1.5*1.5)), 60, 4000, nil, 0)
	if math.Abs(tail-0.1) > 1e-6 {
		t.Errorf("P(ℓ < 1.5) = %v, want 0.1", tail)
	}
}

func TestBadPriors(t *testing.T) {
	for text, want := range map[string]string{
		"gamma":            `prior "gamma": want a form such as gamma(1,1)`,
		"gamma(1)":         `prior "gamma(1)": want gamma(shape,rate)`,
		"gamma(1,x)":       `prior "gamma(1,x)": rate is "x", not a finite number`,
		"gamma(1,-2)":      `prior "gamma(1,-2)": rate is -2, but must be positive`,
		"pc(1,2)":          `prior "pc(1,2)": alpha is 2, but must be a probability below 1`,
		"lognormal(NaN,1)": `prior "lognormal(NaN,1)": mu is "NaN", not a finite number`,
	} {
		if _, err := ParsePrior(text, Variance); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if _, err := ParsePrior("gama(1,1)", Rate); err == nil || !strings.Contains(err.Error(), "gamma(shape,rate), invgamma") {
		t.Errorf("got %v", err)
	}
	if fmt.Sprint(mustPrior(t, " gamma( 1 , 2 ) ", Rate)) != "gamma(1,2)" {
		t.Error("spaces are not ignored")
	}
}
