package sampler

import (
	"context"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// gibbs is for likelihoods that are Gaussian given auxiliary variables s, a diagonal of noise. An
// iteration draws
//
//	s  given ψ and f    row by row
//	ψ  given s          as the exact sampler does, with f integrated out
//	f  given ψ and s    by Matheron's rule: one Lanczos run and one solve
//	the likelihood's own parameters given f, without s, one at a time: by slices, without a product
//
// a partially collapsed Gibbs sampler (van Dyk and Park 2008): what the last step leaves out is drawn
// first in the next iteration. The own parameters move twice, with f and with s left out, since either
// alone is slow where s or f says much of them; but for those that are held while s is what it is. What a chain carries beside ψ is the latent function f at
// the training rows; it begins at zero.
type gibbs struct{ exact }

// gibbsWarmup is the number of its warm-up iterations: the mode and the curvature to begin with are
// those of a Gaussian stand-in for the likelihood.
const gibbsWarmup = 300

func (gibbs) Name() string             { return "gibbs" }
func (gibbs) Windows(o *Options) []int { return windows(or(o.Warmup, gibbsWarmup)) }

func (gibbs) Needs() Needs {
	return Needs{Subset: denseSubset, Joint: true, Probes: "whitened", Latent: 1, Augments: true, Exact: true}
}

func (gibbs) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	joint := env.Joint()
	if _, err := sgld.NewMetropolis(nil, t.Settings.Metric(), nil, false); err != nil {
		return nil, err
	}
	// The exact sampler's step of all parameters that are not held.
	free := len(k.State.Psi) - joint.Held()
	density := func(ctx context.Context, psi []float64) (float64, error) {
		return joint.Density(ctx, slices.Concat(psi, k.State.Psi[free:]))
	}
	metric := t.Settings.Metric().SliceSym(0, free).(*mat.SymDense)
	kern, err := sgld.NewMetropolis(density, metric, t.Settings.Mean[:free], t.Warmup)
	if err != nil {
		return nil, err
	}
	kern.Independent = exactIndependent
	part := &chains.Checkpoint{State: chains.State{Psi: k.State.Psi[:free:free], Memory: k.State.Memory}}
	move, err := metropolisStep(kern, part, func(ctx context.Context, _ []float64, key random.Key) (float64, error) {
		return joint.Refresh(ctx, k.State.Psi, key)
	})
	if err != nil {
		return nil, err
	}
	f := env.Latent()[0]
	return func(ctx context.Context, key random.Key) (Outcome, error) {
		joint.Renew(k.State.Psi, f, key)
		out, err := move(ctx, key)
		k.State.Memory = part.State.Memory
		if err == nil {
			err = joint.Draw(ctx, k.State.Psi, f, key)
		}
		if err != nil {
			return out, err
		}
		r := key.Stream(random.Accept, 1)
		for i := len(k.State.Psi) - joint.Own(); i < len(k.State.Psi); i++ {
			slice(r, k.State.Psi, i, func(psi []float64) float64 { return joint.Given(psi, f) })
		}
		return out, nil
	}, nil
}

// Constants of slices: the width that they begin with, and how often it is added to on either side.
const (
	sliceWidth = 0.5
	sliceSteps = 12
)

// slice moves element i of ψ by slice sampling with stepping out (Neal 2003, figures 3 and 5).
func slice(r *rand.Rand, psi []float64, i int, density func(psi []float64) float64) {
	x := slices.Clone(psi)
	at := func(v float64) float64 { x[i] = v; return density(x) }
	level := at(psi[i]) - r.ExpFloat64()
	lo := psi[i] - sliceWidth*r.Float64()
	hi := lo + sliceWidth
	left := r.IntN(sliceSteps)
	for right := sliceSteps - 1 - left; right > 0 && at(hi) > level; right-- {
		hi += sliceWidth
	}
	for ; left > 0 && at(lo) > level; left-- {
		lo -= sliceWidth
	}
	for {
		v := lo + (hi-lo)*r.Float64()
		if v == psi[i] || at(v) > level {
			psi[i] = v
			return
		}
		if v < psi[i] {
			lo = v
		} else {
			hi = v
		}
	}
}
