package posterior

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/diff/fd"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// Gradients in ψ are those of differences, whatever the noise; with all rows as inducing inputs value and gradient are the
// oracle's, but for its prior.
func TestSparse(t *testing.T) {
	ctx, b := context.Background(), parallel.NewBudget(1)
	problems := unequal(t, 40, 2)
	problems["one"] = testProblem(t, kernel.RBF, 40, 2, true)
	problems["one"].Offset = make([]float64, 40)
	for i := range problems["one"].Offset {
		problems["one"].Offset[i] = 0.1 * float64(i%5)
	}
	for name, p := range problems {
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.2 - 0.3*float64(i)
		}
		d := NewDense(p, b)
		prior, slope := p.LogPrior(psi)
		want, _ := d.Gradient(psi)
		for _, kind := range sparse.Kinds() {
			all := NewSparse(p, kind, p.Inputs, b)
			value, grad, err := all.At(ctx, psi)
			if err != nil {
				t.Fatal(err)
			}
			if oracle := d.LogDensity(psi) - prior; math.Abs(value-oracle) > 1e-3 {
				t.Errorf("%s, %s: %.9g with all rows, the oracle %.9g", name, kind, value, oracle)
			}
			for i, g := range grad {
				if w := want[i] - slope[i]; math.Abs(g-w) > 1e-3*(1+math.Abs(w)) {
					t.Errorf("%s, %s: derivative %d is %.9g with all rows, the oracle's %.9g", name, kind, i, g, w)
				}
			}
			some := NewSparse(p, kind, p.Inputs.Select([]int{3, 9, 17, 25, 31}), b)
			_, grad, err = some.At(ctx, psi)
			if err != nil {
				t.Fatal(err)
			}
			differences := fd.Gradient(nil, func(psi []float64) float64 { v, _, _ := some.At(ctx, psi); return v }, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5})
			for i, w := range differences {
				if math.Abs(grad[i]-w) > 1e-4*(1+math.Abs(w)) {
					t.Errorf("%s, %s: derivative %d is %.9g, differences %.9g", name, kind, i, grad[i], w)
				}
			}
		}
	}
	p := problems["one"]
	s := NewSparse(p, sparse.SGPR, p.Inputs, b)
	if v, g, err := s.At(ctx, []float64{0, 0, 0, math.NaN()}); !math.IsInf(v, -1) || g != nil || err != nil {
		t.Errorf("where there is no density: %v, %v, %v", v, g, err)
	}
}

// Gradients of the variational bound are those of differences, of the likelihood's own parameters, too; under Gaussian noise it is
// SGPR.
func TestSparseVariationalBound(t *testing.T) {
	ctx, b := context.Background(), parallel.NewBudget(1)
	plain := testProblem(t, kernel.RBF, 30, 2, false)
	counts, signs := make([]float64, 30), make([]float64, 30)
	offset := make([]float64, 30)
	for i, y := range plain.Y {
		counts[i], offset[i] = math.Round(math.Exp(max(y, -1)+0.5)), 0.1*float64(i%4)
		if y > 0 {
			signs[i] = 1
		}
	}
	problem := func(l likelihood.Likelihood, y []float64) *Problem {
		prior, err := param.ParsePrior("lognormal(0,1)", param.Variance)
		if err != nil {
			t.Fatal(err)
		}
		return NewProblem(NewModel(plain.Covariance, l, func(param.Param) param.Prior { return prior }), plain.Inputs, y)
	}
	exposed := problem(likelihood.NegativeBinomial{}, counts)
	exposed.Offset = offset
	for name, p := range map[string]*Problem{
		"gaussian": plain, "logit": problem(likelihood.Bernoulli{}, signs), "probit": problem(likelihood.Probit{}, signs), "counts": exposed,
	} {
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.2 - 0.3*float64(i)
		}
		z := p.Inputs.Select([]int{3, 9, 17, 25})
		s := NewSparse(p, sparse.SVGP, z, b)
		value, grad, err := s.At(ctx, psi)
		if err != nil {
			t.Fatal(err)
		}
		if name == "gaussian" {
			if v, _, _ := NewSparse(p, sparse.SGPR, z, b).At(ctx, psi); math.Abs(v-value) > 1e-6 {
				t.Errorf("a bound of %.9g, SGPR's %.9g", value, v)
			}
		}
		differences := fd.Gradient(nil, func(psi []float64) float64 { v, _, _ := s.At(ctx, psi); return v }, psi, &fd.Settings{Formula: fd.Central, Step: 1e-3})
		for i, w := range differences {
			if math.Abs(grad[i]-w) > 2e-4*(1+math.Abs(w)) {
				t.Errorf("%s: derivative %d is %.9g, differences %.9g", name, i, grad[i], w)
			}
		}
	}
}

// The rule is exact for moments of a normal variable.
func TestHermite(t *testing.T) {
	for k, want := range map[int]float64{0: 1, 1: 0, 2: 1, 4: 3, 6: 15, 10: 945} {
		var sum float64
		for i, x := range hermite.nodes {
			sum += hermite.weights[i] * math.Pow(x, float64(k))
		}
		if math.Abs(sum-want) > 1e-9*(1+want) {
			t.Errorf("moment %d is %v, want %v", k, sum, want)
		}
	}
}
