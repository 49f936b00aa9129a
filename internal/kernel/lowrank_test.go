package kernel

import (
	"math"
	"slices"
	"testing"
)

// A linear leaf is what its formula says: the covariance of lines through their centres.
func TestLinear(t *testing.T) {
	f := parse(t, "a*linear(0,1,3:-0.5)+=100*linear(2)+b*linear(2)*rbf(1:u)", 3).At([]float64{2, 3, 0.7})
	x, y := []float64{1.5, -2, 0.25}, []float64{-1, 4, 1}
	want := 2*(1-1.5+0.75*1.5) - 100*8 - 3*8*math.Exp(-0.7*6.25)
	if got := f.Value(x, y); math.Abs(got-want) > 1e-12*math.Abs(want) {
		t.Errorf("k = %v, want %v", got, want)
	}
	if f.Scale() != 105 {
		t.Errorf("scale %v", f.Scale())
	}
}

// Sigmoids and polynomials are what their formulas say.
func TestSigmoidAndPolynomial(t *testing.T) {
	f := parse(t, "a*sigmoid(1:0.5:2)+b*sigmoid(1:0.5:-2)*rbf(2:u)+=3*polynomial(1,3:3:0.5)", 3).At([]float64{2, 5, 0.7})
	x, y := []float64{1.5, -2, 0.25}, []float64{-1, 4, 1}
	s := func(x float64) float64 { return 1 / (1 + math.Exp(-(x-0.5)/2)) }
	want := 2*s(1.5)*s(-1) + 5*(1-s(1.5))*(1-s(-1))*math.Exp(-0.7*36) + 3*math.Pow(0.5-1.5+0.25, 3)
	if got := f.Value(x, y); math.Abs(got-want) > 1e-13*math.Abs(want) {
		t.Errorf("k = %v, want %v", got, want)
	}
}

// The parts of a covariance add up to it: the dot product of the features, and the rest. Each knows its
// parameters.
func TestLowRank(t *testing.T) {
	for _, x := range []struct {
		text, pairs string
		low         []int
		rank        int
		at          []int
	}{
		{"a*rbf(1:u)", "a*rbf(1:u)", nil, 0, []int{0, 1}},
		{"a*linear(1,2)", "", []int{0}, 2, nil},
		{"a*polynomial(1,2,3:4:0.5)*sigmoid(1:0:1)", "", []int{0}, 35, nil},
		{"a*polynomial(1,2,3:3:0)", "", []int{0}, 10, nil},
		{"a*linear(0,1)*linear(2,3)*linear(1,2,3)+b*rbf(1:u)*linear(1)+=9*linear(0)", "b*rbf(1:u)*linear(1)", []int{0, 2}, 13, []int{1, 2}},
	} {
		c := parse(t, x.text, 3)
		pairs, at := c.Pairs()
		if !slices.Equal(c.LowRank(), x.low) || c.Rank() != x.rank || !slices.Equal(at, x.at) {
			t.Errorf("%s: terms %v of low rank %d, parameters %v", x.text, c.LowRank(), c.Rank(), at)
		}
		if pairs == nil && x.pairs != "" || pairs != nil && pairs.String() != x.pairs {
			t.Errorf("%s: pairs %v, want %s", x.text, pairs, x.pairs)
		}
		f := c.At([]float64{1.5, 0.3, 0.8}[:len(c.Params())])
		p, q := []float64{1.5, -2, 0.25}, []float64{-1, 4, 1}
		a, b := make([]float64, c.Rank()), make([]float64, c.Rank())
		f.Features(a, p)
		f.Features(b, q)
		var sum float64
		if f.Pairs() != nil {
			sum = f.Pairs().Value(p, q)
		}
		for i := range a {
			sum += a[i] * b[i]
		}
		if want := f.Value(p, q); math.Abs(sum-want) > 1e-13*math.Abs(want) {
			t.Errorf("%s: the parts add up to %v, want %v", x.text, sum, want)
		}
	}
}
