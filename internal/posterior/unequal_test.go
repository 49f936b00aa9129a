package posterior

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/diff/fd"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// unequal returns problems whose noise differs between rows, in standard deviations by a factor of a
// hundred: known of each row, beside a parameter and alone, weighted, by levels, and all of these.
func unequal(t testing.TB, n, d int) map[string]*Problem {
	t.Helper()
	plain := testProblem(t, kernel.Matern32, n, d, true)
	var rows likelihood.Rows
	for i := range n {
		sd := []float64{0.01, 0.1, 1}[i%3]
		rows.Known, rows.Weight, rows.Level = append(rows.Known, sd*sd), append(rows.Weight, float64(1+i%10)), append(rows.Level, i%2)
	}
	one, two := []string{""}, []string{"s=a", "s=b"}
	out := map[string]*Problem{}
	for name, l := range map[string]likelihood.Likelihood{
		"known":       likelihood.NewUnequal(nil, true).Of(likelihood.Rows{Known: rows.Known}),
		"known and λ": likelihood.NewUnequal(one, true).Of(likelihood.Rows{Known: rows.Known}),
		"weights":     likelihood.NewUnequal(one, false).Of(likelihood.Rows{Weight: rows.Weight}),
		"levels":      likelihood.NewUnequal(two, false).Of(likelihood.Rows{Level: rows.Level}),
		"all":         likelihood.NewUnequal(two, true).Of(rows),
	} {
		prior, err := param.ParsePrior("lognormal(-1,1)", param.Variance)
		if err != nil {
			t.Fatal(err)
		}
		m := NewModel(plain.Covariance, l, func(param.Param) param.Prior { return prior })
		out[name] = NewProblem(m, plain.Inputs, plain.Y)
	}
	return out
}

// The oracle's gradient is that of differences, the estimator's is the oracle's for every kind of probe,
// and the stored evidence's, too; so of a subset of the rows.
func TestUnequalNoise(t *testing.T) {
	rows := []int{3, 4, 7, 11, 12, 20, 21, 30, 41, 42, 43, 44, 50, 51, 52, 55, 56, 57, 58, 59}
	for name, whole := range unequal(t, 60, 2) {
		for _, p := range []*Problem{whole, whole.Subset(rows)} {
			n := len(p.Y)
			d := NewDense(p, parallel.NewBudget(2))
			psi := make([]float64, p.NumParams())
			for i := range psi {
				psi[i] = 0.3 - 0.4*float64(i)
			}
			want, ok := d.Gradient(psi)
			if !ok {
				t.Fatal("singular")
			}
			for i, g := range fd.Gradient(nil, d.LogDensity, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5}) {
				if math.Abs(g-want[i]) > 1e-5*(1+math.Abs(g)) {
					t.Errorf("%s, n=%d: derivative by %s is %v, differences %v", name, n, p.Params[i].Name(), want[i], g)
				}
			}
			_, prior := p.LogPrior(psi)
			e, err := NewStored(p, parallel.NewBudget(2)).At(t.Context(), psi, true)
			if err != nil || e == nil {
				t.Fatal(e, err)
			}
			for i := range want {
				if got := prior[i] - 0.5*(e.LogDetGrad[i]+e.QuadGrad[i]); math.Abs(got-want[i]) > 1e-8*(1+math.Abs(want[i])) {
					t.Errorf("%s, n=%d: derivative of the stored evidence by %s is %v, want %v", name, n, p.Params[i].Name(), got, want[i])
				}
			}
			for _, kind := range []ProbeKind{Whitened, Rademacher, Pathwise} {
				e := newTestEstimator(t, p, psi, kind, nil, 1)
				e.basis()
				g, err := e.Gradient(t.Context(), psi, random.Key{Seed: 1}, n, false)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if math.Abs(g.Value[i]-want[i]) > 1e-5*math.Abs(want[i])+1e-7 {
						t.Errorf("%s, n=%d probes=%d: g of %s is %v, want %v", name, n, kind, p.Params[i].Name(), g.Value[i], want[i])
					}
				}
			}
		}
	}
}

// With every preconditioner solves with noise of which some rows have a hundred times another's take hardly
// more iterations than where all have the least of it. Inner solves, which are inexact, take some more.
func TestPreconditionersOfUnequalNoise(t *testing.T) {
	const n = 250
	p := unequal(t, n, 2)["known and λ"]
	psi := []float64{0, -1, -1, math.Log(1e-3)}
	theta, noise := p.At(psi)
	op := cmvp.New(p.Inputs, p.Covariance, parallel.NewBudget(2))
	for _, kind := range append(precond.Kinds(), precond.InnerKinds()...) {
		iterations := func(noise []float64) int {
			op.Set(theta, noise)
			pre, err := precond.BuildAny(t.Context(), kind, op, n/10, random.Key{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			s := solve.New(op, solve.Options{Tolerance: 1e-6, Precond: pre, Flexible: !precond.HasFactor(kind)})
			rep, err := s.Solve(t.Context(), solve.Columns(n, 1), [][]float64{p.Y})
			if err != nil || rep.Unconverged > 0 {
				t.Fatalf("%s: %+v, %v", kind, rep, err)
			}
			return rep.Iterations[0]
		}
		least := iterations([]float64{noise[0]})
		unequal := iterations(noise)
		t.Logf("%s: %d iterations, %d where all have the least noise", kind, unequal, least)
		if unequal > least+least/4+2 {
			t.Errorf("%s: %d iterations, %d where all rows have the least noise", kind, unequal, least)
		}
	}
}
