package sampler

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// f | ψ ~ N(0, (σ₁+σ₂)·1) drawn afresh, and the scale moved: ψ has its prior, independent normals, and of a second
// chain the posterior under y = f + e, by the same moments of a long run in which ψ walks at random. A move
// whose volume element was wrong, e^(nδ), would be off by sds. Each comparison is at 5 standard errors by batches.
func TestRescaleLeavesTheJointDensityInvariant(t *testing.T) {
	const n, draws, batches = 3, 30_000, 50
	y := []float64{1.5, -2, 0.4}
	for _, data := range []bool{false, true} {
		given := func(psi, f []float64) float64 {
			sum := -psi[0]*psi[0]/2 - (psi[1]-0.3)*(psi[1]-0.3)/(2*0.49)
			for i := range y {
				if data {
					sum -= (y[i] - f[i]) * (y[i] - f[i]) / 2
				}
			}
			return sum
		}
		run := func(scaled bool) (mean, se [2]float64) {
			r, psi, f := rand.New(rand.NewPCG(2, 3)), []float64{0, 0}, make([]float64, n)
			var x [2][]float64
			for range draws {
				v := math.Exp(psi[0]) + math.Exp(psi[1])
				for i := range f { // f | ψ, y
					f[i] = math.Sqrt(v) * r.NormFloat64()
					if data {
						f[i] = v/(1+v)*y[i] + math.Sqrt(v/(1+v))*r.NormFloat64()
					}
				}
				if scaled {
					rescale(r, psi, f, []int{0, 1}, given)
				}
				for i := range psi { // ψ | f, one at a time
					density := func(at float64) float64 {
						psi[i] = at
						v, sum := math.Exp(psi[0])+math.Exp(psi[1]), given(psi, f)
						for _, x := range f {
							sum -= (math.Log(v) + x*x/v) / 2
						}
						return sum
					}
					if !scaled || i == 0 {
						slice(r, psi[i], density)
					}
					x[i] = append(x[i], psi[i])
				}
			}
			for i := range x {
				var means []float64
				for b := range batches {
					means = append(means, stat.Mean(x[i][b*draws/batches:(b+1)*draws/batches], nil))
				}
				m, sd := stat.MeanStdDev(means, nil)
				mean[i], se[i] = m, sd/math.Sqrt(batches)
			}
			return mean, se
		}
		want, wantError := [2]float64{0, 0.3}, [2]float64{}
		if data {
			want, wantError = run(false)
		}
		got, errors := run(true)
		for i := range got {
			if e := math.Hypot(errors[i], wantError[i]); math.Abs(got[i]-want[i]) > 5*e {
				t.Errorf("data %v: the mean of ψ%d is %.3f, want %.3f ± %.3f", data, i+1, got[i], want[i], e)
			}
		}
	}
}
