package predict

import (
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Functions from the prior have the covariance's variances and correlations, in the units of the target:
// of 4000 functions at one θ, within 5 standard errors.
func TestPriorFunctions(t *testing.T) {
	c, err := kernel.Parse("a*rbf(1:u)+b*periodic(1:v:=2:1)*rbf(2:w)+=100*linear(0)", 2)
	if err != nil {
		t.Fatal(err)
	}
	data := &dataset.Dataset{X: kernel.NewInputs(3, 2, []float64{0, 0.5, 1, -0.5, -1, 0.2}), Y: []float64{0, 1, -1},
		Info: dataset.Info{Rows: 3, InputNames: []string{"a", "b"}, XScale: []dataset.Scale{{Mean: 10, SD: 2}, {SD: 1}}, YScale: dataset.Scale{Mean: 7, SD: 3}}}
	theta := []float64{0.5, 0.8, 1.5, 0.4, 1}
	psi := c.Params().Sampled(theta)
	const n = 4000
	draws := make([][]float64, n)
	for j := range draws {
		draws[j] = psi
	}
	grid := []float64{10, 11, 14}
	f, err := PriorFunctions(c, data, 0, grid, draws, c.Params(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err = kernel.Parse("a*rbf(1:u)+b*periodic(1:v:=2:1)*rbf(2:w)", 2)
	if err != nil {
		t.Fatal(err)
	}
	at := c.At(theta)
	for i, u := range grid {
		for k, v := range grid {
			var sum float64
			for _, y := range f {
				sum += (y[i] - 7) * (y[k] - 7) / n
			}
			want := 9 * at.Value([]float64{(u - 10) / 2, 0}, []float64{(v - 10) / 2, 0})
			if se := 9 * 2 * math.Sqrt(2./n); math.Abs(sum-want) > 5*se { // the variance is 2 of standardised targets
				t.Errorf("covariance of %g and %g: %v, want %v ± %v", u, v, sum, want, se)
			}
		}
	}
}
