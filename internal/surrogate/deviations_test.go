package surrogate

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// The draws of a model's errors have the variances that Variances tells, of differences
// between points: 4,000 draws, within five standard errors of a variance, 5·√(2/4000) = 11 %.
func TestDeviationsHaveTheVariances(t *testing.T) {
	b := parallel.NewBudget(2)
	for _, values := range []bool{false, true} {
		r := rand.New(rand.NewPCG(7, 7))
		w := skewed(t, 3)
		obs := observations(w, wavy, 60, 0.3, values, r)
		poly, err := FitPolynomial(ctx, w, obs, 3, b)
		if err != nil {
			t.Fatal(err)
		}
		proc, err := FitProcess(ctx, w, obs, Gaussian, 2, b)
		if err != nil {
			t.Fatal(err)
		}
		points := [][]float64{point(w, r, 1), point(w, r, 1), point(w, r, 2), point(w, r, 3)}
		for _, m := range []Model{poly, proc, ScaleFree(4, []int{0}, 3, 50).Lift(poly)} {
			if _, lifted := m.(*lifted); lifted {
				for i := range points {
					points[i] = append(points[i], 0.3)
				}
			}
			var weights [][]float64
			for i := range points {
				for j := range i {
					x := make([]float64, len(points))
					x[i], x[j] = 1, -1
					weights = append(weights, x)
				}
			}
			want := m.Variances(points, weights)
			draws := m.Deviations(points, 4000, func(i int) *rand.Rand { return rand.New(rand.NewPCG(1, uint64(i))) })
			for q, x := range weights {
				var d []float64
				for _, draw := range draws {
					v := 0.0
					for i, xi := range x {
						v += xi * draw[i]
					}
					d = append(d, v)
				}
				if got := stat.Variance(d, nil); math.Abs(got/want[q]-1) > 0.112 {
					t.Errorf("%s, values %v: variance %v of draws, %v told", m.Name(), values, got, want[q])
				}
			}
		}
	}
}
