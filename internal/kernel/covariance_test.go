package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/param"
)

func parse(t testing.TB, text string, dim int) *Covariance {
	t.Helper()
	c, err := Parse(text, dim)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSingle(t *testing.T) {
	for _, x := range []struct {
		ard         bool
		text, names string
	}{
		{false, "rbf(1-3:tau)", "sigma tau"},
		{true, "rbf(1:tau[1],2:tau[2],3:tau[3])", "sigma tau[1] tau[2] tau[3]"},
	} {
		c := Single(RBF, 3, x.ard)
		if c.String() != "sigma*"+x.text || c.Dim() != 3 {
			t.Errorf("%v over %d inputs", c, c.Dim())
		}
		if got := strings.Join(c.Params().Names(), " "); got != x.names {
			t.Errorf("parameters %s, want %s", got, x.names)
		}
		for i, p := range c.Params() {
			role, inputs := param.Rate, []int{0, 1, 2}
			if i == 0 {
				role, inputs = param.Variance, nil
			} else if x.ard {
				inputs = []int{i - 1}
			}
			if p.Role != role || !slices.Equal(p.Inputs, inputs) {
				t.Errorf("%s has role %d and inputs %v", p.Name(), p.Role, p.Inputs)
			}
		}
	}
}

// A sum of products is what its parts say, by the formula.
func TestValueOfSumsAndProducts(t *testing.T) {
	c := parse(t, "a*rbf(1:u)*matern32(2:v)+b*matern12(1-2:w)+a*rbf(1:u)*rbf(1:u)", 2)
	if got, want := strings.Join(c.Params().Names(), " "), "a u v b w"; got != want {
		t.Fatalf("parameters %s, want %s", got, want)
	}
	if len(c.Leaves()) != 3 || len(c.Terms()) != 3 {
		t.Fatalf("%d leaves, %d terms", len(c.Leaves()), len(c.Terms()))
	}
	a, u, v, b, w := 1.3, 0.4, 0.7, 0.6, 0.2
	f := c.At([]float64{a, u, v, b, w})
	x, y := []float64{0.3, -1}, []float64{-0.5, 0.4}
	p, q := 0.8*0.8, 1.4*1.4
	want := a*math.Exp(-u*p)*Matern32.Value(v*q) + b*Matern12.Value(w*(p+q)) + a*math.Exp(-2*u*p)
	if got := f.Value(x, y); math.Abs(got-want) > 1e-15 {
		t.Errorf("k = %v, want %v", got, want)
	}
	if got := f.Correlation(x, y); math.Abs(got-want/(2*a+b)) > 1e-15 {
		t.Errorf("correlation %v, want %v", got, want/(2*a+b))
	}
	if got := f.Variance(x); math.Abs(got-(2*a+b)) > 1e-15 || f.Scale() != got {
		t.Errorf("variance %v, scale %v, want %v", got, f.Scale(), 2*a+b)
	}
}

// random returns a covariance over three inputs of some terms and leaves, whose
// parameters are shared at random.
func random(t *rapid.T) *Covariance {
	name := rapid.SampledFrom([]string{"u", "v", "w[1]", "w[2]", "an odd\" name (cm)", "x.y"})
	var terms []Term
	for range rapid.IntRange(1, 3).Draw(t, "terms") {
		term := Term{Variance: param.Param{Symbol: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "variance"), Role: param.Variance}}
		for range rapid.IntRange(1, 3).Draw(t, "leaves") {
			s := &Stationary{Family: Family(rapid.IntRange(0, NumFamilies-1).Draw(t, "family")),
				Inputs: rapid.SampledFrom([][]int{{0}, {1, 2}, {2, 0}, {0, 1, 2}}).Draw(t, "inputs")}
			for range s.Inputs {
				s.Rates = append(s.Rates, param.Param{Symbol: name.Draw(t, "rate"), Role: param.Rate})
			}
			if s.sameRates() {
				s.Rates = s.Rates[:1]
			}
			switch rapid.IntRange(0, 12).Draw(t, "kind") {
			case 12:
				term.Leaves = append(term.Leaves, randomWarped(t, s))
				continue
			case 9:
				term.Leaves = append(term.Leaves, randomSigmoid(t, s.Inputs[0]))
				continue
			case 10:
				p := &Polynomial{Inputs: s.Inputs, Degree: rapid.IntRange(1, 2).Draw(t, "degree"), FixedOffset: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "offset")}
				if rapid.Bool().Draw(t, "free") {
					p.FixedOffset, p.Offset = 0, param.Param{Symbol: "o", Role: param.Offset}
				}
				term.Leaves = append(term.Leaves, p)
				continue
			case 8:
				l := &Linear{Constant: rapid.Bool().Draw(t, "constant"), Inputs: s.Inputs}
				for range l.Inputs {
					l.Centres = append(l.Centres, rapid.SampledFrom([]float64{0, -0.25, 1e-9, 3}).Draw(t, "centre"))
				}
				term.Leaves = append(term.Leaves, l)
				continue
			case 0:
				s.Rates, s.Fixed = nil, []float64{rapid.Float64Range(0.01, 9).Draw(t, "fixed")}
			case 2:
				s.Family, s.FixedAlpha = Rational, rapid.Float64Range(0.1, 9).Draw(t, "fixed")
				if rapid.Bool().Draw(t, "alpha") {
					s.FixedAlpha, s.Alpha = 0, param.Param{Symbol: rapid.SampledFrom([]string{"al[1]", "be; ta"}).Draw(t, "alpha"), Role: param.Shape}
				}
			case 3:
				s.Family = Wendland
			case 4:
				h := &Hamming{Inputs: s.Inputs, FixedTau: 0.7}
				if rapid.Bool().Draw(t, "tau") {
					h.FixedTau, h.Tau = 0, param.Param{Symbol: "h", Role: param.Mismatch}
				}
				term.Leaves = append(term.Leaves, h)
				continue
			case 5:
				c := &Cosine{Input: s.Inputs[0], Unit: 0.7, FixedPeriod: 2}
				if rapid.Bool().Draw(t, "period") {
					c.FixedPeriod, c.Period = 0, param.Param{Symbol: "p", Role: param.Period}
				}
				term.Leaves = append(term.Leaves, c)
				continue
			case 1:
				p := &Periodic{Input: s.Inputs[0], Unit: rapid.Float64Range(0.1, 1).Draw(t, "unit"), Rate: s.Rates[0], FixedPeriod: 3}
				if rapid.Bool().Draw(t, "period") {
					p.Period = param.Param{Symbol: rapid.SampledFrom([]string{"p", "q[1]"}).Draw(t, "period"), Role: param.Period}
					p.FixedPeriod = 0
				}
				if rapid.Bool().Draw(t, "fixed") {
					p.Rate, p.FixedRate = param.Param{}, 0.3
				}
				term.Leaves = append(term.Leaves, p)
				continue
			}
			term.Leaves = append(term.Leaves, s)
		}
		if rapid.IntRange(0, 4).Draw(t, "fixed variance") == 0 {
			term.Variance, term.Fixed = param.Param{}, rapid.SampledFrom([]float64{2.5, 1e-7}).Draw(t, "variance")
		}
		terms = append(terms, term)
	}
	c, err := New(3, terms...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func randomSigmoid(t *rapid.T, input int) *Sigmoid {
	s := &Sigmoid{Input: input, Unit: 1, FixedPlace: rapid.SampledFrom([]float64{0, -1.5}).Draw(t, "at"), FixedWidth: 0.3, Falling: rapid.Bool().Draw(t, "falling")}
	if rapid.Bool().Draw(t, "place") {
		s.Place, s.FixedPlace = param.Param{Symbol: fmt.Sprintf("at.place[%d]", input), Role: param.Place}, 0
		s.Mean, s.Unit = 0.2, 1.5
	}
	if rapid.Bool().Draw(t, "width") {
		s.Width, s.FixedWidth = param.Param{Symbol: "width", Role: param.Width}, 0
	}
	return s
}

func randomWarped(t *rapid.T, s *Stationary) *Warped {
	if rapid.Bool().Draw(t, "shape") {
		s.Family, s.Alpha = Rational, param.Param{Symbol: "al", Role: param.Shape}
	}
	w := &Warped{Stationary: s}
	for i, k := range s.Inputs[:rapid.IntRange(1, len(s.Inputs)).Draw(t, "warps")] {
		p := Warp{Input: k, Lo: -1.6, Hi: 2.25, FixedA: 0.6, FixedB: 1.7}
		if rapid.Bool().Draw(t, "a") {
			p.FixedA, p.A = 0, param.Param{Symbol: "wa", Index: fmt.Sprint(k + 1), Role: param.Exponent}
		}
		if rapid.Bool().Draw(t, "b") {
			p.FixedB, p.B = 0, param.Param{Symbol: "wb", Index: fmt.Sprint(i + 1), Role: param.Exponent}
		}
		w.Warps = append(w.Warps, p)
	}
	return w
}

// The canonical text of a covariance reads back as the same covariance, and its
// gradient is that of differences.
func TestTextAndGradient(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := random(t)
		back, err := Parse(c.String(), 3)
		if err != nil || back.String() != c.String() || !slices.Equal(back.Params().Names(), c.Params().Names()) {
			t.Fatalf("%v came back as %v: %v", c, back, err)
		}
		number := rapid.Float64Range(-1.5, 1.5)
		x, y := []float64{number.Draw(t, "x"), 0.3, -0.2}, []float64{number.Draw(t, "y"), -0.4, 1.1}
		psi := make([]float64, len(c.Params()))
		for i := range psi {
			psi[i] = number.Draw(t, "ψ")
		}
		at := func(psi []float64) *Function { return c.At(c.Params().Natural(psi)) }
		if a, b := at(psi).Value(x, y), back.At(back.Params().Natural(psi)).Value(x, y); a != b {
			t.Fatalf("%v: k = %v, as it came back %v", c, a, b)
		}
		got := make([]float64, len(psi))
		at(psi).AddGradient(got, 1, x, y)
		c.Params().Chain(psi, got)
		want := fd.Gradient(nil, func(psi []float64) float64 { return at(psi).Value(x, y) }, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5})
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-7*(1+at(psi).Scale()+math.Abs(want[i])) {
				t.Fatalf("%v: derivative by %s is %v, differences %v", c, c.Params()[i].Name(), got[i], want[i])
			}
		}
	})
}

