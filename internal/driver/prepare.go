package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// PrepareProbes are those of gradients while the mode is sought, fixed for a whole climb.
const PrepareProbes = 16

// Constants of the search for the mode.
const (
	growth      = 4   // the next subset is this many times larger
	climbTol    = 0.1 // posterior standard deviations from the zero of the gradient
	climbReach  = 0.7 // log units after which the preconditioner is renewed
	climbSteps  = 25
	climbRounds = 20
	// climbResidual is the relative residual that is enough to climb with. The
	// curvature, from differences, uses the run's own tolerance.
	climbResidual = 1e-3
)

// Prepare finds the mode and the curvature there, unless they are given: with the
// dense oracle on a random subset, then, as far as the sampler needs it, on growing
// subsets and at last on all rows. What else the sampler needs is settled there.
func (d *Driver) Prepare(ctx context.Context, w *chains.Preparation) (*chains.Prepared, error) {
	if w.From != nil {
		prep := *w.From
		return &prep, d.settle(ctx, &prep)
	}
	if d.needs.Laplace {
		return d.prepareLaplace(ctx)
	}
	n := len(d.Problem.Y)
	size := min(n, d.Spec.Sampler.Subset.Or(d.needs.Subset))
	key := random.Key{Seed: d.Spec.Seed}
	rows := mode.Subset(n, size, key)
	pt, others, err := mode.Dense(ctx, d.Problem.Subset(rows), d.Budget)
	if err != nil {
		return nil, fmt.Errorf("finding the mode on %d rows: %w", size, err)
	}
	prep := &chains.Prepared{Others: others, OthersRows: size}
	if d.Problem.Likelihood.Augmentation().Width() > 0 {
		prep.Others = nil // they are maxima of what no chain draws from
		if d, pt, err = d.standIn(ctx, prep, pt, rows); err != nil {
			return nil, fmt.Errorf("finding the mode on %d rows: %w", size, err)
		}
	}
	switch d.needs.Search {
	case sampler.ByDensity:
		err = d.prepareDense(ctx, prep, pt, size)
	case sampler.ByGradients:
		err = d.prepareByGradients(ctx, prep, pt, size)
	case sampler.ByBound:
		err = d.prepareInducing(ctx, prep, pt)
	case sampler.OnSubset:
		if err = d.setPoint(prep, pt); err == nil {
			err = d.choose(ctx, prep, d.Operator(0), pt.Info)
		}
	}
	if err == nil {
		err = d.settle(ctx, prep)
	}
	if err != nil {
		return nil, err
	}
	if !d.needs.Dense {
		prep.Near = Near(d.Problem, prep.Psi, d.Budget)
	}
	return prep, nil
}

// laplaceStarts is how many searches there are for the mode of Laplace's approximation, of up to laplaceRows rows; of more, one.
const (
	laplaceStarts = 3
	laplaceRows   = 500
)

// prepareLaplace finds the mode of Laplace's approximation of the posterior of ψ, and the curvature there.
func (d *Driver) prepareLaplace(ctx context.Context) (*chains.Prepared, error) {
	count := laplaceStarts
	if len(d.Problem.Y) > laplaceRows {
		count = 1
	}
	starts := fit.Starts(d.Problem.Params, count, d.Spec.Seed)
	evidence, err := laplace.NewEvidence(ctx, d.Problem, starts[0])
	if err != nil {
		return nil, err
	}
	evaluations := 0
	res, err := fit.Search(ctx, d.Problem.Params, evidence, starts, fit.Options{Tell: func(fit.Step) { evaluations++ }})
	if err != nil {
		return nil, fmt.Errorf("finding the mode: %w", err)
	}
	if res.Cov == nil {
		return nil, fmt.Errorf("the search for the mode ended at log parameters %.4g, which is no maximum: the posterior has no mode there that the data can tell; use informative priors", res.Psi)
	}
	prep := &chains.Prepared{OthersRows: len(d.Problem.Y), Psi: res.Psi, Cov: chains.Flat(res.Cov), Cost: chains.Cost{Densities: evaluations}}
	prep.Starts, err = sampler.Starts(d.Plan, d.needs.Search, res.Psi, res.Cov)
	return prep, err
}

// setPoint fills in the mode, the covariance and the starting points.
func (d *Driver) setPoint(prep *chains.Prepared, pt *mode.Point) error {
	cov, err := pt.Covariance()
	if err != nil {
		return err
	}
	prep.Psi, prep.Cov = pt.Psi, chains.Flat(cov)
	prep.Starts, err = sampler.Starts(d.Plan, d.needs.Search, pt.Psi, cov)
	return err
}

// prepareDense moves from the subset's mode to that of all rows with exact
// gradients.
func (d *Driver) prepareDense(ctx context.Context, prep *chains.Prepared, pt *mode.Point, size int) error {
	n := len(d.Problem.Y)
	if size < n {
		pt.Info.ScaleSym(float64(n)/float64(size), pt.Info)
		var err error
		if pt, err = d.climbDense(ctx, prep, d.Problem, pt); err != nil {
			return err
		}
	}
	return d.setPoint(prep, pt)
}

// climbDense moves from pt to the mode of a problem with exact gradients, and measures the curvature there.
func (d *Driver) climbDense(ctx context.Context, prep *chains.Prepared, p *posterior.Problem, pt *mode.Point) (*mode.Point, error) {
	dense := posterior.NewDense(p, d.Budget)
	grad := func(ctx context.Context, psi []float64) ([]float64, error) {
		g, ok := dense.Gradient(psi)
		if !ok {
			return nil, singularAt(psi)
		}
		prep.Cost.Densities++
		return g, ctx.Err()
	}
	pt, _, err := mode.Climb(ctx, grad, pt, climbTol, maxPsi, climbSteps)
	if err != nil {
		return nil, err
	}
	pt.Info, prep.Asymmetry, err = mode.Information(ctx, grad, pt.Psi, pt.Info)
	return pt, err
}

