package kernel

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"
)

// Derivatives of profiles are differences, in the distance and in the shape.
func TestShapedAgainstFiniteDifferences(t *testing.T) {
	for _, f := range Profiles() {
		for _, a := range []float64{3, 4.5, 0.2, 60} {
			for _, u := range []float64{0.01, 0.3, 1, 4, 20} {
				value := func(u, a float64) float64 { g, _, _ := f.Shaped(u, a); return g }
				if f.Compact() && a != 3 && a != 60 {
					continue // whose shape is a whole number
				}
				g, du, da := f.Shaped(u, a)
				if want := value(u, a); g != want {
					t.Errorf("%v: %v, then %v", f, g, want)
				}
				want := fd.Derivative(func(u float64) float64 { return value(u, a) }, u, &fd.Settings{Formula: fd.Central, Step: 1e-5 * u})
				if math.Abs(du-want) > 1e-7*math.Abs(want)+1e-12 {
					t.Errorf("%v: g'(%g) = %v at the shape %g, finite differences %v", f, u, du, a, want)
				}
				if f.Compact() {
					continue // there is no derivative in a whole number
				}
				want = a * fd.Derivative(func(a float64) float64 { return value(u, a) }, a, &fd.Settings{Formula: fd.Central, Step: 1e-4 * a})
				if math.Abs(da-want) > 1e-6*math.Abs(want)+1e-9 {
					t.Errorf("%v: derivative %v in the logarithm of the shape %g at %g, finite differences %v", f, da, a, u, want)
				}
			}
		}
	}
}

// The closed forms in the differences of inputs, with τ = 1/(2ℓ²).
func TestLeavesAreTheirFormulas(t *testing.T) {
	x, y := []float64{0.3, 1, 2}, []float64{-0.4, 1.5, 0}
	const ell, alpha, p = 1.3, 0.7, 2.5
	tau := 1 / (2 * ell * ell)
	wendland := func(r, l float64) float64 { return math.Pow(max(0, 1-r), l+1) * ((l+1)*r + 1) } // Wendland 2005, table 9.1
	pp2 := func(r, j float64) float64 {
		return math.Pow(1-r, j+2) * ((j*j+4*j+3)*r*r + (3*j+6)*r + 3) / 3
	}
	for text, want := range map[string]float64{
		// Rasmussen and Williams 2006, eq. 4.19.
		"a*rq(1-2:=0.29585798816568049;=0.7)": math.Pow(1+(0.7*0.7+0.5*0.5)/(2*alpha*ell*ell), -alpha),
		"a*rq(1:=0.29585798816568049;=1e9)":   math.Exp(-0.7 * 0.7 * tau),
		// The support is ℓ√(q(q+1)), q = ⌊d/2⌋+3.
		"a*wendland(1:=0.29585798816568049)":   wendland(0.7/(ell*math.Sqrt(12)), 2),
		"a*wendland(1-2:=0.29585798816568049)": wendland(math.Sqrt(0.49+0.25)/(ell*math.Sqrt(20)), 3),
		"a*wendland(1-3:=0.29585798816568049)": wendland(math.Sqrt(0.49+0.25+4)/(ell*math.Sqrt(20)), 3),
		"a*wendland(3:=3)":                     0, // beyond it
		// Rasmussen and Williams 2006, eq. 4.21, with j = ⌊d/2⌋+q+1, in units of the support: ℓj, and ℓ√((j+3)(j+4)/3).
		"a*wendland0(1:=0.29585798816568049)":   1 - 0.7/ell,
		"a*wendland0(1-2:=0.29585798816568049)": math.Pow(1-math.Sqrt(0.49+0.25)/(2*ell), 2),
		"a*wendland0(2-3:=1.2)":                 0,
		"a*wendland2(1:=0.29585798816568049)":   pp2(0.7/(ell*math.Sqrt(42./3)), 3),
		"a*wendland2(1-3:=0.29585798816568049)": pp2(math.Sqrt(0.49+0.25+4)/(ell*math.Sqrt(56./3)), 4),
		"a*wendland2(1-3:=5)":                   0,
		"a*cosine(1:=2.5:4)":                    math.Cos(2 * math.Pi * 0.7 * 4 / p),
		"a*hamming(1-3:=0.6)":                   math.Exp(-3 * 0.6),
	} {
		f := parse(t, text, 3).At([]float64{2})
		if got := f.Value(x, y) / 2; math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
		if got := f.Value(x, x); got != 2 {
			t.Errorf("%s is %v at equal points", text, got)
		}
	}
	f := parse(t, "a*hamming(1-2:t)", 2).At([]float64{3, 0.6})
	for differ, y := range [][]float64{{4, 7}, {4, 0}, {0, 1}} {
		if got, want := f.Value([]float64{4, 7}, y), 3*math.Exp(-0.6*float64(differ)); math.Abs(got-want) > 1e-15 {
			t.Errorf("%d differ: %v, want %v", differ, got, want)
		}
	}
}

