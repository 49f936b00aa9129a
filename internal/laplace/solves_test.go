package laplace

import (
	"errors"
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// By products alone the mode is that with stored matrices, gradients are unbiased by the mean of many, and the value and its gradient
// with fixed probes are within their errors: for parameters of the covariance and of the likelihood, with an offset too. 17 comparisons at 4.5
// standard errors, which fails by chance once in 8,000 seeds.
func TestSolvesAgainstStored(t *testing.T) {
	const draws = 60
	for _, name := range []string{"logit", "poisson", "counts"} {
		c := cases()[name]
		p := problem(t, c.l, 40, c.target)
		if name == "counts" {
			p.Offset = make([]float64, len(p.Y))
			for i := range p.Offset {
				p.Offset[i] = 0.5 * math.Cos(float64(i))
			}
		}
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.3 * math.Sin(float64(3*i+1))
		}
		l, err := New(p, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		want, err := l.Mode(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		_, slope, err := l.At(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSolves(p, parallel.NewBudget(1), 7)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.mode(t.Context(), psi, solvesKind, random.Key{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if d := floats.Distance(m.F, want.F, math.Inf(1)); d > 1e-2 {
			t.Errorf("%s: the mode is off by %v", name, d)
		}
		all := mat.NewDense(draws, len(psi), nil)
		for i := range draws {
			g, err := s.Gradient(t.Context(), psi, i)
			if err != nil {
				t.Fatal(err)
			}
			all.SetRow(i, g)
		}
		value, fixed, err := s.At(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(value-want.Evidence) > 4.5*s.ValueError()+1e-3 || s.ValueError() > 1 {
			t.Errorf("%s: the value is %v ± %v, want %v", name, value, s.ValueError(), want.Evidence)
		}
		for i := range psi {
			mean, square := 0.0, 0.0
			for _, g := range mat.Col(nil, i, all) {
				mean, square = mean+g/draws, square+g*g/draws
			}
			sd := math.Sqrt(square - mean*mean)
			if e := sd / math.Sqrt(draws); math.Abs(mean-slope[i]) > 4.5*e+1e-3 {
				t.Errorf("%s: the mean of derivative %d is %v ± %v, want %v", name, i, mean, e, slope[i])
			}
			if math.Abs(fixed[i]-slope[i]) > 4.5*sd/math.Sqrt(fixedProbes/solvesProbes)+1e-3 {
				t.Errorf("%s: derivative %d with fixed probes is %v, want %v, sd %v", name, i, fixed[i], slope[i], sd)
			}
		}
		q, err := s.Gaussian(t.Context(), psi)
		if err != nil {
			t.Fatal(err)
		}
		for i, z := range q.Targets() { // W(z − f̂) = K⁻¹f̂
			if got := want.W[i] * (z - want.F[i]); math.Abs(got-want.A[i]) > 1e-2 {
				t.Errorf("%s: site %d pulls by %v, want %v", name, i, got, want.A[i])
			}
		}
		if s.Cost.Unconverged > 0 || len(s.Cost.Iterations) == 0 {
			t.Errorf("%s: %d of %d solves did not converge", name, s.Cost.Unconverged, len(s.Cost.Iterations))
		}
	}
	p := problem(t, likelihood.Laplace{}, 10, cases()["gaussian"].target)
	if _, err := NewSolves(p, parallel.NewBudget(1), 1); err == nil || errors.Is(err, errNumerical) {
		t.Errorf("the Laplace likelihood is approximated: %v", err)
	}
}
