package posterior

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

func inducingProblems(t *testing.T) map[string]*Problem {
	t.Helper()
	plain := testProblem(t, kernel.RBF, 30, 2, false)
	counts, signs, offset := make([]float64, 30), make([]float64, 30), make([]float64, 30)
	for i, y := range plain.Y {
		counts[i], offset[i] = math.Round(math.Exp(max(y, -1)+0.5)), 0.1*float64(i%4)
		if y > 0 {
			signs[i] = 1
		}
	}
	prior, err := param.ParsePrior("lognormal(0,1)", param.Variance)
	if err != nil {
		t.Fatal(err)
	}
	problem := func(l likelihood.Likelihood, y []float64) *Problem {
		p := NewProblem(NewModel(plain.Covariance, l, func(param.Param) param.Prior { return prior }), plain.Inputs, y)
		p.Offset = offset
		return p
	}
	return map[string]*Problem{"gaussian": plain, "logit": problem(likelihood.Bernoulli{}, signs),
		"negative-binomial": problem(likelihood.NegativeBinomial{}, counts), "poisson": problem(likelihood.Poisson{}, counts)}
}

// Gradients in ψ, the likelihood's own parameters and priors with it, and in v are those of differences; the slope of the response is
// that of the mean.
func TestInducing(t *testing.T) {
	ctx := context.Background()
	for name, p := range inducingProblems(t) {
		psi := make([]float64, p.NumParams())
		for i := range psi {
			psi[i] = 0.2 - 0.3*float64(i)
		}
		d := NewInducing(p, p.Inputs.Select([]int{3, 9, 17, 25}), 1, parallel.NewBudget(1))
		v := []float64{0.3, -1, 0.6, 0.1}
		value, byPsi, byV, err := d.Gradient(ctx, psi, v)
		if err != nil {
			t.Fatal(err)
		}
		if other, _, _ := d.Density(ctx, psi, v); other != value {
			t.Errorf("%s: densities %v and %v", name, other, value)
		}
		byV = slices.Clone(byV)
		compare := func(what string, got, want []float64) {
			t.Helper()
			for i, w := range want {
				if math.Abs(got[i]-w) > 1e-5*(1+math.Abs(w)) {
					t.Errorf("%s: derivative %d by %s is %.9g, differences %.9g", name, i, what, got[i], w)
				}
			}
		}
		settings := &fd.Settings{Formula: fd.Central, Step: 1e-5}
		compare("ψ", byPsi, fd.Gradient(nil, func(x []float64) float64 { y, _, _ := d.Density(ctx, x, v); return y }, psi, settings))
		compare("v", byV, fd.Gradient(nil, func(x []float64) float64 { y, _, _ := d.Density(ctx, psi, x); return y }, v, settings))
		_, _, slope, err := d.Response(ctx, psi, []float64{1e-3, 1e-3, 1e-3}[:len(psi)])
		if err != nil {
			t.Fatal(err)
		}
		for k := range psi {
			x := slices.Clone(psi)
			x[k] += 1e-3
			up, _, _, _ := d.Normal(ctx, x)
			x[k] -= 2e-3
			down, _, _, _ := d.Normal(ctx, x)
			for j := range v {
				if want := (up[j] - down[j]) / 2e-3; math.Abs(slope.At(j, k)-want) > 1e-9*(1+math.Abs(want)) {
					t.Errorf("%s: slope %d, %d is %v, want %v", name, j, k, slope.At(j, k), want)
				}
			}
		}
		if v, g, err := d.Density(ctx, slices.Repeat([]float64{math.NaN()}, len(psi)), v); !math.IsInf(v, -1) || g != nil || err != nil {
			t.Errorf("where there is no density: %v, %v, %v", v, g, err)
		}
	}
}

