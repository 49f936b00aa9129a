package param

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

func mustPrior(t testing.TB, s string, r Role) Prior {
	t.Helper()
	p, err := ParsePrior(s, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every prior integrates to one over ψ, and its derivative is right.
func TestPriors(t *testing.T) {
	for _, role := range []Role{Variance, Rate, Noise} {
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

// A prior on a root is the density of that root: it integrates to one, its derivative is right,
// and pc means what it says, in the unit of the root.
func TestRootPriors(t *testing.T) {
	const unit = 3.0
	for _, role := range []Role{Variance, Rate, Noise} {
		root := func(psi float64) float64 { return unit * math.Exp(psi/2) }
		at := func(root float64) float64 { return 2 * math.Log(root/unit) } // ψ
		if role == Rate {
			root = func(psi float64) float64 { return unit / math.Sqrt(2*math.Exp(psi)) }
			at = func(root float64) float64 { return math.Log(unit * unit / (2 * root * root)) }
		}
		for _, s := range []string{"gamma(2.5,0.3)", "invgamma(3,2)", "lognormal(-1,0.7)", "halfnormal(2)", "pc(1.5,0.1)"} {
			p, err := ParseRootPrior(s, role, unit)
			if err != nil {
				t.Fatal(err)
			}
			density := func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }
			if mass := quad.Fixed(density, -100, 100, 8000, nil, 0); math.Abs(mass-1) > 1e-6 {
				t.Errorf("%s role %d integrates to %v", s, role, mass)
			}
			for _, psi := range []float64{-2, 0, 1.3} {
				_, got := p.LogDensity(psi)
				want := fd.Derivative(func(x float64) float64 { v, _ := p.LogDensity(x); return v }, psi, &fd.Settings{Formula: fd.Central})
				if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
					t.Errorf("%s role %d: derivative %v at %v, finite differences %v", s, role, got, psi, want)
				}
				// The density of the root by that of ψ, dψ = 2·d(root)/root, against gonum's.
				if s == "gamma(2.5,0.3)" {
					g := distuv.Gamma{Alpha: 2.5, Beta: 0.3}
					if got, want := density(psi)*2/root(psi), g.Prob(root(psi)); math.Abs(got-want) > 1e-12 {
						t.Errorf("role %d: density of the root %v, want %v", role, got, want)
					}
				}
			}
		}
		p, err := ParseRootPrior("pc(1.5,0.1)", role, unit)
		if err != nil {
			t.Fatal(err)
		}
		// P(sd > 1.5), or P(ℓ < 1.5): either is ψ beyond that of 1.5.
		tail := quad.Fixed(func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }, at(1.5), at(1.5)+60, 6000, nil, 0)
		if math.Abs(tail-0.1) > 1e-6 {
			t.Errorf("role %d: the tail has %v, want 0.1", role, tail)
		}
	}
	for s, want := range map[string]float64{"gamma(2,4)": 0.5, "invgamma(3,2)": 0.5, "lognormal(0,0.1)": 1} {
		if got := mustPrior(t, s, Period).Typical(); got != want {
			t.Errorf("%s: typical value %v, want %v", s, got, want)
		}
	}
	if _, err := ParsePrior("pc(1,0.1)", Period); err == nil {
		t.Error("pc for a period")
	}
}

// Draws have the density: the share below some points is its integral, within 5 standard errors (a false
// alarm in 10⁴ runs; the seed is fixed).
func TestSamples(t *testing.T) {
	const n = 20_000
	r := rand.New(rand.NewPCG(3, 4))
	for _, role := range []Role{Variance, Rate, Noise} {
		for _, s := range []string{"gamma(2.5,0.3)", "invgamma(3,2)", "lognormal(-1,0.7)", "halfnormal(2)", "pc(1.5,0.1)"} {
			root, err := ParseRootPrior(s, role, 3)
			if err != nil {
				t.Fatal(err)
			}
			for what, p := range map[string]Prior{"parameter": mustPrior(t, s, role), "root": root} {
				x := make([]float64, n)
				for i := range x {
					x[i] = p.Sample(r)
				}
				slices.Sort(x)
				for _, share := range []float64{0.1, 0.5, 0.9} {
					at := x[int(share*n)]
					below := quad.Fixed(func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }, -100, at, 6000, nil, 0)
					if se := math.Sqrt(share * (1 - share) / n); math.Abs(below-share) > 5*se {
						t.Errorf("%s on the %s, role %d: %v below the quantile %v", s, what, role, below, share)
					}
				}
			}
		}
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
	if _, err := ParsePrior("gama(1,1)", Rate); err == nil || !strings.Contains(err.Error(), "did you mean gamma(shape,rate)?") {
		t.Errorf("got %v", err)
	}
	if fmt.Sprint(mustPrior(t, " gamma( 1 , 2 ) ", Rate)) != "gamma(1,2)" {
		t.Error("spaces are not ignored")
	}
}
