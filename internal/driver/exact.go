package driver

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Constants of the exact sampler.
const (
	// exactIndependent is the share of independent proposals. What remains is a
	// random walk, which moves where the independent proposal would stay.
	exactIndependent = 0.8
	// exactError bounds the error of a log density that solves may make.
	exactError = 1e-3
	// The rank of P begins at precond.AutoRank and is doubled, at most
	// rankDoublings times, until the acceptance of pilotPairs independent
	// proposals around the mode is wantAcceptance, or a doubling does not raise
	// it by rankGain.
	rankDoublings  = 2
	pilotPairs     = 16
	wantAcceptance = 0.5
	rankGain       = 1.15
)

// exact drives a chain of the exact sampler: x given ψ by Lanczos, ψ given x by
// Metropolis–Hastings.
type exact struct {
	d   *Driver
	op  Operator
	aux *posterior.Auxiliary
	// vitals, if not nil, is told of the steps.
	vitals *chains.Vitals
}

// newExact returns the exact sampler of a prepared run, whose P has the pivots
// of the randomly pivoted Cholesky factor at the mode.
func (d *Driver) newExact(ctx context.Context, prep *chains.Prepared, chain int) (*exact, error) {
	op := d.Operator(chain)
	rows, err := d.rows.get(ctx, append(slices.Clone(prep.Psi), float64(prep.Rank)), func() ([]int, error) {
		return d.pivots(ctx, op, prep.Psi, prep.Rank)
	})
	if err != nil {
		return nil, err
	}
	return d.exactOn(op, rows), nil
}

func (d *Driver) pivots(ctx context.Context, op Operator, psi []float64, rank int) ([]int, error) {
	op.Set(d.Problem.At(psi))
	return precond.Pivots(ctx, op, rank, random.Key{Seed: d.Spec.Seed})
}

func (d *Driver) exactOn(op Operator, rows []int) *exact {
	x := &exact{d: d, op: op}
	n := len(d.Problem.Y)
	so := &d.Spec.Solver
	x.aux = posterior.NewAuxiliary(d.Problem, op, func(ctx context.Context) (posterior.Smooth, error) {
		return precond.OnRows(ctx, op, rows)
	}, solve.Options{Tolerance: min(so.Tolerance.Or(fineTolerance), exactError/float64(n)), MaxIter: so.MaxIterations.Or(min(maxAutoIterations, 10*n+100)), Budget: d.Budget})
	return x
}

// step draws x at ψ and moves ψ by one step of the kernel, whose density is
// that given x. It returns the probability of acceptance.
func (x *exact) step(ctx context.Context, kern *sgld.Metropolis, psi []float64, st *sgld.MetropolisState, key random.Key) (float64, chains.Cost, error) {
	began, before := time.Now(), x.op.Counts()
	w := make([]float64, len(x.d.Problem.Y))
	random.Normal(key.Stream(random.Auxiliary, 0), w)
	var err error
	var rep, r solve.Report
	st.LogP, r, err = x.aux.Refresh(ctx, psi, w)
	rep.Add(r)
	if err != nil {
		return 0, chains.Cost{}, err
	}
	kern.LogDensity = func(prop []float64) float64 {
		var v float64
		v, r, err = x.aux.LogDensity(ctx, prop)
		rep.Add(r)
		return v
	}
	accept := kern.Advance(psi, st, key.Stream(random.Accept, 0))
	if err != nil {
		return 0, chains.Cost{}, err
	}
	if math.IsInf(st.LogP, -1) {
		return 0, chains.Cost{}, fmt.Errorf("the covariance matrix is numerically singular at log parameters %.4g", psi)
	}
	cost := costOf(rep, before, x.op.Counts(), time.Since(began).Seconds())
	cost.Densities = 1
	if x.vitals != nil {
		x.vitals.Add(rep.MaxResidual(), 0)
	}
	x.d.Observe(Observation{Chain: key.Chain, Iter: key.Iter, N: len(x.d.Problem.Y), Psi: slices.Clone(psi), Acceptance: accept,
		Iterations: rep.MeanIterations(), Residual: rep.MaxResidual(), Cost: cost})
	return accept, cost, nil
}

func (x *exact) stepper(t chains.Task, k *chains.Checkpoint) (func(context.Context, random.Key) error, error) {
	kern, ok := sgld.NewMetropolis(nil, t.Settings.Metric(), t.Settings.Mean, t.Warmup)
	if !ok {
		return nil, fmt.Errorf("the metric is not positive definite")
	}
	kern.Independent = exactIndependent
	x.vitals = &k.Vitals
	if k.State.Metropolis == nil {
		k.State.Metropolis = &sgld.MetropolisState{}
	}
	return func(ctx context.Context, key random.Key) error {
		_, cost, err := x.step(ctx, kern, k.State.Psi, k.State.Metropolis, key)
		k.Cost.Add(cost)
		return err
	}, nil
}

// chooseRank fills in the rank of P, the specification's or one that makes the
// acceptance high enough. All ranks are tried on the same points and with the
// same random numbers.
func (d *Driver) chooseRank(ctx context.Context, prep *chains.Prepared) error {
	n := len(d.Problem.Y)
	rank := d.Spec.Solver.Preconditioner.Rank.Or(precond.AutoRank(n))
	for tries := 0; ; tries++ {
		acceptance, err := d.pilot(ctx, prep, rank)
		if err != nil {
			return fmt.Errorf("choosing the rank of the exact sampler: %w", err)
		}
		if tries > 0 && acceptance < rankGain*prep.Acceptance {
			return nil
		}
		prep.Rank, prep.Acceptance = rank, acceptance
		if acceptance >= wantAcceptance || tries == rankDoublings || 2*rank > n/2 || d.Spec.Solver.Preconditioner.Rank.Set {
			return nil
		}
		rank *= 2
	}
}

// pilot returns the mean acceptance of independent proposals from points around
// the mode.
func (d *Driver) pilot(ctx context.Context, prep *chains.Prepared, rank int) (float64, error) {
	op := d.Operator(0)
	rows, err := d.pivots(ctx, op, prep.Psi, rank)
	if err != nil {
		return 0, err
	}
	x := d.exactOn(op, rows)
	kern, ok := sgld.NewMetropolis(nil, (&chains.Settings{C: prep.Cov}).Metric(), prep.Psi, false)
	if !ok {
		return 0, fmt.Errorf("the covariance at the mode is not positive definite")
	}
	kern.Independent = 1
	sum := 0.0
	for i := range pilotPairs {
		// From one point of the proposal to another: the posterior's spread, nearly.
		psi := kern.Propose(random.Key{Seed: d.Spec.Seed, Iter: -i - 2}.Stream(random.Start, 0))
		var st sgld.MetropolisState
		accept, cost, err := x.step(ctx, kern, psi, &st, random.Key{Seed: d.Spec.Seed, Iter: -i - 2})
		if err != nil {
			return 0, err
		}
		prep.Cost.Add(cost)
		sum += accept / pilotPairs
	}
	return sum, nil
}
