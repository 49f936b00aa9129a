package likelihood

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

func TestGaussianDensity(t *testing.T) {
	theta := []float64{0.7}
	for _, y := range []float64{-2, 0.3} {
		for _, f := range []float64{-1, 0, 1.5} {
			value, score, curvature := Gaussian{}.LogDensity(theta, y, f)
			if want := (distuv.Normal{Mu: f, Sigma: math.Sqrt(0.7)}).LogProb(y); math.Abs(value-want) > 1e-14 {
				t.Errorf("log density %v, want %v", value, want)
			}
			of := func(f float64) float64 { v, _, _ := Gaussian{}.LogDensity(theta, y, f); return v }
			if want := fd.Derivative(of, f, &fd.Settings{Formula: fd.Central}); math.Abs(score-want) > 1e-6 {
				t.Errorf("score %v, differences %v", score, want)
			}
			if want := -fd.Derivative(of, f, &fd.Settings{Formula: fd.Central2nd}); math.Abs(curvature-want) > 1e-5 {
				t.Errorf("curvature %v, differences %v", curvature, want)
			}
		}
	}
}

// Without state: the targets are y, the noise is λ, and its derivative that by log λ.
func TestGaussianIsItsOwnAugmentation(t *testing.T) {
	a, y := Gaussian{}.Augmentation(), []float64{1, 2}
	theta := Gaussian{}.Params().Natural([]float64{-0.4})
	if z := a.Targets(y, nil); a.Width() != 0 || &z[0] != &y[0] {
		t.Errorf("%d numbers of state, targets %v", a.Width(), z)
	}
	noise := func(psi float64) float64 { return a.Noise(Gaussian{}.Params().Natural([]float64{psi}), nil)[0] }
	if got, want := a.NoiseGradient(theta, nil)[0][0], fd.Derivative(noise, -0.4, nil); math.Abs(got-want) > 1e-6 || noise(-0.4) != theta[0] {
		t.Errorf("noise %v, derivative %v, differences %v", noise(-0.4), got, want)
	}
}

func TestGaussianCheck(t *testing.T) {
	if err := (Gaussian{}).Check([]float64{1, -2}); err != nil {
		t.Error(err)
	}
	if err := (Gaussian{}).Check([]float64{1, math.NaN()}); err == nil || !strings.Contains(err.Error(), "the target of row 2 is NaN") {
		t.Errorf("got %v", err)
	}
}

// The predictive density is ∫p(y|f)N(f)df averaged over the draws, and targets
// drawn from it have its moments, within 5 standard errors.
func TestGaussianPredicts(t *testing.T) {
	theta := [][]float64{{0.5}, {0.1}}
	mean, variance := []float64{0.3, -0.4}, []float64{0.2, 0.6}
	p := Gaussian{}.Predict(theta, mean, variance)
	for _, y := range []float64{-1, 0.2, 2} {
		want := 0.0
		for i, th := range theta {
			f := distuv.Normal{Mu: mean[i], Sigma: math.Sqrt(variance[i])}
			want += quad.Fixed(func(x float64) float64 {
				v, _, _ := Gaussian{}.LogDensity(th, y, x)
				return math.Exp(v) * f.Prob(x) / 2
			}, -10, 10, 500, nil, 0)
		}
		if got := math.Exp(p.LogDensity(y)); math.Abs(got-want) > 1e-10 {
			t.Errorf("density %v at %v, want %v", got, y, want)
		}
	}
	const n = 20_000
	r, x := rand.New(rand.NewPCG(1, 2)), make([]float64, n)
	for i := range x {
		x[i] = Gaussian{}.Draw(r, theta[i%2], mean[i%2], variance[i%2])
	}
	m, sd := p.Moments()
	if got := stat.Mean(x, nil); math.Abs(got-m) > 5*sd/math.Sqrt(n) {
		t.Errorf("targets have the mean %v, want %v", got, m)
	}
	if got := stat.Variance(x, nil); math.Abs(got/(sd*sd)-1) > 5*math.Sqrt(2./n) {
		t.Errorf("targets have the variance %v, want %v", got, sd*sd)
	}
}

// The closed expectation under counts is that of a quadrature, and score and weight are its derivatives.
func TestExpectationOfCounts(t *testing.T) {
	at := func(y, mean, variance float64) (sum float64) {
		const h = 0.01
		for z := -9.0; z <= 9; z += h {
			v, _, _ := Poisson{}.LogDensity(nil, y, mean+math.Sqrt(variance)*z)
			sum += h * math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) * v
		}
		return sum
	}
	for _, x := range [][3]float64{{0, -0.5, 0.3}, {3, 1.1, 0.8}, {12, 2.2, 0.05}} {
		const h = 1e-4
		value, score, weight := Poisson{}.Expectation(nil, x[0], x[1], x[2])
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"value", value, at(x[0], x[1], x[2])},
			{"score", score, (at(x[0], x[1]+h, x[2]) - at(x[0], x[1]-h, x[2])) / (2 * h)},
			{"weight", weight, -(at(x[0], x[1], x[2]+h) - at(x[0], x[1], x[2]-h)) / h},
		} {
			if math.Abs(c.got-c.want) > 1e-6*(1+math.Abs(c.want)) {
				t.Errorf("%v: %s %.9g, by quadrature %.9g", x, c.name, c.got, c.want)
			}
		}
	}
}
