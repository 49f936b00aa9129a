package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The mean of cos(ωᵀΔ) over 10⁵ frequencies is g(u) within 5 standard errors
// (a false alarm in 10⁶ tests; the seed is fixed).
func TestFrequenciesHaveTheSpectralDensity(t *testing.T) {
	p := Params{Sigma: 1, Tau: []float64{0.5, 2}}
	x, y := []float64{0.3, 0.1}, []float64{-0.2, 0.4}
	for _, f := range Families() {
		r := rand.New(rand.NewPCG(1, uint64(f)))
		var sum, sq float64
		const n = 100_000
		w := make([]float64, 2)
		for range n {
			f.Frequency(r, p, w)
			c := math.Cos(w[0]*(x[0]-y[0]) + w[1]*(x[1]-y[1]))
			sum += c
			sq += c * c
		}
		mean := sum / n
		se := math.Sqrt((sq/n - mean*mean) / n)
		if want := f.Value(p.Dist(x, y)); math.Abs(mean-want) > 5*se {
			t.Errorf("%v: %v ± %v, want %v", f, mean, se, want)
		}
	}
}
