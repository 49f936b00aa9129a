package sampler

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// elliptical is for likelihoods that are log-concave in the latent function f, of some thousands of rows, where a stored factor of K can be
// afforded. A chain carries ν, coordinates in which Laplace's approximation of p(f|ψ,y) is standard normal (White). An iteration draws
//
//	ν  given ψ   by elliptical slices: independent of where it was, if the approximation is exact
//	ψ  given ν   by Metropolis–Hastings, with proposals as the exact sampler has them: f moves along
//
// Both leave p(ψ,f|y) as it is, however good the approximation. Given ν, ψ sees nearly the approximate marginal density, as if f were
// integrated out; so chains mix where f given ψ, or auxiliary variables, would hold ψ where it is. ν begins at zero: f at its mode.
// Of several latent functions (likelihood.Several), which need not be log-concave together, f is all of them.
type elliptical struct{}

const (
	ellipticalWarmup = 100
	// ellipticalSlices is how often ν moves in an iteration: a slice takes much less than a proposal of ψ.
	ellipticalSlices = 5
)

func (elliptical) Name() string                    { return "elliptical" }
func (elliptical) Section() any                    { return nil }
func (elliptical) Check(*Options) (string, string) { return "", "" }
func (elliptical) Windows(o *Options) []int        { return windows(or(o.Warmup, ellipticalWarmup)) }
func (elliptical) Statistics() []string            { return []string{AcceptanceRate, "seconds"} }

func (elliptical) Needs() Needs {
	return Needs{Search: ByDensity, Subset: denseSubset, Dense: true, Latent: 1, Augments: true, Laplace: true, Several: true, Exact: true}
}

func (elliptical) Adapt(r *chains.Run, s *chains.Settings, mean []float64) error {
	return exact{}.Adapt(r, s, mean)
}

func (elliptical) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	density := func(ctx context.Context, psi []float64) (float64, error) {
		return env.White().Density(ctx, psi, env.Latent()[0])
	}
	kern, err := sgld.NewMetropolis(density, t.Settings.Metric(), t.Settings.Mean, t.Warmup)
	if err != nil {
		return nil, err
	}
	kern.Independent = exactIndependent
	return metropolisStep(kern, k, func(ctx context.Context, psi []float64, key random.Key) (float64, error) {
		r := key.Stream(random.Latent, 0)
		for range ellipticalSlices {
			if err := env.White().Slice(ctx, psi, env.Latent()[0], r); err != nil {
				return 0, err
			}
		}
		return density(ctx, psi)
	})
}
