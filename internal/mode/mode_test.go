package mode

import (
	"context"
	"errors"
	"math"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func problem(t *testing.T, n, d int, ard bool) *posterior.Problem {
	t.Helper()
	r := random.Key{Seed: 3}.Stream(random.Synthetic, 0)
	x, y := make([]float64, n*d), make([]float64, n)
	random.Normal(r, x)
	for i := range y {
		y[i] = math.Sin(1.5*x[i*d]) + 0.3*r.NormFloat64()
	}
	prior, err := param.ParsePrior("gamma(1,1)", param.Variance)
	if err != nil {
		t.Fatal(err)
	}
	m := posterior.NewModel(kernel.Single(kernel.RBF, d, ard), likelihood.Gaussian{}, func(param.Param) param.Prior { return prior })
	return posterior.NewProblem(m, kernel.NewInputs(n, d, x), y)
}

// Starts know parameters by their roles: terms share a variance of one, and the
// inputs of a term a squared distance.
func TestStartsByRole(t *testing.T) {
	for _, x := range []struct {
		c    *kernel.Covariance
		want []float64
	}{
		{kernel.Single(kernel.RBF, 4, false), []float64{1, 0.125, 0.1}},
		{kernel.Single(kernel.RBF, 2, true), []float64{1, 0.25, 0.25, 0.1}},
	} {
		m := posterior.NewModel(x.c, likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
		for i, psi := range starts(m.Params)[0] {
			if math.Abs(math.Exp(psi)-x.want[i]) > 1e-15 {
				t.Errorf("%v: %s starts at %v, want %v", x.c, m.Params[i].Name(), math.Exp(psi), x.want[i])
			}
		}
	}
	a := param.Param{Term: "trend", Symbol: "sigma", Role: param.Variance}
	b := param.Param{Term: "short", Symbol: "sigma", Role: param.Variance}
	rate := func(term, index string) param.Param {
		return param.Param{Term: term, Symbol: "tau", Index: index, Role: param.Rate}
	}
	c, err := kernel.New(3, kernel.Term{Variance: a, Leaves: []kernel.Leaf{&kernel.Stationary{Family: kernel.RBF, Inputs: []int{0}, Rates: []param.Param{rate("trend", "")}}}},
		kernel.Term{Variance: b, Leaves: []kernel.Leaf{&kernel.Stationary{Family: kernel.RBF, Inputs: []int{1, 2}, Rates: []param.Param{rate("short", "y"), rate("short", "z")}}}})
	if err != nil {
		t.Fatal(err)
	}
	m := posterior.NewModel(c, likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
	want := map[string]float64{"trend.sigma": 0.5, "trend.tau": 0.5, "short.sigma": 0.5, "short.tau[y]": 0.25, "short.tau[z]": 0.25, "lambda": 0.1}
	for i, psi := range starts(m.Params)[0] {
		if name := m.Params[i].Name(); math.Abs(math.Exp(psi)-want[name]) > 1e-15 {
			t.Errorf("%s starts at %v, want %v", name, math.Exp(psi), want[name])
		}
	}
}

func TestDense(t *testing.T) {
	for _, ard := range []bool{false, true} {
		p := problem(t, 150, 2, ard)
		pt, _, err := Dense(context.Background(), p, parallel.NewBudget(2))
		if err != nil {
			t.Fatal(err)
		}
		g, _ := posterior.NewDense(p, parallel.NewBudget(2)).Gradient(pt.Psi)
		if _, dec, ok := newton(pt.Info, g); !ok || dec > 1e-6 {
			t.Errorf("ard=%v: gᵀH⁻¹g = %v at the mode", ard, dec)
		}
		theta, noise := p.At(pt.Psi)
		if sd := math.Sqrt(noise[0]); sd < 0.25 || sd > 0.36 {
			t.Errorf("ard=%v: noise sd %v, the data have 0.3", ard, sd)
		}
		if tau := theta[1:]; ard && tau[1] > 0.2*tau[0] {
			t.Errorf("τ = %v, but the second input does not matter", tau)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := Dense(ctx, problem(t, 100, 1, false), parallel.NewBudget(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A ripple on a slow wave is signal to a short length-scale and noise to a long
// one (Rasmussen and Williams 2006, figure 5.5): both modes are reported. Many
// points of one scale have one.
func TestOtherModes(t *testing.T) {
	prior, err := param.ParsePrior("gamma(1,1)", param.Variance)
	if err != nil {
		t.Fatal(err)
	}
	const n = 30
	x, y := make([]float64, n), make([]float64, n)
	for i := range x {
		u := float64(i)
		x[i] = 3.4*(u+0.4*math.Sin(7*u))/n - 1.7
		y[i] = math.Sin(1.2*x[i]) + 0.4*math.Sin(10*x[i]+0.3) + 0.05*math.Sin(1000*u)
	}
	m := posterior.NewModel(kernel.Single(kernel.RBF, 1, false), likelihood.Gaussian{}, func(param.Param) param.Prior { return prior })
	p := posterior.NewProblem(m, kernel.NewInputs(n, 1, x), y)
	best, others, err := Dense(context.Background(), p, parallel.NewBudget(1))
	if err != nil || len(others) == 0 {
		t.Fatalf("modes besides %v: %v, %v", best.Psi, others, err)
	}
	d := posterior.NewDense(p, parallel.NewBudget(1))
	for _, o := range others {
		g, ok := d.Gradient(o.Psi)
		if diff := d.LogDensity(best.Psi) - d.LogDensity(o.Psi); !ok || floats.Norm(g, 2) > 1e-3 || diff < 0 || math.Abs(diff-o.Below) > 1e-9 {
			t.Errorf("at %v: gradient %v, %g below, reported %g", o.Psi, g, diff, o.Below)
		}
	}
	if _, others, err := Dense(context.Background(), problem(t, 150, 2, false), parallel.NewBudget(2)); err != nil || len(others) != 0 {
		t.Errorf("many points: %v, %v", others, err)
	}
}

// From the mode of a small subset, gradients alone lead to the mode of all
// rows, and differences of them to its information.
func TestClimbAndInformation(t *testing.T) {
	ctx := context.Background()
	p := problem(t, 300, 2, false)
	budget := parallel.NewBudget(2)
	want, _, err := Dense(ctx, p, budget)
	if err != nil {
		t.Fatal(err)
	}
	rows := Subset(300, 40, random.Key{Seed: 1})
	start, _, err := Dense(ctx, p.Subset(rows), budget)
	if err != nil {
		t.Fatal(err)
	}
	start.Info.ScaleSym(300.0/40, start.Info)
	calls := 0
	d := posterior.NewDense(p, budget)
	grad := func(ctx context.Context, psi []float64) ([]float64, error) {
		calls++
		g, ok := d.Gradient(psi)
		if !ok {
			return nil, errors.New("singular")
		}
		return g, ctx.Err()
	}
	pt, done, err := Climb(ctx, grad, start, 0.01, 100, 30)
	if err != nil || !done {
		t.Fatal(done, err)
	}
	for i, x := range pt.Psi {
		if sd := math.Sqrt(1 / want.Info.At(i, i)); math.Abs(x-want.Psi[i]) > 0.05*sd+1e-3 {
			t.Errorf("ψ[%d] = %v, want %v (sd %v)", i, x, want.Psi[i], sd)
		}
	}
	if calls > 25 {
		t.Errorf("%d gradients", calls)
	}
	info, asym, err := Information(ctx, grad, pt.Psi, pt.Info)
	if err != nil {
		t.Fatal(err)
	}
	var diff mat.Dense
	diff.Sub(info, want.Info)
	if e := mat.Norm(&diff, 2) / mat.Norm(want.Info, 2); e > 0.02 || asym > 0.01 {
		t.Errorf("information off by %v, asymmetry %v", e, asym)
	}

	// A short reach stops early and says so.
	pt, done, err = Climb(ctx, grad, &Point{Psi: []float64{2, 2, 2}, Info: want.Info}, 0.01, 0.5, 30)
	if err != nil || done || floats.Distance(pt.Psi, []float64{2, 2, 2}, math.Inf(1)) > 0.5+maxMove {
		t.Errorf("%v %v %v", pt, done, err)
	}
}

func TestSubset(t *testing.T) {
	a, b := Subset(100, 10, random.Key{Seed: 1}), Subset(100, 10, random.Key{Seed: 2})
	if len(a) != 10 || floats.Equal([]float64{float64(a[0]), float64(a[1])}, []float64{float64(b[0]), float64(b[1])}) {
		t.Errorf("%v %v", a, b)
	}
	for i := 1; i < len(a); i++ {
		if a[i] <= a[i-1] {
			t.Errorf("not increasing: %v", a)
		}
	}
	if s := Subset(5, 10, random.Key{}); len(s) != 5 {
		t.Errorf("%v", s)
	}
}
