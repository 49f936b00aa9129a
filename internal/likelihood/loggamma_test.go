package likelihood

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Where a likelihood is not negligible beside its largest value, or would be visited under it, its mixture is the same function: an
// error of 10⁻⁴ in the mean of draws from it, of 10⁻² four standard deviations out.
func TestMixturesAreTheLikelihood(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, a := range []float64{0, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50, 100, 300, 1000, 1e4, 1e6} {
		c := curveOf(a)
		share := make([]float64, len(c.normals))
		difference := func(x float64) float64 { v, _ := c.near(x, share); return v - c.value(x) }
		if len(c.normals) < 3 || len(c.normals) > 60 {
			t.Errorf("shape %g: %d components", a, len(c.normals))
		}
		var square, precision float64
		const n = 4000
		for range n {
			x := -3 + r.NormFloat64()
			if a > 0 {
				x = math.Log(distuv.Gamma{Alpha: a, Beta: 1, Src: r}.Rand())
			}
			square += difference(x) * difference(x) / n
			_, total := c.near(x, share)
			for k, p := range c.normals {
				precision += share[k] / total / p.variance / n
			}
		}
		if rms := math.Sqrt(square); rms > 2e-4 {
			t.Errorf("shape %g: error %.2g", a, rms)
		}
		t.Logf("shape %g: %d components, error %.1e, precision %.3g", a, len(c.normals), math.Sqrt(square), precision)
		for z := -4.0; a > 0 && z <= 4; z++ { // sds of the root of the gamma variable
			x := 2 * math.Log(max(math.Sqrt(a)+z/2, math.Sqrt(a)/3))
			if d := difference(x); math.Abs(d) > 0.01 && c.value(x)-c.top() > -8 {
				t.Errorf("shape %g: %g sds out the error is %.2g", a, z, d)
			}
		}
	}
	for _, x := range []float64{-29, -15, -8, -1, 0, 1} { // no events
		share := make([]float64, len(curveOf(0).normals))
		if v, _ := curveOf(0).near(x, share); math.Abs(v+math.Exp(x)) > 1e-3 {
			t.Errorf("shape 0 at %g: %v, want %v", x, v, -math.Exp(x))
		}
	}
}

// What is known of a sum of two exponentials of positive weight comes back; where a weight would be negative it is 0, and the
// conditions of Karush, Kuhn and Tucker hold.
func TestNonnegative(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for trial := range 50 {
		a, b := mat.NewDense(30, 8, nil), mat.NewVecDense(30, nil)
		for k := range 8 {
			var norm float64
			for j := range 30 {
				a.Set(j, k, r.NormFloat64()+1)
				norm += a.At(j, k) * a.At(j, k)
			}
			for j := range 30 {
				a.Set(j, k, a.At(j, k)/math.Sqrt(norm))
			}
		}
		want := make([]float64, 8)
		for k := range want {
			want[k] = max(0, r.NormFloat64())
		}
		b.MulVec(a, mat.NewVecDense(8, want))
		if trial%2 == 1 {
			for j := range 30 {
				b.SetVec(j, b.AtVec(j)+r.NormFloat64())
			}
		}
		x := nonnegative(a, b)
		var rest, g mat.VecDense
		rest.MulVec(a, mat.NewVecDense(8, x))
		rest.SubVec(b, &rest)
		g.MulVec(a.T(), &rest)
		for k, v := range x {
			if v < 0 || v > 0 && math.Abs(g.AtVec(k)) > 1e-6 || v == 0 && g.AtVec(k) > 1e-6 || trial%2 == 0 && math.Abs(v-want[k]) > 1e-5 {
				t.Errorf("trial %d: x %v, slopes %v, want %v", trial, x, mat.Formatted(g.T()), want)
				break
			}
		}
	}
}
