package posterior

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/diff/fd"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// featureModels have parameters in the features of inputs, of low rank and in products.
var featureModels = []string{
	"a*warped(matern52(1:u[1],2:u[2]);1:p[1]:q[1]:-5:5;2:p[2]:=1.4:-5:5)*rbf(3:v)+b*warped(rq(1-3:v;=2);3:p[3]:q[3]:-4:5)",
	"a*sigmoid(1:c:w:0.2:1.5)*rbf(1-3:u)+b*sigmoid(1:c:w:0.2:1.5:falling)+d*polynomial(2,3:2:o)",
}

// featureProblem returns a problem whose places have normal priors and whose widths have uniform ones.
func featureProblem(t *testing.T, text string) (*Problem, []float64) {
	t.Helper()
	p := testProblem(t, kernel.RBF, 60, 3, false)
	c, err := kernel.Parse(text, 3)
	if err != nil {
		t.Fatal(err)
	}
	priors := map[param.Role]string{param.Variance: "gamma(1,1)", param.Rate: "invgamma(2,1)", param.Noise: "halfnormal(1)", param.Place: "normal(0.3,2)",
		param.Width: "uniform(0.1,3)", param.Offset: "lognormal(0,1)", param.Exponent: "lognormal(0,0.7)"}
	p.Model = NewModel(c, likelihood.Gaussian{}, func(q param.Param) param.Prior {
		prior, err := q.ParsePrior(priors[q.Role])
		if err != nil {
			t.Fatal(err)
		}
		return prior
	})
	psi := make([]float64, p.NumParams())
	for i := range psi {
		psi[i] = 0.4 - 0.15*float64(i)
	}
	return p, psi
}

// The gradients by a stored factor and of dense algebra are those of differences of the density in ψ, whatever
// scale a parameter is sampled on, and so are the forms uᵀ(∂K)v.
func TestGradientsOfParametersOfFeatures(t *testing.T) {
	for _, text := range featureModels {
		p, psi := featureProblem(t, text)
		d := NewDense(p, parallel.NewBudget(2))
		want := fd.Gradient(nil, d.LogDensity, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5})
		dense, ok := d.Gradient(psi)
		if !ok {
			t.Fatal("singular")
		}
		e, err := NewStored(p, parallel.NewBudget(2)).At(t.Context(), psi, true)
		if err != nil || e == nil {
			t.Fatal(e, err)
		}
		_, prior := p.LogPrior(psi)
		op := cmvp.New(p.Inputs, p.Covariance, parallel.NewBudget(2))
		op.Set(p.At(psi))
		u, v := [][]float64{p.Y}, [][]float64{make([]float64, len(p.Y))}
		for i := range v[0] {
			v[0][i] = math.Cos(float64(i))
		}
		got, err := forms(t.Context(), p, op, psi, u, v, []int{0}, 1)
		if err != nil {
			t.Fatal(err)
		}
		form := fd.Gradient(nil, func(psi []float64) float64 {
			theta, noise := p.At(psi)
			k := p.Covariance.At(theta)
			var sum float64
			for i, a := range u[0] {
				for j, b := range v[0] {
					sum += a * b * k.Value(p.Inputs.Row(i), p.Inputs.Row(j))
				}
				sum += a * v[0][i] * element(noise, i)
			}
			return sum
		}, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5})
		for i, name := range p.Names() {
			stored := prior[i] - (e.LogDetGrad[i]+e.QuadGrad[i])/2
			for what, x := range map[string][2]float64{"dense": {dense[i], want[i]}, "stored": {stored, want[i]}, "form": {got[0][i], form[i]}} {
				if math.Abs(x[0]-x[1]) > 1e-5*(1+math.Abs(x[1])) {
					t.Errorf("%s: %s derivative by %s is %v, differences %v", text, what, name, x[0], x[1])
				}
			}
		}
	}
}