// Near a point a leaf is an RBF of the rates that it is said to have.
func TestRatesOfLeaves(t *testing.T) {
	for _, text := range []string{"a*rq(2:u;=3)", "a*wendland(1-2:u)", "a*wendland2(1-2:u)", "a*cosine(2:=1.5:0.8)"} {
		c := parse(t, text, 2)
		f := c.At([]float64{1, 0.6}[:len(c.Params())])
		rates := make([]float64, 2)
		f.Rates(rates)
		const d = 1e-3
		if got, want := math.Log(f.Value([]float64{0, d}, []float64{0, 0})), -rates[1]*d*d; math.Abs(got/want-1) > 2e-3 {
			t.Errorf("%s: log correlation %v, of the rates %v", text, got, want)
		}
	}
}

// Matrices of the leaves have no negative eigenvalue but for rounding: of Wendland's function for each
// number of inputs that raises its exponent, where a smaller one would fail first on wide supports.
func TestPositiveDefinite(t *testing.T) {
	const n, dim = 60, 9
	r := rand.New(rand.NewPCG(5, 6))
	for _, text := range []string{"a*wendland(1:u)", "a*wendland(1-2:u)", "a*wendland(1-4:u)", "a*wendland(1-6:u)", "a*wendland(1-9:u)", "a*wendland0(1:u)", "a*wendland0(1-2:u)", "a*wendland0(1-5:u)", "a*wendland2(1:u)", "a*wendland2(1-3:u)", "a*wendland2(1-6:u)",
		"a*rq(1-2:u;=0.3)", "a*cosine(1:=1.7:1)", "a*hamming(1-2:u)"} {
		c := parse(t, text, dim)
		f := c.At([]float64{1, 0.05}[:len(c.Params())])
		x := make([][]float64, n)
		for i := range x {
			x[i] = make([]float64, dim)
			for k := range x[i] {
				if x[i][k] = r.NormFloat64(); strings.Contains(text, "hamming") {
					x[i][k] = float64(r.IntN(4))
				}
			}
		}
		k := mat.NewSymDense(n, nil)
		for i := range x {
			for j := range i + 1 {
				k.SetSym(i, j, f.Value(x[i], x[j]))
			}
		}
		var e mat.EigenSym
		if !e.Factorize(k, false) {
			t.Fatal("no eigenvalues")
		}
		if least := e.Values(nil)[0]; least < -1e-12*n {
			t.Errorf("%s has the eigenvalue %g", text, least)
		}
	}
}

// The spectral draws of a hamming leaf are for whole numbers.
func TestFrequenciesOfCategories(t *testing.T) {
	f := parse(t, "a*hamming(1-2:t)*rbf(3:u)", 3).At([]float64{1, 0.5, 0.4})
	if err := f.Spectral(); err != nil {
		t.Fatal(err)
	}
	x, w := []float64{5, 2, 0.3}, make([]float64, 3)
	r := rand.New(rand.NewPCG(3, 4))
	for _, y := range [][]float64{{5, 2, 0.3}, {5, 0, 0.1}, {1, 3, 1}} {
		const n = 100_000
		var sum float64
		for range n {
			f.Frequency(r, w)
			var a float64
			for k := range w {
				a += w[k] * (x[k] - y[k])
			}
			sum += math.Cos(a)
		}
		// 5 standard errors, of which one is 1/√n at most.
		if want := f.Correlation(x, y); math.Abs(sum/n-want) > 5/math.Sqrt(n) {
			t.Errorf("mean cosine %v, correlation %v", sum/n, want)
		}
	}
	if err := parse(t, "a*rbf(1:u)*wendland(2:v)", 2).At([]float64{1, 1, 1}).Spectral(); err == nil || !strings.Contains(err.Error(), "wendland(2:v)") {
		t.Errorf("draws from Wendland's spectral density: %v", err)
	}
}

func TestSlopesBesideCategories(t *testing.T) {
	c := parse(t, "a*rbf(1:u)*hamming(2:t)", 2)
	if err := c.Differentiable(); err != nil {
		t.Fatal(err)
	}
	dst := make([]float64, 2)
	c.At([]float64{2, 0.5, 0.3}).AddSlopes(dst, []float64{0.3, 1}, []float64{-0.2, 2})
	if want := -2 * 0.5 * 2 * 0.5 * math.Exp(-0.5*0.25-0.3); math.Abs(dst[0]-want) > 1e-15 || dst[1] != 0 {
		t.Errorf("slopes %v, want %v", dst, want)
	}
}

func TestBadLeaves(t *testing.T) {
	for text, want := range map[string]string{
		"a*rq(1:u)":             "has the shape 0",
		"a*rq(1:u;=-1)":         "has the shape -1",
		"a*rq(1:u;":             "want the name of a parameter",
		"a*rq(1:u;al":           "want )",
		"a*rq(1:u;u)":           "two roles",
		"a*rbf(1:u;al)":         "want , or )",
		"a*wendland(3:u)":       "want the number of an input",
		"a*cosine(1:p)":         "want a colon",
		"a*cosine(1:=0:1)":      "has the period 0",
		"a*cosine(1:=1:-1)":     "it must be positive",
		"a*hamming(1:u,2:v)":    "one parameter",
		"a*hamming(1:=0)":       "it must be positive",
		"a*hamming(1:u,1:u)":    "over input 1 twice",
		"a*hamming(1:u;al)":     "want , or )",
		"a*hamming(1:a)":        "two roles",
		"a*rbf(1:u)*hamming(2:": "want the name of a parameter",
	} {
		if _, err := Parse(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
