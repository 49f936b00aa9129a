package sampler

import (
	"context"
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// cholesky is Metropolis–Hastings on the exact log posterior density, from a stored
// K: the oracle, for thousands of rows.
type cholesky struct{}

const denseWarmup = 1000

func (cholesky) Name() string                    { return "cholesky" }
func (cholesky) Section() any                    { return nil }
func (cholesky) Check(*Options) (string, string) { return "", "" }
func (cholesky) Windows(o *Options) []int        { return windows(or(o.Warmup, denseWarmup)) }
func (cholesky) Statistics() []string            { return []string{AcceptanceRate, "seconds"} }

func (cholesky) Needs() Needs {
	return Needs{Search: ByDensity, Subset: denseSubset, Dense: true, Exact: true}
}

func (cholesky) Adapt(_ *chains.Run, s *chains.Settings, mean []float64) error {
	s.Mean = mean
	return nil
}

func (cholesky) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	kern, err := sgld.NewMetropolis(env.Density, t.Settings.Metric(), t.Settings.Mean, t.Warmup)
	if err != nil {
		return nil, err
	}
	return metropolisStep(kern, k, nil)
}

// metropolisStep returns the step of a Metropolis–Hastings kernel. refresh, if not nil,
// returns the density at ψ anew before each step; else it is remembered.
func metropolisStep(kern *sgld.Metropolis, k *chains.Checkpoint, refresh func(ctx context.Context, psi []float64, key random.Key) (float64, error)) (Step, error) {
	st, err := sgld.ReadMetropolisState(k.State.Memory)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key random.Key) (Outcome, error) {
		var err error
		switch {
		case refresh != nil:
			st.LogP, err = refresh(ctx, k.State.Psi, key)
		case k.State.Memory == nil:
			*st, err = kern.Start(ctx, k.State.Psi)
		}
		if err != nil {
			return Outcome{}, err
		}
		acceptance, accepted, err := kern.Advance(ctx, k.State.Psi, st, key.Stream(random.Accept, 0))
		if err == nil && refresh != nil && math.IsInf(st.LogP, -1) {
			err = fmt.Errorf("the covariance matrix is numerically singular at log parameters %.4g", k.State.Psi)
		}
		k.State.Memory = st.Memory()
		return Outcome{Acceptance: acceptance, Accepted: accepted}, err
	}, nil
}