// Draws of v given ψ have the mean and variance of quadrature over v of one inducing input, within five standard errors (of which a false
// alarm is rarer than one in 10⁵), and latent values those that they lead to.
func TestInducingDraws(t *testing.T) {
	ctx := context.Background()
	p := inducingProblems(t)["poisson"]
	psi, seed := []float64{-1, 0.5}, uint64(3)
	d := NewInducing(p, p.Inputs.Select([]int{9}), seed, parallel.NewBudget(1))
	var total, mean, square float64
	for x := -6.0; x <= 6; x += 0.01 {
		value, _, err := d.Density(ctx, psi, []float64{x})
		if err != nil {
			t.Fatal(err)
		}
		w := math.Exp(value + 80)
		total, mean, square = total+w, mean+w*x, square+w*x*x
	}
	mean, square = mean/total, square/total
	sd := math.Sqrt(square - mean*mean)
	const draws = 1500
	var got, spread float64
	for i := range draws {
		v, err := d.Draw(ctx, psi, random.Key{Seed: seed, Iter: i})
		if err != nil {
			t.Fatal(err)
		}
		got += v[0] / draws
		spread += (v[0] - mean) * (v[0] - mean) / draws
	}
	if math.Abs(got-mean) > 5*sd/math.Sqrt(draws) || math.Abs(spread-sd*sd) > 5*sd*sd*math.Sqrt(3.0/draws) {
		t.Errorf("draws of mean %.4f and variance %.4f, by quadrature %.4f and %.4f", got, spread, mean, sd*sd)
	}
	v, err := d.Draw(ctx, psi, random.Key{Seed: seed, Iter: int(random.Place(psi) >> 1)})
	if err != nil {
		t.Fatal(err)
	}
	m, variance, err := d.Latent(ctx, psi, p.Inputs.Select([]int{9, 4}))
	if err != nil {
		t.Fatal(err)
	}
	f, z := p.Function(psi), p.Inputs.Row(9)
	prior := f.Value(z, z)
	k := f.Value(p.Inputs.Row(4), z)
	if math.Abs(m[0]-math.Sqrt(prior)*v[0]) > 1e-6 || math.Abs(variance[0]) > 1e-6 ||
		math.Abs(m[1]-k/math.Sqrt(prior)*v[0]) > 1e-6 || math.Abs(variance[1]-(f.Variance(p.Inputs.Row(4))-k*k/prior)) > 1e-6 {
		t.Errorf("latent means %v and variances %v of v = %v", m, variance, v)
	}
}

// Under Gaussian noise draws of v are those of the closed form, and latent values the average over them, which is SGPR's.
func TestInducingDrawsOfGaussianNoise(t *testing.T) {
	ctx := context.Background()
	p := inducingProblems(t)["gaussian"]
	psi := []float64{0.2, -0.1, -1}
	d := NewInducing(p, p.Inputs.Select([]int{3, 9}), 1, parallel.NewBudget(1))
	mean, root, _, err := d.Normal(ctx, psi)
	if err != nil {
		t.Fatal(err)
	}
	var cov mat.Dense
	cov.Mul(root.T(), root)
	const draws = 4000
	sum, square := make([]float64, 2), mat.NewDense(2, 2, nil)
	for i := range draws {
		v, err := d.Draw(ctx, psi, random.Key{Seed: 2, Iter: i})
		if err != nil {
			t.Fatal(err)
		}
		for j := range v {
			sum[j] += (v[j] - mean[j]) / draws
			for k := range v {
				square.Set(j, k, square.At(j, k)+(v[j]-mean[j])*(v[k]-mean[k])/draws)
			}
		}
	}
	for j := range sum {
		if math.Abs(sum[j]) > 5*math.Sqrt(cov.At(j, j)/draws) { // a false alarm in 10⁶
			t.Errorf("variable %d is %.4g away from the mean", j, sum[j])
		}
		for k := range sum {
			scale := math.Sqrt(cov.At(j, j) * cov.At(k, k))
			if math.Abs(square.At(j, k)-cov.At(j, k)) > 5*scale*math.Sqrt(2.0/draws) {
				t.Errorf("covariance %d, %d is %.4g, want %.4g", j, k, square.At(j, k), cov.At(j, k))
			}
		}
	}
	m, variance, err := d.Latent(ctx, psi, p.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	wantMean, wantVariance, err := NewSparse(p, "sgpr", p.Inputs.Select([]int{3, 9}), parallel.NewBudget(1)).Latent(ctx, psi, p.Inputs)
	if err != nil || !slices.Equal(m, wantMean) || !slices.Equal(variance, wantVariance) {
		t.Errorf("latent values are not SGPR's (%v)", err)
	}
}