func TestBadCovariances(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "at character 1: want the name of a parameter",
		"a":                     "the term of a has no leaf",
		"a*":                    "at character 3: want a leaf",
		"a*rbf":                 "at character 3: want a leaf",
		"a*rfb(1:u)":            "unknown kernel",
		"a*rbf(1:u":             "at character 10: want , or )",
		"a*rbf(1)":              "at character 8: want : and the name of a rate",
		"a*rbf(1:)":             "at character 9: want the name",
		"a*rbf(0:u)":            "at character 7: want the number of an input, 1 to 2",
		"a*rbf(3:u)":            "want the number of an input, 1 to 2",
		"a*rbf(1-9999999999:u)": "want the number of an input",
		"a*rbf(2-1:u)":          "inputs 2 to 1",
		"a*rbf(1:u,1:v)":        "over input 1 twice",
		"a*rbf(1:u)-":           "at character 11: want + or the end",
		"a*rbf(1:a)":            "the parameter a has two roles",
		`"a*rbf(1:u)`:           "no closing quote",
		"a*rbf(1:u)+b":          "the term of b has no leaf",
	} {
		if _, err := Parse(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	rate := param.Param{Symbol: "u", Role: param.Rate}
	sigma := param.Param{Symbol: "a", Role: param.Variance}
	leaf := func(s Stationary) Term { return Term{Variance: sigma, Leaves: []Leaf{&s}} }
	for want, terms := range map[string][]Term{
		"needs a term":               nil,
		"another role":               {{Variance: rate, Leaves: []Leaf{&Stationary{Family: RBF, Inputs: []int{0}, Rates: []param.Param{rate}}}}},
		"has no inputs":              {leaf(Stationary{Family: RBF, Rates: []param.Param{rate}})},
		"0 rates for 1 inputs":       {leaf(Stationary{Family: RBF, Inputs: []int{0}})},
		"input 3 of 2":               {leaf(Stationary{Family: RBF, Inputs: []int{2}, Rates: []param.Param{rate}})},
		"give it once":               {leaf(Stationary{Family: RBF, Inputs: []int{0, 1}, Rates: []param.Param{rate, rate}})},
		"no covariance family":       {leaf(Stationary{Family: NumProfiles, Inputs: []int{0}, Rates: []param.Param{rate}})},
		"rate a has another":         {leaf(Stationary{Family: RBF, Inputs: []int{0}, Rates: []param.Param{sigma}})},
		"the variance 0":             {{Leaves: []Leaf{&Linear{Constant: true}}}},
		"the linear has no inputs":   {{Variance: sigma, Leaves: []Leaf{&Linear{}}}},
		"1 centres for 2 inputs":     {{Variance: sigma, Leaves: []Leaf{&Linear{Inputs: []int{0, 1}, Centres: []float64{0}}}}},
		"the width positive":         {{Variance: sigma, Leaves: []Leaf{&Sigmoid{Unit: 1}}}},
		"the unit positive":          {{Variance: sigma, Leaves: []Leaf{&Sigmoid{FixedWidth: 1}}}},
		"it must be from 1 to 10":    {{Variance: sigma, Leaves: []Leaf{&Polynomial{Inputs: []int{0}, Degree: 11}}}},
		"must not be negative":       {{Variance: sigma, Leaves: []Leaf{&Polynomial{Inputs: []int{0}, Degree: 2, FixedOffset: -1}}}},
		"more than 1024 features":    {{Variance: sigma, Leaves: slices.Repeat([]Leaf{&Linear{Constant: true, Inputs: []int{0, 1}, Centres: []float64{0, 0}}}, 7)}},
		"the covariance has no name": {leaf(Stationary{Family: RBF, Inputs: []int{0}, Rates: []param.Param{{Role: param.Rate}}})},
	} {
		if _, err := New(2, terms...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"sigma*rbf(1-3:tau)", `a*rbf(1:u)*matern32(2:v[2],3:"odd name")+b*rbf(1:w)`, "=1e+30*linear(0,1:-2e-5,3)+a*linear(2)*rbf(1:u)", "a*sigmoid(2:1e-9:-3)*polynomial(1,3:4:0.25)", "a*sigmoid(2:c:=3:1:2:falling)*polynomial(1,3:4:o)+b*sigmoid(2:c:w:1:2)", "a*rbf(1-2:u,3:u)", "a*rbf(1:u,2:u,3:v)", "a*periodic(1:u:=1e-3:2)*rbf(2:=0.5)", "a*warped(rbf(1-2:u);2:p:=1:-1.7:1.7)*rbf(3:v)+b*warped(rq(1:u,3:v;al);1:p[1]:q:-2e-3:5;3:=2:=0.5:0:1)", "a*periodic(3:=2:p:7)", "a*rq(1-2:u;al)*wendland(3:=2)+b*rq(1:=1,2:=2;=0.5)", "a*cosine(1:p:2)*hamming(2-3:t)+b*cosine(2:=3:1)*hamming(1:=0.2)", `a*coregion(3:0:s:f.coregion:A,B,"-1")*rbf(1:u)+b*coregion(2:1:1:"":A,B,C,D)`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text, 3)
		if err != nil {
			return
		}
		again, err := Parse(c.String(), 3)
		if err != nil || again.String() != c.String() {
			t.Fatalf("%q is %v, which is read as %v: %v", text, c, again, err)
		}
	})
}

