package main

import (
	"math"
	"testing"
)

// The error is what the comments promise, and 2^0 is exact.
func TestExp2Poly(t *testing.T) {
	for _, c := range []struct {
		degree int
		width  float64
		most   float64
	}{{6, 1.0 / 8, 1.1e-15}, {10, 1, 3.2e-16}, {5, 1, 1.2e-7}} {
		coef := exp2Poly(c.degree, c.width)
		if len(coef) != c.degree+1 || coef[0] != 1 {
			t.Fatalf("coefficients %v", coef)
		}
		var worst float64
		for i := range 1000 {
			// In exact arithmetic, so that only the approximation is seen.
			r := num(c.width * float64(i) / 999)
			p := num(0)
			for k := c.degree; k >= 0; k-- {
				p = add(mul(p, r), num(coef[k]))
			}
			e, _ := quo(sub(p, exp2(r)), exp2(r)).Float64()
			worst = max(worst, math.Abs(e))
		}
		if worst > c.most || worst < c.most/3 {
			t.Errorf("degree %d on [0,%v]: error %.3g, promised %.3g", c.degree, c.width, worst, c.most)
		}
	}
}

func TestLog2Poly(t *testing.T) {
	for _, c := range []struct {
		degree int
		most   float64
	}{{7, 4e-17}, {3, 4e-9}} {
		coef := log2Poly(c.degree, 1.0/25)
		var worst float64
		for i := 1; i < 100; i++ {
			x := 0.2 * float64(i) / 99 // t
			p := num(0)
			for k := c.degree; k >= 0; k-- {
				p = add(mul(p, num(x*x)), num(coef[k]))
			}
			// log₂((1+t)/(1−t)) as the root of 2^y, by Newton's method from float64.
			want, y := quo(add(num(1), num(x)), sub(num(1), num(x))), num(math.Log2((1+x)/(1-x)))
			for range 2 {
				e := exp2(y)
				y = sub(y, quo(sub(e, want), mul(e, ln2Big())))
			}
			e, _ := quo(sub(mul(p, num(x)), y), y).Float64()
			worst = max(worst, math.Abs(e))
		}
		if worst > c.most || worst < c.most/10 {
			t.Errorf("degree %d: error %.3g, promised %.3g", c.degree, worst, c.most)
		}
	}
}
