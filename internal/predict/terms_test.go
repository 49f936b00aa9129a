package predict

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// The terms are what dense algebra says of sums of Gaussian variables, and add up to the whole.
func TestTerms(t *testing.T) {
	cov, err := kernel.Parse("a*rbf(1:u)*periodic(2:v:=1.5:1)+b*matern52(1-2:w)+c*rbf(2:=0.3)+=100*linear(0,1)+d*linear(2:0.5)", 2)
	if err != nil {
		t.Fatal(err)
	}
	c, points := exampleOf(cov, 150, 20, 3)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	got, stats, err := p.Terms(t.Context(), points, Options{Tolerance: 1e-8})
	if err != nil || stats.Unconverged > 0 || stats.Rows != 20 {
		t.Fatal(stats, err)
	}
	whole, _, err := p.Predict(t.Context(), points, Options{Tolerance: 1e-8, Latent: true})
	if err != nil {
		t.Fatal(err)
	}
	n := len(c.Problem.Y)
	for s, psi := range c.Draws {
		theta, noise := c.Problem.At(psi)
		f := cov.At(theta)
		k := mat.NewSymDense(n, nil)
		for i := range n {
			for j := range i + 1 {
				k.SetSym(i, j, f.Value(c.Problem.Inputs.Row(i), c.Problem.Inputs.Row(j)))
			}
			k.SetSym(i, i, k.At(i, i)+noise[min(i, len(noise)-1)])
		}
		var chol mat.Cholesky
		if !chol.Factorize(k) {
			t.Fatal("singular")
		}
		// The terms by their formulas, written out here: theta is a, u, v, b, w, c, d.
		at := []func(x, y []float64) float64{
			func(x, y []float64) float64 {
				sin := math.Sin(math.Pi * (x[1] - y[1]) / 1.5)
				return theta[0] * math.Exp(-theta[1]*(x[0]-y[0])*(x[0]-y[0])-4*theta[2]*sin*sin)
			},
			func(x, y []float64) float64 {
				a := math.Sqrt(10 * theta[4] * ((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1])))
				return theta[3] * (1 + a + a*a/3) * math.Exp(-a)
			},
			func(x, y []float64) float64 { return theta[5] * math.Exp(-0.3*(x[1]-y[1])*(x[1]-y[1])) },
			func(x, y []float64) float64 { return 100 * (1 + x[0]*y[0]) },
			func(x, y []float64) float64 { return theta[6] * (x[1] - 0.5) * (y[1] - 0.5) },
		}
		for i := range points.Len() {
			var sum float64
			for term, value := range at {
				row := mat.NewVecDense(n, nil)
				for j := range n {
					row.SetVec(j, value(points.Row(i), c.Problem.Inputs.Row(j)))
				}
				var x mat.VecDense
				if err := chol.SolveVecTo(&x, row); err != nil {
					t.Fatal(err)
				}
				mean, variance := mat.Dot(&x, mat.NewVecDense(n, c.Problem.Y)), value(points.Row(i), points.Row(i))-mat.Dot(&x, row)
				g := len(at)*i + term
				if d := math.Abs(got.Mean[s][g] - mean); d > 1e-7 {
					t.Errorf("draw %d, row %d, term %d: mean %v, want %v", s, i, term, got.Mean[s][g], mean)
				}
				if d := math.Abs(math.Sqrt(got.Var[s][g]) - math.Sqrt(variance)); d > 1e-6*math.Sqrt(variance) {
					t.Errorf("draw %d, row %d, term %d: sd %v, want %v", s, i, term, math.Sqrt(got.Var[s][g]), math.Sqrt(variance))
				}
				sum += got.Mean[s][g]
			}
			if math.Abs(sum-whole.Mean[s][i]) > 1e-9 {
				t.Errorf("draw %d, row %d: the terms add up to %v, the whole is %v", s, i, sum, whole.Mean[s][i])
			}
		}
	}
}
