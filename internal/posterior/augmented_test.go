package posterior

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/diff/fd"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// heavy is Student's t noise of 4 degrees of freedom as a mixture of normals:
// given the state w of a row, its noise is λ/w, and w given the residual is gamma.
// It stands for what has a state, noise that differs between rows, and
// pseudo-targets, which here are shifted by half.
type heavy struct{ likelihood.Gaussian }

const freedom = 4

func (h heavy) Augmentation() likelihood.Augmentation { return h }

func (heavy) Width() int { return 1 }

func (heavy) Refresh(r *rand.Rand, state, theta, y, f []float64) {
	for i := range state {
		d := y[i] - f[i]
		shape, rate := (freedom+1)/2.0, (freedom+d*d/theta[0])/2
		state[i] = gamma(r, shape) / rate
	}
}

// gamma draws from the gamma distribution of shape 5/2: a sum of squares.
func gamma(r *rand.Rand, shape float64) float64 {
	var sum float64
	for range int(2 * shape) {
		z := r.NormFloat64()
		sum += z * z / 2
	}
	return sum
}

func (heavy) Targets(y, _ []float64) []float64 {
	z := make([]float64, len(y))
	for i := range y {
		z[i] = y[i] + 0.5
	}
	return z
}

func (heavy) Noise(theta, state []float64) []float64 {
	noise := make([]float64, len(state))
	for i, w := range state {
		noise[i] = theta[0] / w
	}
	return noise
}

func (h heavy) NoiseGradient(theta, state []float64) [][]float64 {
	return [][]float64{h.Noise(theta, state)}
}

// A likelihood with a state goes all the way: the oracle's gradient is that of
// differences, the estimator's is the oracle's, for every kind of probe, and for a
// subset of the rows.
func TestAugmentedLikelihood(t *testing.T) {
	c, err := kernel.Parse("a*rbf(1-3:u)+b*matern32(2:v)*rbf(1:w[1],3:w[2])", 3)
	if err != nil {
		t.Fatal(err)
	}
	plain := testProblem(t, kernel.RBF, 60, 3, false)
	m := testModel(t, c)
	m.Likelihood = heavy{}
	p := NewProblem(m, plain.Inputs, plain.Y)
	p.State = make([]float64, 60)
	p.Likelihood.Augmentation().Refresh(random.Key{Seed: 5}.Stream(random.Synthetic, 0), p.State, []float64{0.1}, p.Y, make([]float64, 60))
	rows := []int{3, 4, 7, 11, 12, 20, 21, 30, 41, 42, 43, 44, 50, 51, 52, 55, 56, 57, 58, 59}
	for _, p := range []*Problem{p, p.Subset(rows)} {
		n := len(p.Y)
		d := NewDense(p, parallel.NewBudget(2))
		psi := testPsi(p.Model)
		want, ok := d.Gradient(psi)
		if !ok {
			t.Fatal("singular")
		}
		for i, g := range fd.Gradient(nil, d.LogDensity, psi, &fd.Settings{Formula: fd.Central, Step: 1e-5}) {
			if math.Abs(g-want[i]) > 1e-5*(1+math.Abs(g)) {
				t.Errorf("n=%d: derivative by %s is %v, differences %v", n, p.Params[i].Name(), want[i], g)
			}
		}
		for _, kind := range []ProbeKind{Whitened, Rademacher, Pathwise} {
			e := newTestEstimator(t, p, psi, kind, nil, 1)
			e.basis()
			g, err := e.Gradient(context.Background(), psi, random.Key{Seed: 1}, n, false)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if math.Abs(g.Value[i]-want[i]) > 1e-5*math.Abs(want[i])+1e-7 {
					t.Errorf("n=%d probes=%d: g of %s is %v, want %v", n, kind, p.Params[i].Name(), g.Value[i], want[i])
				}
			}
		}
	}
}

// A subset has the states of its rows.
func TestSubsetOfStates(t *testing.T) {
	plain := testProblem(t, kernel.RBF, 10, 1, false)
	m := plain.Model
	m.Likelihood = heavy{}
	p := NewProblem(m, plain.Inputs, plain.Y)
	for i := range p.Y {
		p.State[i] = float64(1 + i)
	}
	_, noise := p.Subset([]int{2, 9}).At([]float64{0, 0, 0})
	if len(noise) != 2 || noise[0] != 1./3 || noise[1] != 1./10 {
		t.Errorf("noise %v", noise)
	}
}
