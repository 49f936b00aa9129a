package param

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// The prior lkj of a partial correlation is a Beta of (1+r)/2, on the scale that is sampled: by gonum's density, its mass,
// differences, and draws, whose shares below some points are within 5 standard errors (a false alarm in 10⁴ runs; the
// seed is fixed).
func TestLKJ(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for text, alphas := range map[string][]float64{"lkj(1)": {1, 1.5, 3}, "lkj(2)": {2, 2.5, 4}, "lkj(0.3)": {0.3, 0.8, 2.3}} {
		for i, alpha := range alphas {
			p := mustPrior(t, text, Partial).Given([]int{0, 1, 4}[i])
			if p.String() != text || p.Typical() != 1 {
				t.Errorf("%s prints as %v, and is typically %v", text, p, p.Typical())
			}
			beta := distuv.Beta{Alpha: alpha, Beta: alpha}
			density := func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }
			for _, psi := range []float64{-3, -0.4, 0, 1.2} {
				x := 1 / (1 + math.Exp(-psi))
				if got, want := density(psi), beta.Prob(x)*x*(1-x); math.Abs(got/want-1) > 1e-10 {
					t.Errorf("%s, α = %g: density %v at %g, want %v", text, alpha, got, psi, want)
				}
				_, got := p.LogDensity(psi)
				want := fd.Derivative(func(x float64) float64 { v, _ := p.LogDensity(x); return v }, psi, &fd.Settings{Formula: fd.Central})
				if math.Abs(got-want) > 1e-6 {
					t.Errorf("%s, α = %g: derivative %v at %g, differences %v", text, alpha, got, psi, want)
				}
			}
			if mass := quad.Fixed(density, -60/alpha, 60/alpha, 4000, nil, 0); math.Abs(mass-1) > 1e-6 {
				t.Errorf("%s, α = %g: integrates to %v", text, alpha, mass)
			}
			if v, g := p.LogDensity(-800); math.IsNaN(v) || math.IsInf(v, 0) || g != alpha {
				t.Errorf("%s: %v and %v far out", text, v, g)
			}
			const n = 20_000
			x := make([]float64, n)
			for i := range x {
				x[i] = 1 / (1 + math.Exp(-p.Sample(r)))
			}
			slices.Sort(x)
			for _, share := range []float64{0.1, 0.5, 0.9} {
				below := beta.CDF(x[int(share*n)])
				if se := math.Sqrt(share * (1 - share) / n); math.Abs(below-share) > 5*se {
					t.Errorf("%s, α = %g: %v below the quantile %v", text, alpha, below, share)
				}
			}
		}
	}
	for text, role := range map[string]Role{"lkj(1)": Variance, "gamma(1,1)": Partial} {
		if _, err := ParsePrior(text, role); err == nil || !strings.Contains(err.Error(), "lkj(eta) is the prior of a correlation matrix") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ParsePrior("lkj(0)", Partial); err == nil || !strings.Contains(err.Error(), "eta is 0, but must be positive") {
		t.Errorf("got %v", err)
	}
}
