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

// Priors of parameters that are not positive, and of those that a prior confines: against gonum's density on the natural
// scale times a numeric Jacobian, with the mass and the derivative; and the draws are of that density.
func TestPriorsOnOtherScales(t *testing.T) {
	year := Param{Symbol: "place", Role: Place, Transform: Real(1925, 30)}
	partial := Param{Symbol: "z", Transform: Interval(-1, 1)}
	for _, x := range []struct {
		of       Param
		text     string
		density  func(theta float64) float64
		typical  float64
		interval bool
	}{
		{year, "normal(1900,12)", distuv.Normal{Mu: 1900, Sigma: 12}.Prob, 1900, false},
		{year, "uniform(1871,1970)", distuv.Uniform{Min: 1871, Max: 1970}.Prob, 1920.5, true},
		{partial, "beta(2,5)", func(z float64) float64 { return distuv.Beta{Alpha: 2, Beta: 5}.Prob((z+1)/2) / 2 }, 4.0/7 - 1, true},
		{partial, "uniform(-0.5,0.25)", distuv.Uniform{Min: -0.5, Max: 0.25}.Prob, -0.125, true},
		{Param{Symbol: "period", Role: Period}, "uniform(0.5,2)", distuv.Uniform{Min: 0.5, Max: 2}.Prob, 1.25, true},
	} {
		p := x.of
		var err error
		if p.Prior, err = p.ParsePrior(x.text); err != nil || p.Prior.String() != x.text {
			t.Fatalf("%s: %v, %v", x.text, p.Prior, err)
		}
		if got := p.Prior.Typical(); math.Abs(got-x.typical) > 1e-12 {
			t.Errorf("%s: typical value %v, want %v", x.text, got, x.typical)
		}
		for _, share := range []float64{0.1, 0.6} {
			below := quad.Fixed(x.density, p.Scale().Natural(-40), p.Prior.Quantile(share), 4000, nil, 0)
			if math.Abs(below-share) > 1e-6 {
				t.Errorf("%s: %v below the quantile %v", x.text, below, share)
			}
		}
		scale := p.Scale()
		density := func(psi float64) float64 { v, _ := p.Prior.LogDensity(psi); return math.Exp(v) }
		if mass := quad.Fixed(density, -40, 40, 6000, nil, 0); math.Abs(mass-1) > 1e-6 {
			t.Errorf("%s integrates to %v", x.text, mass)
		}
		for _, psi := range []float64{-2, -0.3, 0, 1.7} {
			theta := scale.Natural(psi)
			if back := scale.Sampled(theta); math.Abs(back-psi) > 1e-11 {
				t.Errorf("%s: %v came back as %v", x.text, psi, back)
			}
			slope := fd.Derivative(scale.Natural, psi, &fd.Settings{Formula: fd.Central})
			if got := scale.Slope(psi); math.Abs(got-slope) > 1e-6*math.Abs(slope) {
				t.Errorf("%s: dθ/dψ is %v, differences %v", x.text, got, slope)
			}
			if got, want := density(psi), x.density(theta)*scale.Slope(psi); math.Abs(got-want) > 1e-12*want {
				t.Errorf("%s: density %v at %v, want %v", x.text, got, psi, want)
			}
			_, got := p.Prior.LogDensity(psi)
			want := fd.Derivative(func(x float64) float64 { v, _ := p.Prior.LogDensity(x); return v }, psi, &fd.Settings{Formula: fd.Central})
			if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: derivative %v, finite differences %v", x.text, got, want)
			}
		}
		list := List{p}
		if !list.Usable([]float64{3}) || list.Usable([]float64{math.NaN()}) || list.Usable([]float64{900}) == x.interval {
			t.Errorf("%s: what is usable is wrong", x.text)
		}
		checkDraws(t, x.text, p.Prior)
	}
}

