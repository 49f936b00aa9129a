package predict

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// The coefficients of the mean are those of Bayesian generalised least squares: given θ their precision is
// HᵀK⁻¹H + I/b², their mean that times HᵀK⁻¹y, with K the covariance without the mean, H its features and b the
// prior's sd (Rasmussen and Williams, 2006, eq. 2.41).
func TestCoefficients(t *testing.T) {
	plain, err := kernel.Parse("a*matern52(1-2:w)+b*rbf(2:v)", 2)
	if err != nil {
		t.Fatal(err)
	}
	term := func(name string, l kernel.Linear) kernel.Term {
		return kernel.Term{Variance: param.Param{Term: name}, Fixed: job.MeanSD * job.MeanSD, Leaves: []kernel.Leaf{&l}}
	}
	cov, err := plain.Plus(term("mean", kernel.Linear{Constant: true}), term("mean_x", kernel.Linear{Inputs: []int{0}, Centres: []float64{0}}))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := exampleOf(cov, 120, 1, 3)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	got, stats, err := p.Coefficients(t.Context(), Options{Tolerance: 1e-8})
	if err != nil || stats.Unconverged > 0 || stats.Draws != 3 {
		t.Fatal(stats, err)
	}
	n := len(c.Problem.Y)
	y := mat.NewVecDense(n, c.Problem.Y)
	h := mat.NewDense(n, 2, nil)
	for i := range n {
		h.SetRow(i, []float64{1, c.Problem.Inputs.Row(i)[0]})
	}
	for s, psi := range c.Draws {
		theta, noise := c.Problem.At(psi)
		f := plain.At(theta)
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
		var kh, precision, cov mat.Dense
		var ky, hy, mean mat.VecDense
		if err := chol.SolveTo(&kh, h); err != nil {
			t.Fatal(err)
		}
		if err := chol.SolveVecTo(&ky, y); err != nil {
			t.Fatal(err)
		}
		precision.Mul(h.T(), &kh)
		for i := range 2 {
			precision.Set(i, i, precision.At(i, i)+1.0/(job.MeanSD*job.MeanSD))
		}
		if err := cov.Inverse(&precision); err != nil {
			t.Fatal(err)
		}
		hy.MulVec(h.T(), &ky)
		mean.MulVec(&cov, &hy)
		for i := range 2 {
			sd := math.Sqrt(cov.At(i, i))
			if d := math.Abs(got.Mean[s][i] - mean.AtVec(i)); d > 1e-5*sd {
				t.Errorf("draw %d, coefficient %d: mean %v, want %v", s, i, got.Mean[s][i], mean.AtVec(i))
			}
			if d := math.Abs(math.Sqrt(got.Var[s][i])/sd - 1); d > 1e-6 {
				t.Errorf("draw %d, coefficient %d: sd %v, want %v", s, i, math.Sqrt(got.Var[s][i]), sd)
			}
		}
	}
	none, _ := exampleOf(plain, 20, 1, 1)
	if p, err = New(none); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Coefficients(t.Context(), Options{}); err == nil {
		t.Error("a model without a mean has coefficients")
	}
}
