package likelihood

import (
	"math"
	"testing"
)

// What is told of a function has, to six digits, the moments of the mixture over the draws: of noise, which is lognormal, and of a function itself.
func TestQuantityMoments(t *testing.T) {
	theta, mean, variance := [][]float64{{0.5}, {2}}, []float64{0.3, -1}, []float64{0.4, 2.5}
	told := Heteroscedastic{}.Latents()
	var first, second float64
	for k := range theta {
		first += math.Sqrt(theta[k][0]) * math.Exp(mean[k]/2+variance[k]/8) / 2
		second += theta[k][0] * math.Exp(mean[k]+variance[k]/2) / 2
	}
	if m, sd := told[1].Moments(1, 2, theta, mean, variance); math.Abs(m-first) > 1e-8 || math.Abs(sd*sd-(second-first*first)) > 1e-6 {
		t.Errorf("%s: %v ± %v, want %v ± %v", told[1].Name, m, sd, first, math.Sqrt(second-first*first))
	}
	if m, sd := told[0].Moments(0, 2, theta, mean, variance); math.Abs(m+0.35) > 1e-9 || math.Abs(sd*sd-(0.4+2.5)/2-0.65*0.65) > 1e-8 {
		t.Errorf("%s: %v ± %v", told[0].Name, m, sd)
	}
	shares := Categorical{Classes: []string{"a", "b"}}.Expected()
	if p, q := shares[0].Of(nil, []float64{1, 3}), shares[1].Of(nil, []float64{1, 3}); math.Abs(p+q-1) > 1e-15 || math.Abs(q-1/(1+math.Exp(-2))) > 1e-15 || shares[1].Name != "p[b]" {
		t.Errorf("%s: %v and %v", shares[1].Name, p, q)
	}
}
