package sampler

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
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
//	the scale of f, with the variances of K_f, where the target does not fix it: by slices, too
//
// a partially collapsed Gibbs sampler (van Dyk and Park 2008): what the last step leaves out is drawn
// first in the next iteration. The own parameters move twice, with f and with s left out, since either
// alone is slow where s or f says much of them; but for those that are held while s is what it is. What a chain carries beside ψ is the latent function f at
// the training rows; it begins at zero.
//
// Where the auxiliary variables are of a likelihood p̃ that is only near p, the first three moves together are a reversible step under p̃:
// s is drawn given f, ψ moves reversibly given s, and f is drawn given both. They are kept with the probability
// min(1, e^(E'−E)), E = Σ log p(y|f)/p̃(y|f) (likelihood.Approximate), which makes them one under p. In warm-up all are
// kept: a chain begins far out, where p̃ is not near.
//
// The last move is that of f → e^δf with ψ → ψ + 2δ for the variances, all of them together (Liu and Sabatti
// 2000): the density of f given ψ and the volume element cancel, so that δ has the density p(y|e^δf)·p(ψ+2δ). Given s
// this direction moves little where probabilities are near 0 or 1: s says how large f is.
type gibbs struct{ exact }

// gibbsWarmup is the number of its warm-up iterations: the mode and the curvature to begin with are
// those of a Gaussian stand-in for the likelihood.
const gibbsWarmup = 300

func (gibbs) Name() string             { return "gibbs" }
func (gibbs) Windows(o *Options) []int { return windows(or(o.Warmup, gibbsWarmup)) }

func (gibbs) Statistics() []string { return append(exact{}.Statistics(), CorrectionRate) }

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
		psi, from, excess := slices.Clone(k.State.Psi), slices.Clone(f), joint.Excess(k.State.Psi, f)
		joint.Renew(k.State.Psi, f, key)
		out, err := move(ctx, key)
		k.State.Memory = part.State.Memory
		if err == nil {
			err = joint.Draw(ctx, k.State.Psi, f, key)
		}
		if err != nil {
			return out, err
		}
		out.Correction = math.Exp(min(0, joint.Excess(k.State.Psi, f)-excess))
		if !t.Warmup && out.Correction < 1 && key.Stream(random.Accept, 3).Float64() >= out.Correction {
			copy(k.State.Psi, psi)
			copy(f, from)
			out.Accepted = false
		}
		r := key.Stream(random.Accept, 1)
		for i := len(k.State.Psi) - joint.Own(); i < len(k.State.Psi); i++ {
			psi := k.State.Psi
			slice(r, psi[i], func(v float64) float64 { psi[i] = v; return joint.Given(psi, f) })
		}
		if scales := joint.Scales(); len(scales) > 0 {
			rescale(key.Stream(random.Accept, 2), k.State.Psi, f, scales, joint.Given)
		}
		return out, nil
	}, nil
}

// Constants of slices: the width that they begin with, and how often it is added to on either side.
const (
	sliceWidth = 0.5
	sliceSteps = 12
)

// slice moves x by slice sampling with stepping out (Neal 2003, figures 3 and 5). The density was last called with
// the value that is returned.
func slice(r *rand.Rand, x float64, density func(v float64) float64) float64 {
	level := density(x) - r.ExpFloat64()
	lo := x - sliceWidth*r.Float64()
	hi := lo + sliceWidth
	left := r.IntN(sliceSteps)
	for right := sliceSteps - 1 - left; right > 0 && density(hi) > level; right-- {
		hi += sliceWidth
	}
	for ; left > 0 && density(lo) > level; left-- {
		lo -= sliceWidth
	}
	for {
		v := lo + (hi-lo)*r.Float64()
		if density(v) > level || v == x {
			return v
		}
		if v < x {
			lo = v
		} else {
			hi = v
		}
	}
}

// rescale moves the scale of f together with the variances, whose places in ψ are scales.
func rescale(r *rand.Rand, psi, f []float64, scales []int, given func(psi, f []float64) float64) {
	from, g := slices.Clone(psi), slices.Clone(f)
	slice(r, 0, func(by float64) float64 {
		for _, i := range scales {
			psi[i] = from[i] + 2*by
		}
		floats.ScaleTo(f, math.Exp(by), g)
		return given(psi, f)
	})
}
