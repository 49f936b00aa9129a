package kernel

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Slopes and their variances are the differences of k, whatever the sum or the product. k is smooth away from
// equal points; there the variance of a difference quotient tends to that of the slope, of a Matérn 3/2 with
// the first power of the step.
func TestSlopesAgainstFiniteDifferences(t *testing.T) {
	const h = 1e-5
	for text, near := range map[string]float64{
		"a*rbf(1-3:u)":        1e-4,
		"a*matern52(1:u,2:v)": 1e-4,
		"a*matern32(1-3:u)":   1e-3,
		"a*warped(matern52(1-2:u);2:p:q:-6:6)*rbf(3:v)+b*warped(rq(1:w,3:v;al);1:=2:=0.7:-6:7;3:=1:=1:-9:9)": 1e-3,
		"a*rq(1-2:u;al)*wendland(1-3:v)+b*rq(3:w;=0.6)":                                                      1e-3,
		"a*cosine(1:p:0.5)*rbf(1-2:u)+b*cosine(3:=2:0.7)":                                                    1e-4,
		"a*periodic(1:u:p:0.4)*rbf(2:v)+b*periodic(3:=0.3:=2:1)":                                             1e-4,
		"a*rbf(1:u)*matern52(1-2:v)+b*rbf(3:w)*rbf(2:u)+a*matern32(1-3:v)":                                   1e-3,
		"a*linear(1,2:0.3)+=3*linear(0,3)*linear(1,3)*rbf(2:u)+b*linear(1)*linear(1)*linear(0,1:-1)":         1e-3,
		"a*polynomial(1,2:3:0.5)+b*sigmoid(1:0.3:-0.8)*rbf(1-2:u)*polynomial(1,3:1:0)+=2*sigmoid(3:0:1)":     5e-3, // rounding of cubes
	} {
		r := rand.New(rand.NewPCG(1, 2))
		c := parse(t, text, 3)
		theta := make([]float64, len(c.Params()))
		for i := range theta {
			theta[i] = 0.3 + r.Float64()
		}
		f := c.At(theta)
		if err := c.Differentiable(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			x, y := []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}, []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}
			slopes, variances, zero := make([]float64, 3), make([]float64, 3), make([]float64, 3)
			f.AddSlopes(slopes, x, y)
			f.AddSlopeVariances(variances, x)
			f.AddSlopes(zero, x, x)
			for k := range x {
				up, down := append([]float64{}, x...), append([]float64{}, x...)
				up[k] += h
				down[k] -= h
				if want := (f.Value(up, y) - f.Value(down, y)) / (2 * h); math.Abs(slopes[k]-want) > 1e-6*(1+math.Abs(want)) { // of the third derivative
					t.Errorf("%s: slope %g along input %d, by differences %g", text, slopes[k], k+1, want)
				}
				want := (f.Value(up, up) - 2*f.Value(up, down) + f.Value(down, down)) / (4 * h * h)
				if math.Abs(variances[k]-want) > near*(1+want) {
					t.Errorf("%s: a slope's variance %g along input %d, by differences %g", text, variances[k], k+1, want)
				}
				if c.Stationary() && zero[k] != 0 {
					t.Errorf("%s: the slope of the variance is %g", text, zero[k])
				}
			}
		}
	}
}

func TestNotDifferentiable(t *testing.T) {
	err := parse(t, "a*rbf(1:u)+b*matern12(2:v)*rbf(1:u)", 2).Differentiable()
	if err == nil || !strings.Contains(err.Error(), "matern12(2:v) have no gradient") {
		t.Errorf("error %v", err)
	}
}
