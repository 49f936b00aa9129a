package kernel

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
)

func TestDerivAgainstFiniteDifferences(t *testing.T) {
	for _, f := range Families() {
		for _, u := range []float64{0.01, 0.3, 1, 4, 20} {
			want := fd.Derivative(f.Value, u, &fd.Settings{Formula: fd.Central, Step: 1e-5 * u})
			if got := f.Deriv(u); math.Abs(got-want) > 1e-7*math.Abs(want) {
				t.Errorf("%v: g'(%g) = %v, finite differences %v", f, u, got, want)
			}
		}
	}
}

func TestValueAtZeroIsOneAndDecreases(t *testing.T) {
	for _, f := range Families() {
		if g := f.Value(0); g != 1 {
			t.Errorf("%v: g(0) = %v", f, g)
		}
		prev := 1.0
		for u := 1e-6; u < 1e4; u *= 3 {
			g := f.Value(u)
			if g > prev || g < 0 || math.IsNaN(g) {
				t.Errorf("%v: g(%g) = %v after %v", f, u, g, prev)
			}
			prev = g
		}
		if d := f.Deriv(0) * 0; d != 0 {
			t.Errorf("%v: g'(0)·0 = %v", f, d)
		}
	}
}

// The same ℓ must mean the same length-scale: the standard forms in the
// distance r over ℓ (Rasmussen and Williams 2006, section 4.2).
func TestLengthscaleMeansTheSame(t *testing.T) {
	const ell, r = 0.7, 1.3
	u := r * r / (2 * ell * ell)
	q := r / ell
	want := map[Family]float64{
		RBF:      math.Exp(-q * q / 2),
		Matern12: math.Exp(-q),
		Matern32: (1 + math.Sqrt(3)*q) * math.Exp(-math.Sqrt(3)*q),
		Matern52: (1 + math.Sqrt(5)*q + 5*q*q/3) * math.Exp(-math.Sqrt(5)*q),
	}
	for f, w := range want {
		if got := f.Value(u); math.Abs(got-w) > 1e-15 {
			t.Errorf("%v: %v, want %v", f, got, w)
		}
	}
	if l := Lengthscale(1 / (2 * ell * ell)); math.Abs(l-ell) > 1e-15 {
		t.Errorf("Lengthscale = %v, want %v", l, ell)
	}
}

func TestParseFamily(t *testing.T) {
	if _, err := ParseFamily("rfb"); err == nil {
		t.Error("ParseFamily accepted rfb")
	}
	for _, f := range Families() {
		if g, err := ParseFamily(f.String()); err != nil || g != f {
			t.Errorf("ParseFamily(%v) = %v, %v", f, g, err)
		}
	}
}