// A prior of a correlation e^(−τ) is a density of log τ.
func TestPriorsOfCorrelations(t *testing.T) {
	for _, x := range []struct{ a, b float64 }{{1, 1}, {2, 5}, {8, 0.5}} {
		text := fmt.Sprintf("beta(%g,%g)", x.a, x.b)
		p, err := ParseRootPrior(text, Mismatch, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, psi := range []float64{-3, -0.5, 0, 1} {
			correlation := func(psi float64) float64 { return math.Exp(-math.Exp(psi)) }
			slope := -fd.Derivative(correlation, psi, &fd.Settings{Formula: fd.Central})
			v, got := p.LogDensity(psi)
			if want := (distuv.Beta{Alpha: x.a, Beta: x.b}).LogProb(correlation(psi)) + math.Log(slope); math.Abs(v-want) > 1e-6 {
				t.Errorf("%s: log density %v, want %v", text, v, want)
			}
			want := fd.Derivative(func(x float64) float64 { v, _ := p.LogDensity(x); return v }, psi, &fd.Settings{Formula: fd.Central})
			if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: derivative %v, finite differences %v", text, got, want)
			}
		}
		if got, want := math.Exp(-p.Typical()), x.a/(x.a+x.b); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: typical correlation %v, want %v", text, got, want)
		}
		checkDraws(t, text, p)
	}
	// The default is uniform.
	uniform, _ := ParseRootPrior("beta(1,1)", Mismatch, 1)
	for _, psi := range []float64{-3, 0.5} {
		a, _ := uniform.LogDensity(psi)
		if b, _ := mustPrior(t, "gamma(1,1)", Mismatch).LogDensity(psi); math.Abs(a-b) > 1e-14 {
			t.Errorf("beta(1,1) has the log density %v, gamma(1,1) on τ %v", a, b)
		}
	}
}

// checkDraws is TestSamples for one prior.
func checkDraws(t *testing.T, name string, p Prior) {
	t.Helper()
	const n = 20_000
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float64, n)
	for i := range x {
		x[i] = p.Sample(r)
	}
	slices.Sort(x)
	for _, share := range []float64{0.1, 0.5, 0.9} {
		at := x[int(share*n)]
		below := quad.Fixed(func(psi float64) float64 { v, _ := p.LogDensity(psi); return math.Exp(v) }, -60, at, 6000, nil, 0)
		if se := math.Sqrt(share * (1 - share) / n); math.Abs(below-share) > 5*se {
			t.Errorf("%s: %v below the quantile %v", name, below, share)
		}
	}
}

func TestPriorsThatDoNotFit(t *testing.T) {
	partial := Param{Symbol: "z", Transform: Interval(-1, 1)}
	for _, x := range []struct {
		of         Param
		text, want string
	}{
		{Param{Role: Rate}, "normal(0,1)", `prior "normal(0,1)": the parameter is positive: use one of gamma(shape,rate), invgamma`},
		{Param{Role: Rate}, "uniform(1,2)", "uniform is for places, widths, periods and shapes"},
		{Param{Role: Width}, "uniform(-1,1)", "lo is -1, but the parameter is positive"},
		{Param{Transform: Real(0, 1)}, "gamma(1,1)", "the parameter may be any number: use one of normal(mean,sd), uniform(lo,hi)"},
		{Param{Transform: Real(0, 1)}, "uniform(2,1)", "lo is 2, but must be below hi"},
		{partial, "normal(0,1)", "the parameter is between -1 and 1: use one of uniform(lo,hi), beta(a,b)"},
		{partial, "uniform(0,2)", "the parameter is between -1 and 1"},
		{partial, "beta(0,1)", "a is 0, but must be positive"},
	} {
		if _, err := x.of.ParsePrior(x.text); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.text, err, x.want)
		}
	}
	for text, want := range map[string]string{"uniform(0,1)": "beta(1,1) is uniform", "gamma(1,1)": "is between 0 and 1"} {
		if _, err := ParseRootPrior(text, Mismatch, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s of a correlation: %v, want %q", text, err, want)
		}
	}
	if _, err := ParseRootPrior("uniform(0,1)", Rate, 1); err == nil {
		t.Error("a uniform length-scale")
	}
	if CheckPrior("normal(-3,1)") != nil || CheckPrior("nrmal(0,1)") == nil {
		t.Error("CheckPrior")
	}
}

// A gradient by log θ or by θ, as leaves give it, is one by ψ after Chain.
func TestChain(t *testing.T) {
	year := Param{Symbol: "place", Transform: Real(1925, 30)}
	l := List{{Symbol: "a"}, year, {Symbol: "z", Transform: Interval(-1, 1)}, {Symbol: "p"}}
	l[3].Prior, _ = l[3].ParsePrior("uniform(0.5,2)")
	f := func(theta []float64) float64 { return theta[0]*theta[3] + theta[1]*theta[2]*theta[2]/100 }
	psi := []float64{0.3, -1.2, 0.4, 0.8}
	theta := l.Natural(psi)
	got := []float64{theta[0] * theta[3], theta[2] * theta[2] / 100, theta[1] * theta[2] / 50, theta[0] * theta[3]}
	l.Chain(psi, got)
	want := fd.Gradient(nil, func(psi []float64) float64 { return f(l.Natural(psi)) }, psi, &fd.Settings{Formula: fd.Central})
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-6*(1+math.Abs(want[i])) {
			t.Errorf("derivative by %s is %v, differences %v", l[i].SampledName(), got[i], want[i])
		}
	}
}

