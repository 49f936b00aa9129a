package study

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// The truths agree with integrals over the marginals' distribution functions.
func TestTruths(t *testing.T) {
	for _, target := range Targets() {
		for i, cdf := range target.cdf {
			// E x = ∫ (1−F) over x > 0 less ∫ F over x < 0, and so for the square.
			integral := func(f func(x float64) float64) float64 {
				return quad.Fixed(func(x float64) float64 { return f(x) * (1 - cdf(x)) }, 0, 40, 4000, nil, 0) -
					quad.Fixed(func(x float64) float64 { return f(x) * cdf(x) }, -40, 0, 4000, nil, 0)
			}
			mean := integral(func(float64) float64 { return 1 })
			square := integral(func(x float64) float64 { return 2 * x })
			if math.Abs(mean-target.mean[i]) > 1e-4 {
				t.Errorf("%s: mean %d is %v, want %v", target.Name, i+1, target.mean[i], mean)
			}
			if sd := math.Sqrt(square - mean*mean); math.Abs(sd-target.sd[i]) > 1e-4 {
				t.Errorf("%s: sd %d is %v, want %v", target.Name, i+1, target.sd[i], sd)
			}
		}
	}
}

// Stated errors are as large as the true ones. Over 40 runs of a target the mean square of
// an estimate's error over its standard error is 1 ± 0.22 if the errors are right; averaged
// over a target's ten or more estimates, which depend on each other, it is beyond [0.5,1.6]
// with a probability below one in a thousand. bench/accuracy makes 200 runs.
func TestStatedErrors(t *testing.T) {
	runs := 40
	if testing.Short() {
		runs = 10
	}
	b := parallel.NewBudget(0)
	for _, target := range Targets() {
		var square, count float64
		for seed := range runs {
			results, err := Run(context.Background(), target, Default, uint64(seed), b)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				square += r.Z() * r.Z()
				count++
			}
		}
		lo, hi := 0.5, 1.6
		if testing.Short() {
			lo, hi = 0.3, 2.5
		}
		if m := square / count; m < lo || m > hi {
			t.Errorf("%s: the mean square of error over stated error is %.2f", target.Name, m)
		}
	}
}
