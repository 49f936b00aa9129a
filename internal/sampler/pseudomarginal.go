package sampler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// pseudoMarginal is Metropolis–Hastings on unbiased estimates of the posterior density of ψ, in which the latent function is
// integrated out by importance sampling (Filippone and Girolami 2014): exact, for likelihoods that are log-concave and thousands of rows. The
// estimate at a chain's ψ is part of its state, and is never made again while the chain stays there.
type pseudoMarginal struct{ cholesky }

// PseudoMarginal is what a specification tells it.
type PseudoMarginal struct {
	Samples       int    `yaml:"samples" json:"samples"`             // of the latent function, for an estimate
	Approximation string `yaml:"approximation" json:"approximation"` // of its posterior, that they are drawn from
}

// Approximations are those that the latent function can be drawn from.
var Approximations = []string{"ep", "laplace"}

// PseudoMarginalRows is the largest number of rows for which the matrices of the approximation are stored.
const PseudoMarginalRows = 5000

const (
	estimateSamples = 64
	mostSamples     = 100_000
	// estimatedWarmup is less than that of cholesky: an estimate takes some tens of factorisations.
	estimatedWarmup = 300
)

func (pseudoMarginal) Name() string { return "pseudo-marginal" }
func (pseudoMarginal) Section() any {
	return &PseudoMarginal{Samples: estimateSamples, Approximation: Approximations[0]}
}
func (pseudoMarginal) Windows(o *Options) []int { return windows(or(o.Warmup, estimatedWarmup)) }

func (pseudoMarginal) Check(o *Options) (field, msg string) {
	switch s := o.Section.(*PseudoMarginal); {
	case s.Samples < 1 || s.Samples > mostSamples:
		return "pseudo-marginal.samples", fmt.Sprintf("%d, but must be from 1 to %d", s.Samples, mostSamples)
	case !slices.Contains(Approximations, s.Approximation):
		return "pseudo-marginal.approximation", fmt.Sprintf("%q is not one of %s", s.Approximation, strings.Join(Approximations, ", "))
	}
	return "", ""
}

func (pseudoMarginal) Needs() Needs {
	return Needs{Search: ByDensity, Subset: denseSubset, Dense: true, Augments: true, Estimated: true, Exact: true}
}

func (pseudoMarginal) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	var key random.Key // of the step under way
	estimates := 0     // in it: of a chain's first step there are two
	kern, err := sgld.NewMetropolis(func(ctx context.Context, psi []float64) (float64, error) {
		estimates++
		return env.Estimate(ctx, psi, key.Stream(random.Latent, estimates-1))
	}, t.Settings.Metric(), t.Settings.Mean, t.Warmup)
	if err != nil {
		return nil, err
	}
	step, err := metropolisStep(kern, k, nil)
	return func(ctx context.Context, of random.Key) (Outcome, error) {
		key, estimates = of, 0
		return step(ctx, of)
	}, err
}