// The mean of cos(ωᵀΔ) over 10⁵ frequencies is the correlation within 5 standard
// errors (a false alarm in 10⁶ tests; the seed is fixed): of every family, and of
// sums and products.
func TestFrequenciesHaveTheSpectralDensity(t *testing.T) {
	var all []*Covariance
	for _, f := range Families() {
		all = append(all, Single(f, 2, true))
	}
	for _, text := range []string{"a*rbf(1-2:u)+b*matern32(2:v)", "a*rbf(1:u)*matern52(1-2:v)+b*matern12(1:w)", "a*matern32(1:u)*matern32(2:v)", "a*periodic(1:u:p:2)+b*rbf(2:v)",
		"a*rq(1-2:u;al)", "a*rq(1:u[1],2:u[2];=0.4)*matern32(1:v)", "a*cosine(1:p:2)*cosine(2:q:0.5)", "a*cosine(1:p:2)*rbf(1-2:u)",
		"a*linear(0,1:-1,2)*rbf(1:u)*linear(0,2)+b*rbf(2:v)", "a*polynomial(1,2:2:1)*rbf(1:u)*sigmoid(2:0.2:0.5)+b*rbf(2:v)"} {
		all = append(all, parse(t, text, 2))
	}
	for i, c := range all {
		theta := []float64{1.5, 0.5, 2, 0.7, 0.3}[:len(c.Params())]
		f := c.At(theta)
		x, y := []float64{0.3, 0.1}, []float64{-0.2, 0.4}
		r := rand.New(rand.NewPCG(1, uint64(i)))
		var sum, sq float64
		const n = 100_000
		w := make([]float64, 2)
		for range n {
			b := f.Amplitude(r, f.Frequency(r, w))
			cos := b(x) * b(y) * math.Cos(w[0]*(x[0]-y[0])+w[1]*(x[1]-y[1]))
			sum += cos
			sq += cos * cos
		}
		mean := sum / n
		se := math.Sqrt((sq/n - mean*mean) / n)
		if want := f.Correlation(x, y); math.Abs(mean-want) > 5*se {
			t.Errorf("%v: %v ± %v, want %v", c, mean, se, want)
		}
	}
}

