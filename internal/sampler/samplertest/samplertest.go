// Package samplertest has, for tests, a method whose chains carry latent vectors.
// Who imports it has it registered.
package samplertest

import (
	"context"
	"math"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Chaotic is the name of the method.
const Chaotic = "chaotic"

func init() { sampler.Register(chaotic{}) }

// chaotic draws from no posterior. Its two latent vectors follow coupled logistic
// maps with random kicks, and every draw is a function of all of their numbers: the
// maps roughly double an error at each step, so that one bit that is lost
// at a checkpoint is in the draws some eighty iterations later.
type chaotic struct{}

func (chaotic) Name() string                                         { return Chaotic }
func (chaotic) Section() any                                         { return nil }
func (chaotic) Check(*sampler.Options) (string, string)              { return "", "" }
func (chaotic) Statistics() []string                                 { return []string{"seconds"} }
func (chaotic) Windows(o *sampler.Options) []int                     { return []int{max(o.Warmup, 1)} }
func (chaotic) Adapt(*chains.Run, *chains.Settings, []float64) error { return nil }

func (chaotic) Needs() sampler.Needs {
	return sampler.Needs{Search: sampler.OnSubset, Subset: 100, Latent: 2}
}

func (chaotic) Start(env sampler.Env, _ *sampler.Options, _ *chains.Plan, _ *chains.Task, k *chains.Checkpoint) (sampler.Step, error) {
	v := env.Latent()
	return func(ctx context.Context, key random.Key) (sampler.Outcome, error) {
		Advance(v, key)
		for i := range k.State.Psi {
			k.State.Psi[i] = draw(v, i)
		}
		return sampler.Outcome{}, ctx.Err()
	}, nil
}

// Advance moves the latent vectors by the iteration that the key names.
func Advance(v [][]float64, key random.Key) {
	r := key.Stream(random.Noise, 0)
	u, w := v[0], v[1]
	n := len(u)
	if key.Iter == 1 {
		for j := range u {
			u[j], w[j] = r.Float64(), r.Float64()
		}
	}
	for j := range u {
		u[j] = logistic(0.98*u[j] + 0.015*w[(j+1)%n] + 0.005*r.Float64())
	}
	for j := range w {
		w[j] = logistic(0.98*w[j] + 0.015*u[(j+1)%n] + 0.005*r.Float64())
	}
}

func logistic(x float64) float64 { return 3.99 * x * (1 - x) }

// draw returns parameter i of a draw, within ±1.
func draw(v [][]float64, i int) float64 {
	sum := 0.0
	for l := range v {
		for j, x := range v[l] {
			sum += x * math.Cos(float64(1+i+l+j))
		}
	}
	return math.Sin(sum)
}
