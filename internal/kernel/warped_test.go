package kernel

import (
	"math"
	"strings"
	"testing"
)

// A warped leaf is the stationary one at points that the formula bends, and itself where the exponents are one.
func TestWarped(t *testing.T) {
	const tau, lo, hi = 0.7, -1.5, 2.5
	c := parse(t, "=1*warped(matern52(1-2:u);2:p:q:-1.5:2.5)", 2)
	plain := parse(t, "=1*matern52(1-2:u)", 2).At([]float64{tau})
	bend := func(x, a, b float64) float64 {
		u := max(0, min(1, (x-lo)/(hi-lo)))
		return lo + (hi-lo)*(1-math.Pow(1-math.Pow(u, a), b))
	}
	if c.Stationary() {
		t.Error("it is no function of the difference")
	}
	for _, p := range []struct{ a, b float64 }{{1, 1}, {2, 0.5}, {0.3, 3}, {7, 9}} {
		f := c.At([]float64{tau, p.a, p.b})
		for _, x := range []float64{-9, lo, lo + 1e-3, 0, 2, hi - 1e-3, hi, 9} {
			a, b := []float64{0.3, x}, []float64{-0.2, 0.4}
			want := plain.Value([]float64{0.3, bend(x, p.a, p.b)}, []float64{-0.2, bend(0.4, p.a, p.b)})
			if got := f.Value(a, b); math.Abs(got-want) > 1e-14 {
				t.Errorf("a %g, b %g: k(%g) = %v, want %v", p.a, p.b, x, got, want)
			}
			if p.a == 1 && p.b == 1 && x >= lo && x <= hi && math.Abs(f.Value(a, b)-plain.Value(a, b)) > 1e-14 {
				t.Errorf("k(%g) of exponents of one is not that without a warp", x)
			}
		}
	}
}

// At the ends, and at parameters however large or small, a warp and its derivatives are finite.
func TestWarpedIsFinite(t *testing.T) {
	c := parse(t, "=1*warped(rbf(1:u);1:p:q:0:1)", 1)
	for _, a := range []float64{1e-300, 1e-3, 1, 1e3, 1e300} {
		for _, b := range []float64{1e-300, 1e-3, 1, 1e3, 1e300} {
			f := c.At([]float64{0.5, a, b})
			for _, x := range []float64{-1, 0, 5e-324, 1e-9, 0.5, 1 - 1e-16, 1, 2} {
				grad, slope := make([]float64, 3), make([]float64, 1)
				f.AddGradient(grad, 1, []float64{x}, []float64{0.3})
				f.AddSlopes(slope, []float64{x}, []float64{0.3})
				for _, v := range append(grad, slope[0], f.Value([]float64{x}, []float64{0.3})) {
					if math.IsNaN(v) || math.IsInf(v, 0) {
						t.Fatalf("a %g, b %g, x %g: gradient %v, slope %v", a, b, x, grad, slope)
					}
				}
			}
		}
	}
}

func TestBadWarps(t *testing.T) {
	for text, want := range map[string]string{
		"a*warped(rbf(1:u))":                               "has no warp",
		"a*warped(rbf(1:u);2:p:q:0:1)":                     "warps input 2",
		"a*warped(rbf(1:u);1:p:q:0:1;1:p:q:0:1)":           "warped twice",
		"a*warped(rbf(1:u);1:p:q:1:1)":                     "the second the larger",
		"a*warped(rbf(1:u);1:p:q:0:Inf)":                   "both must be finite",
		"a*warped(rbf(1:u);1:=0:q:0:1)":                    "they must be positive",
		"a*warped(rbf(1:u);1:u:q:0:1)":                     "two roles",
		"a*warped(linear(1);1:p:q:0:1)":                    "cannot be warped",
		"a*warped(warped(rbf(1:u);1:p:q:0:1);1:p:q:0:1)":   "a warped leaf in another",
		"a*warped(rbf(1:u);1:p:q:0)":                       "want a colon",
		"a*warped(rbf(1:u);1:p:q:0:1":                      "want ; or )",
		"a*warped(rbf(1:u);3:p:q:0:1)":                     "want the number of an input",
		"a*warped(rbf(1:u);1:p:q:x:1)":                     "want a number",
		"a*warped(coregion(1:0:1:f:A,B);1:p:q:-2e-3:1e+3)": "cannot be warped",
	} {
		if _, err := Parse(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
