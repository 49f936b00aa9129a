package sampler

import (
	"context"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// exact draws from the joint density of ψ and an auxiliary n-vector x, whose
// marginal is the posterior, without a determinant of K (posterior.Auxiliary): x
// given ψ by Lanczos, ψ given x by Metropolis–Hastings.
type exact struct{}

// Constants of the exact sampler.
const (
	// exactIndependent is the share of independent proposals. What remains is a
	// random walk, which moves where the independent proposal would stay.
	exactIndependent = 0.8
	// The rank of P begins at the automatic one and is doubled, at most
	// rankDoublings times, until the acceptance of pilotPairs independent
	// proposals around the mode is wantAcceptance, or a doubling does not raise
	// it by rankGain.
	rankDoublings  = 2
	pilotPairs     = 16
	wantAcceptance = 0.5
	rankGain       = 1.15
)

func (exact) Name() string                    { return "exact" }
func (exact) Section() any                    { return nil }
func (exact) Check(*Options) (string, string) { return "", "" }
func (exact) Windows(o *Options) []int        { return windows(or(o.Warmup, matchedWarmup)) }

func (exact) Statistics() []string {
	return []string{AcceptanceRate, "solver_iterations", "residual", "unconverged", "products", "seconds"}
}

func (exact) Needs() Needs {
	return Needs{Subset: denseSubset, Joint: true, Probes: "whitened", Exact: true}
}

// Adapt sets the proposals' mean. Of few draws the mode counts for some.
func (exact) Adapt(r *chains.Run, s *chains.Settings, mean []float64) error {
	if mean == nil {
		s.Mean = r.Prepared.Psi
		return nil
	}
	n := 0.0
	for _, d := range pooled(r) {
		n += float64(len(d))
	}
	w := guessWeight / (guessWeight + n)
	for i := range mean {
		mean[i] += w * (r.Prepared.Psi[i] - mean[i])
	}
	s.Mean = mean
	return nil
}

func (exact) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	joint := env.Joint()
	kern, err := sgld.NewMetropolis(joint.Density, t.Settings.Metric(), t.Settings.Mean, t.Warmup)
	if err != nil {
		return nil, err
	}
	kern.Independent = exactIndependent
	return metropolisStep(kern, k, joint.Refresh)
}

// Settle fills in the rank of P, the specification's or one that makes the
// acceptance high enough. All ranks are tried on the same points and with the
// same random numbers.
func (e exact) Settle(ctx context.Context, env SettleEnv, p *chains.Plan, prep *chains.Prepared) error {
	n := env.Rows()
	rank, fixed := env.Rank()
	for tries := 0; ; tries++ {
		acceptance, err := e.pilot(ctx, env, p, prep, rank)
		if err != nil {
			return fmt.Errorf("choosing the rank of the exact sampler: %w", err)
		}
		if tries > 0 && acceptance < rankGain*prep.Acceptance {
			return nil
		}
		prep.Rank, prep.Acceptance = rank, acceptance
		if acceptance >= wantAcceptance || tries == rankDoublings || 2*rank > n/2 || fixed {
			return nil
		}
		rank *= 2
	}
}

// pilot returns the mean acceptance of independent proposals from points around
// the mode.
func (exact) pilot(ctx context.Context, env SettleEnv, p *chains.Plan, prep *chains.Prepared, rank int) (float64, error) {
	joint, err := env.Joint(ctx, prep.Psi, rank)
	if err != nil {
		return 0, err
	}
	kern, err := sgld.NewMetropolis(joint.Density, chains.Symmetric(prep.Cov), prep.Psi, false)
	if err != nil {
		return 0, err
	}
	kern.Independent = 1
	sum := 0.0
	for i := range pilotPairs {
		// From one point of the proposal to another: the posterior's spread, nearly.
		key := random.Key{Seed: p.Seed, Iter: -i - 2}
		k := &chains.Checkpoint{State: chains.State{Psi: kern.Propose(key.Stream(random.Start, 0))}}
		step, err := metropolisStep(kern, k, joint.Refresh)
		if err != nil {
			return 0, err
		}
		out, err := step(ctx, key)
		if err != nil {
			return 0, err
		}
		env.Stepped(key, k.State.Psi, out.Acceptance)
		sum += out.Acceptance / pilotPairs
	}
	return sum, nil
}
