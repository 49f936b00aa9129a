package sampler

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// rough is a posterior of one row: ψ ~ N(0,1), f ~ N(0,e^ψ), y = f + e with e logistic, 3 ± 1. Its augmentation has no auxiliary
// variables and a normal likelihood, which is far from the right one.
type rough struct{ Joint }

const (
	roughTarget, roughNoise = 3.0, 2.0
)

func roughLikelihood(f float64) float64 {
	e := math.Abs(roughTarget - f)
	return -e - 2*math.Log1p(math.Exp(-e))
}

func roughPrior(psi float64) float64 { return -psi * psi / 2 }

func (rough) Own() int      { return 0 }
func (rough) Held() int     { return 0 }
func (rough) Scales() []int { return nil }

func (rough) Refresh(ctx context.Context, psi []float64, _ random.Key) (float64, error) {
	return rough{}.Density(ctx, psi)
}

func (rough) Density(_ context.Context, psi []float64) (float64, error) {
	v := math.Exp(psi[0]) + roughNoise
	return roughPrior(psi[0]) - math.Log(v)/2 - roughTarget*roughTarget/(2*v), nil
}

func (rough) Renew(_, _ []float64, _ random.Key) {}

func (rough) Draw(_ context.Context, psi, f []float64, key random.Key) error {
	v := 1 / (math.Exp(-psi[0]) + 1/roughNoise)
	f[0] = v*roughTarget/roughNoise + math.Sqrt(v)*key.Stream(random.Latent, 0).NormFloat64()
	return nil
}

func (rough) Excess(_, f []float64) float64 {
	return roughLikelihood(f[0]) + (f[0]-roughTarget)*(f[0]-roughTarget)/(2*roughNoise)
}

type roughEnv struct {
	Env
	latent [][]float64
}

func (roughEnv) Joint() Joint          { return rough{} }
func (e roughEnv) Latent() [][]float64 { return e.latent }

// Whole iterations under a likelihood that is far from the right one are corrected to those under the right one: the moments of ψ and f
// are those of a quadrature. In warm-up they are not. Each comparison is at 5 standard errors by batches; what is not corrected is
// ten of these off.
func TestCorrectionIsExact(t *testing.T) {
	const draws, batches = 20_000, 50
	joint := func(psi, f float64) float64 {
		return math.Exp(roughPrior(psi) - psi/2 - f*f/(2*math.Exp(psi)) + roughLikelihood(f))
	}
	over := func(g func(psi, f float64) float64) float64 {
		return quad.Fixed(func(psi float64) float64 {
			return quad.Fixed(func(f float64) float64 { return g(psi, f) * joint(psi, f) }, -12, 16, 300, nil, 0)
		}, -6, 6, 120, nil, 0)
	}
	z := over(func(_, _ float64) float64 { return 1 })
	want := []float64{over(func(psi, _ float64) float64 { return psi }) / z, over(func(_, f float64) float64 { return f }) / z,
		over(func(_, f float64) float64 { return f * f }) / z}
	settings := chains.Settings{C: []float64{0.8}, Mean: []float64{0.3}}
	for _, warmup := range []bool{false, true} {
		k := &chains.Checkpoint{State: chains.State{Psi: []float64{0}}}
		env := roughEnv{latent: [][]float64{{1}}}
		step, err := gibbs{}.Start(env, &Options{}, nil, &chains.Task{Settings: settings, Warmup: warmup}, k)
		if err != nil {
			t.Fatal(err)
		}
		x := make([][]float64, 3)
		kept := 0.0
		for i := range draws {
			out, err := step(t.Context(), random.Key{Seed: 4, Iter: i})
			if err != nil {
				t.Fatal(err)
			}
			kept += out.Correction / draws
			f := env.latent[0][0]
			for j, v := range []float64{k.State.Psi[0], f, f * f} {
				x[j] = append(x[j], v)
			}
		}
		if kept > 0.97 || kept < 0.5 {
			t.Errorf("%.3f of the iterations are kept: the likelihood is not far", kept)
		}
		worst := 0.0
		for j := range x {
			var means []float64
			for b := range batches {
				means = append(means, stat.Mean(x[j][b*draws/batches:(b+1)*draws/batches], nil))
			}
			m, sd := stat.MeanStdDev(means, nil)
			worst = max(worst, math.Abs(m-want[j])/(sd/math.Sqrt(batches)))
		}
		if warmup && worst < 10 || !warmup && worst > 5 {
			t.Errorf("warm-up %v: %.1f standard errors off", warmup, worst)
		}
		t.Logf("warm-up %v: kept %.3f, %.1f standard errors off", warmup, kept, worst)
	}
}