// A prior of a parameter above a number is a distribution cut off there: a density of ψ with its derivative, whose
// quantiles draws have.
func TestPriorsAbove(t *testing.T) {
	q := Param{Symbol: "df", Role: Freedom, Transform: Above(2)}
	for text, density := range map[string]func(x float64) float64{
		"gamma(2,0.1)":   distuv.Gamma{Alpha: 2, Beta: 0.1}.Prob,
		"invgamma(3,9)":  distuv.InverseGamma{Alpha: 3, Beta: 9}.Prob,
		"lognormal(1,1)": distuv.LogNormal{Mu: 1, Sigma: 1}.Prob,
		"halfnormal(10)": distuv.Normal{Sigma: 10}.Prob,
	} {
		p, err := q.ParsePrior(text)
		if err != nil {
			t.Fatal(err)
		}
		from := func(x float64) float64 { // ∫ density from x on
			return quad.Fixed(func(u float64) float64 { return density(x+math.Exp(u)) * math.Exp(u) }, -25, 14, 4000, nil, 0)
		}
		whole := from(2)
		for _, psi := range []float64{-3, 0, 2, 4} {
			x := 2 + math.Exp(psi)
			v, g := p.LogDensity(psi)
			if want := density(x) / whole * math.Exp(psi); math.Abs(math.Exp(v)-want) > 1e-6*want {
				t.Errorf("%s: density %v at ψ = %v, want %v", text, math.Exp(v), psi, want)
			}
			of := func(psi float64) float64 { v, _ := p.LogDensity(psi); return v }
			if want := fd.Derivative(of, psi, &fd.Settings{Formula: fd.Central}); math.Abs(g-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: derivative %v at ψ = %v, differences %v", text, g, psi, want)
			}
		}
		const n = 4000
		r, beyond := rand.New(rand.NewPCG(1, 2)), 0.0
		for range n {
			if q.Transform.Natural(p.Sample(r)) > 6 {
				beyond++
			}
		}
		// Binomial: a false alarm of one in 10⁴ at 3.9 sd, in four cases.
		if want := from(6) / whole; math.Abs(beyond/n-want) > 3.9*math.Sqrt(want*(1-want)/n) {
			t.Errorf("%s: %v of draws are above 6, want %v", text, beyond/n, want)
		}
		if x := p.Typical(); !(x > 2) || p.String() != text {
			t.Errorf("%s prints as %v, and is typically %v", text, p, x)
		}
	}
	for text, want := range map[string]string{
		"gamma(1,20)":  "the parameter is above 2, where this has next to no mass",
		"uniform(1,5)": "the parameter is above 2",
		"normal(5,1)":  "the parameter is above 2: use one of gamma, invgamma, lognormal, halfnormal, cut off there, or uniform",
	} {
		if _, err := q.ParsePrior(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if p, err := q.ParsePrior("uniform(3,5)"); err != nil || p.on != Interval(3, 5) {
		t.Errorf("%+v, %v", p, err)
	}
	if got := q.SampledName(); got != "log_excess_df" || Above(2).Label("df") != "log (df − 2)" {
		t.Error(got)
	}
	if x := 7.3; math.Abs(q.Transform.Natural(q.Transform.Sampled(x))-x) > 1e-12 || (List{q}).Usable([]float64{-50}) {
		t.Error("ψ is not log(θ−2)")
	}
}

// Every prior has a typical value in its middle 90 %, of 2,000 draws; those on standard deviations and length-scales, too.
func TestTypicalIsInTheMiddle(t *testing.T) {
	for _, text := range []string{"gamma(2,0.1)", "invgamma(3,2)", "lognormal(2,0.5)", "halfnormal(1.5)", "pc(1.5,0.1)"} {
		for _, role := range []Role{Variance, Rate, Noise} {
			priors := []Prior{mustPrior(t, text, role)}
			for _, unit := range []float64{1, 30} {
				p, err := ParseRootPrior(text, role, unit)
				if err != nil {
					t.Fatal(err)
				}
				priors = append(priors, p)
			}
			for _, p := range priors {
				r, below := rand.New(rand.NewPCG(1, 2)), 0
				for range 2000 {
					if p.Sample(r) < math.Log(p.Typical()) {
						below++
					}
				}
				if below < 100 || below > 1900 {
					t.Errorf("%s, role %d: %d of 2000 draws below the typical %g", text, role, below, p.Typical())
				}
			}
		}
	}
}
