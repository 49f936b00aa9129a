package laplace

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

func problem(t *testing.T, l likelihood.Likelihood, n int, target func(r *rand.Rand, f float64) float64) *posterior.Problem {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 1))
	x, y := make([]float64, 2*n), make([]float64, n)
	for i := range n {
		x[2*i], x[2*i+1] = r.NormFloat64(), r.NormFloat64()
		y[i] = target(r, 1.5*math.Sin(2*x[2*i]))
	}
	prior := func(p param.Param) param.Prior {
		q, err := p.ParsePrior("gamma(2,1)")
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	c := kernel.Single(kernel.RBF, 2, true)
	if err := l.Check(y); err != nil {
		t.Fatal(err)
	}
	return posterior.NewProblem(posterior.NewModel(c, l, prior), kernel.NewInputs(n, 2, x), y)
}

// cases are likelihoods with targets that they make.
func cases() map[string]struct {
	l      likelihood.Likelihood
	target func(r *rand.Rand, f float64) float64
} {
	type c = struct {
		l      likelihood.Likelihood
		target func(r *rand.Rand, f float64) float64
	}
	class := func(r *rand.Rand, f float64) float64 {
		if r.Float64() < 1/(1+math.Exp(-2*f)) {
			return 1
		}
		return 0
	}
	trials := make([]float64, 40)
	for i := range trials {
		trials[i] = float64(1 + i%6)
	}
	row := -1
	return map[string]c{
		"gaussian": {likelihood.Gaussian{}, func(r *rand.Rand, f float64) float64 { return f + 0.3*r.NormFloat64() }},
		"logit":    {likelihood.Bernoulli{}, class},
		"probit":   {likelihood.Probit{}, class},
		"binomial": {likelihood.Binomial{}.Of(likelihood.Rows{Weight: trials}), func(r *rand.Rand, f float64) float64 {
			row++
			y := 0.0
			for range int(trials[row]) {
				y += class(r, f)
			}
			return y
		}},
		"ordinal": {likelihood.Ordinal{Classes: []string{"a", "b", "c", "d"}}, func(r *rand.Rand, f float64) float64 { return min(3, max(0, math.Round(1+f+r.NormFloat64()))) }},
		"poisson": {likelihood.Poisson{}, func(r *rand.Rand, f float64) float64 { return math.Floor(math.Exp(f-1) * r.ExpFloat64()) }},
		"volatility": {likelihood.Volatility{}, func(r *rand.Rand, f float64) float64 {
			if r.Float64() < 0.05 {
				return 0
			}
			return math.Exp(f) * r.NormFloat64()
		}},
		"counts": {likelihood.NegativeBinomial{}, func(r *rand.Rand, f float64) float64 { return math.Floor(math.Exp(1+f) * r.ExpFloat64()) }},
	}
}

// The gradient is that of the approximate evidence, by differences of it, for parameters of the covariance and of the
// likelihood, also where the latent function has an offset.
func TestGradient(t *testing.T) {
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			p := problem(t, c.l, 40, c.target)
			if name == "counts" {
				p.Offset = make([]float64, len(p.Y))
				for i := range p.Offset {
					p.Offset[i] = 0.5 * math.Cos(float64(i))
				}
			}
			l, err := New(p, parallel.NewBudget(1))
			if err != nil {
				t.Fatal(err)
			}
			psi := make([]float64, p.NumParams())
			for i := range psi {
				psi[i] = 0.3 * math.Sin(float64(3*i+1))
			}
			_, got, err := l.At(t.Context(), psi)
			if err != nil {
				t.Fatal(err)
			}
			want := fd.Gradient(nil, func(x []float64) float64 {
				m, err := l.Mode(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				return m.Evidence
			}, psi, &fd.Settings{Formula: fd.Central, Step: 1e-4})
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-5*(1+math.Abs(want[i])) {
					t.Errorf("derivative %d is %v, by differences %v", i, got[i], want[i])
				}
			}
		})
	}
}

// Of Gaussian noise the approximation is exact, so that evidence and gradient are those of the dense oracle.
func TestGaussianIsExact(t *testing.T) {
	c := cases()["gaussian"]
	p := problem(t, c.l, 40, c.target)
	l, err := New(p, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	psi := []float64{0.3, 0.2, -1, -1.5}
	value, grad, err := l.At(t.Context(), psi)
	if err != nil {
		t.Fatal(err)
	}
	d := posterior.NewDense(p, parallel.NewBudget(1))
	prior, slope := p.LogPrior(psi)
	want, _ := d.Gradient(psi)
	if w := d.LogDensity(psi) - prior; math.Abs(value-w) > 1e-8 {
		t.Errorf("the evidence is %v, exactly %v", value, w)
	}
	for i := range want {
		if math.Abs(grad[i]+slope[i]-want[i]) > 1e-5 {
			t.Errorf("derivative %d is %v, exactly %v", i, grad[i]+slope[i], want[i])
		}
	}
}

// At the mode the score is K⁻¹f̂, by another factorisation, and of one row the evidence is Laplace's formula with the mode by
// bisection.
func TestMode(t *testing.T) {
	for name, c := range cases() {
		p := problem(t, c.l, 30, c.target)
		psi := make([]float64, p.NumParams())
		l, err := New(p, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.Mode(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		_, own := p.Natural(psi)
		for i, y := range p.Y {
			_, score, _ := likelihood.At(p.Likelihood, i).LogDensity(own, y, m.F[i])
			if math.Abs(score-m.A[i]) > 1e-5 {
				t.Errorf("%s: the score of row %d is %v, K⁻¹f %v", name, i+1, score, m.A[i])
			}
		}
		k := mat.NewSymDense(len(p.Y), nil)
		f := p.Function(psi)
		for i := range p.Y {
			for j := range i + 1 {
				k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
			}
		}
		var ka mat.VecDense
		ka.MulVec(k, mat.NewVecDense(len(m.A), m.A))
		for i := range m.F {
			if math.Abs(ka.AtVec(i)-m.F[i]) > 1e-8 {
				t.Errorf("%s: f̂ of row %d is %v, K·a %v", name, i+1, m.F[i], ka.AtVec(i))
			}
		}

		one := p.Subset([]int{0})
		if l, err = New(one, parallel.NewBudget(1)); err != nil {
			t.Fatal(err)
		}
		if m, err = l.Mode(t.Context(), psi); err != nil {
			t.Fatal(err)
		}
		sigma := one.Function(psi).Variance(one.Inputs.Row(0))
		like := likelihood.At(one.Likelihood, 0)
		lo, hi := -50.0, 50.0
		for range 200 {
			mid := (lo + hi) / 2
			if _, s, _ := like.LogDensity(own, one.Y[0], mid); s-mid/sigma > 0 {
				lo = mid
			} else {
				hi = mid
			}
		}
		v, _, w := like.LogDensity(own, one.Y[0], lo)
		if want := v - lo*lo/(2*sigma) - 0.5*math.Log(sigma*(1/sigma+w)); math.Abs(m.Evidence-want) > 1e-9 {
			t.Errorf("%s: the evidence of one row is %v, want %v", name, m.Evidence, want)
		}
	}
}

// What is not log-concave and smooth has no approximation.
func TestNone(t *testing.T) {
	p := problem(t, likelihood.StudentT{DF: 4}, 20, func(_ *rand.Rand, f float64) float64 { return f })
	if _, err := New(p, parallel.NewBudget(1)); err == nil {
		t.Error("Student's t is approximated")
	}
}