func TestRates(t *testing.T) {
	f := parse(t, "a*rbf(1:u)*matern32(1-2:v)+b*matern12(2:w)", 3).At([]float64{3, 0.4, 0.2, 1, 0.8})
	got := make([]float64, 3)
	f.Rates(got)
	for k, want := range []float64{0.75 * (0.4 + 0.2), 0.75*0.2 + 0.25*0.8, 0} {
		if math.Abs(got[k]-want) > 1e-15 {
			t.Errorf("rate of input %d is %v, want %v", k+1, got[k], want)
		}
	}
}

// A periodic leaf is MacKay's function of the difference in the input's own unit, and repeats.
func TestPeriodic(t *testing.T) {
	const tau, period, unit = 0.7, 1.5, 4.0
	f := parse(t, "a*periodic(2:u:p:4)", 2).At([]float64{2, tau, period})
	for _, d := range []float64{0, 0.01, 0.2, 0.375, 1, 3.1} {
		x, y := []float64{5, 0.3 + d}, []float64{-1, 0.3}
		sin := math.Sin(math.Pi * unit * d / period)
		want := 2 * math.Exp(-4*tau*sin*sin)
		if got := f.Value(x, y); math.Abs(got-want) > 1e-14 {
			t.Errorf("k(%v) = %v, want %v", d, got, want)
		}
		y[1] -= 7 * period / unit
		if got := f.Value(x, y); math.Abs(got-want) > 1e-12 {
			t.Errorf("seven periods on k(%v) = %v, want %v", d, got, want)
		}
	}
	// Near a point it is an RBF of the rate that it is said to have.
	rates := make([]float64, 2)
	f.Rates(rates)
	const d = 1e-3
	if got, want := math.Log(f.Value([]float64{0, d}, []float64{0, 0})/2), -rates[1]*d*d; rates[0] != 0 || math.Abs(got/want-1) > 1e-4 {
		t.Errorf("log correlation %v, of the rates %v", got, rates)
	}
	for text, want := range map[string]string{
		"a*periodic(3:u:p:4)":    "want the number of an input",
		"a*periodic(1:u:p)":      "want a colon",
		"a*periodic(1:u:p:x)":    "want a number",
		"a*periodic(1:u:p:-1)":   "it must be positive",
		"a*periodic(1:=0:p:1)":   "has the rate 0",
		"a*periodic(1:u:=-2:1)":  "has the period -2",
		"a*periodic(1:u:p:1":     "want )",
		"a*periodic(1:u:u:1)":    "two roles",
		"a*rbf(1:=0)":            "they must be positive",
		"a*rbf(1:=2,2:u)":        "rates that are fixed and others",
		"a*periodic(1:u:=Inf:1)": "has the period +Inf",
	} {
		if _, err := Parse(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