// prepareByGradients moves from the subset's mode to that of all rows by gradients
// with fixed probes, on subsets that grow.
func (d *Driver) prepareByGradients(ctx context.Context, prep *chains.Prepared, pt *mode.Point, size int) error {
	n, size0 := len(d.Problem.Y), size
	key := random.Key{Seed: d.Spec.Seed}
	for level := 1; size < n; level++ {
		next := NextSubset(size, n)
		pt.Info.ScaleSym(float64(next)/float64(size), pt.Info)
		size = next
		if size == n {
			break
		}
		p := d.Problem.Subset(mode.Subset(n, size, key))
		op := cmvp.New(p.Inputs, p.Covariance, d.Budget)
		var err error
		if pt, err = d.climb(ctx, prep, p, op, pt, random.Key{Seed: d.Spec.Seed, Iter: level}); err != nil {
			return fmt.Errorf("finding the mode on %d rows: %w", size, err)
		}
	}

	op := d.Operator(0)
	if size0 < n {
		var err error
		if pt, err = d.climb(ctx, prep, d.Problem, op, pt, key); err != nil {
			return fmt.Errorf("finding the mode on all %d rows: %w", n, err)
		}
	}
	prep.Psi = pt.Psi
	if err := d.choose(ctx, prep, op, pt.Info); err != nil {
		return err
	}
	pre, err := d.atMode(ctx, prep, op)
	if err != nil {
		return err
	}
	if d.needs.Gradients { // the joint density has a tighter bound
		if err := d.chooseTolerance(ctx, prep, op, pre, pt.Info, key); err != nil {
			return fmt.Errorf("choosing the solver's tolerance: %w", err)
		}
	}
	if size0 < n {
		src, err := d.newSource(d.Problem, op, pre, d.tolerance(prep), false)
		if err != nil {
			return err
		}
		info, asym, err := mode.Information(ctx, d.fixed(prep, src, key), pt.Psi, pt.Info)
		if err != nil {
			return fmt.Errorf("measuring the curvature at the mode: %w", err)
		}
		pt.Info, prep.Asymmetry = info, asym
	}

	if d.needs.Noise {
		if err := d.measureNoise(ctx, prep, op, pre, key); err != nil {
			return err
		}
	}
	return d.setPoint(prep, pt)
}

// NextSubset returns how many of n rows the search for the mode goes on to from some of them: n at
// last.
func NextSubset(size, n int) int {
	next := min(n, growth*size)
	if 2*next > n {
		next = n
	}
	return next
}

// measureNoise measures the noise of a gradient at the mode, as the chains will see
// it.
func (d *Driver) measureNoise(ctx context.Context, prep *chains.Prepared, op Operator, pre precond.P, key random.Key) error {
	m := d.Spec.Solver.Method
	src, err := d.newSource(d.Problem, op, pre, d.tolerance(prep), m == "ulisse" || m == "auto")
	if err != nil {
		return err
	}
	key.Iter = -1
	g, cost, err := d.gradient(ctx, src, request{Request: sampler.Request{Psi: prep.Psi, Key: key, Probes: PrepareProbes, Spread: true}})
	if err != nil {
		return err
	}
	prep.Cost.Add(cost)
	prep.Iterations = g.Report.MeanIterations()
	prep.ProbeCov = chains.Flat(g.ProbeCov)
	if g.SolverCov != nil {
		prep.SolverCov = chains.Flat(g.SolverCov)
	}
	return nil
}

// climb searches the mode of a problem from pt, renewing the preconditioner as
// ψ moves.
func (d *Driver) climb(ctx context.Context, prep *chains.Prepared, p *posterior.Problem, op Operator, pt *mode.Point, key random.Key) (*mode.Point, error) {
	for range climbRounds {
		pre, err := d.precondition(ctx, p, op, pt.Psi, nil)
		if err != nil {
			return nil, err
		}
		src, err := d.newSource(p, op, overGroup(pre, op), max(climbResidual, d.Spec.Solver.Tolerance.Or(climbResidual)), false)
		if err != nil {
			return nil, err
		}
		next, done, err := mode.Climb(ctx, d.fixed(prep, src, key), pt, climbTol, climbReach, climbSteps)
		if err != nil {
			return nil, err
		}
		pt = next
		if done {
			return pt, nil
		}
		for _, x := range pt.Psi {
			if x > maxPsi/2 || x < -maxPsi/2 {
				return nil, fmt.Errorf("the search went to log parameters %.4g: the posterior has no mode there that the data can tell; use informative priors", pt.Psi)
			}
		}
	}
	return nil, errors.New("no mode was reached: the gradient did not come to zero")
}

// fixed returns the gradient as a function of ψ alone, with the key's probes.
func (d *Driver) fixed(prep *chains.Prepared, src *source, key random.Key) mode.Gradient {
	return func(ctx context.Context, psi []float64) ([]float64, error) {
		src.est.Reset()
		g, cost, err := d.gradient(ctx, src, request{Request: sampler.Request{Psi: psi, Key: key, Probes: PrepareProbes}})
		if err != nil {
			return nil, err
		}
		prep.Cost.Add(cost)
		return slices.Clone(g.Value), nil
	}
}
