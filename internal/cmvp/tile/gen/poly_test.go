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
