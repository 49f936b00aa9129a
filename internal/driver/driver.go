// Package driver carries out the tasks of a run: it finds the mode, and moves
// chains from checkpoint to checkpoint. A driver needs the data and an operator
// (one machine's cores or a group of workers); what it does depends on the
// specification, the data and the task alone.
package driver

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/sgld"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Operator is K over all rows, wherever they are computed, in both precisions.
type Operator interface {
	posterior.Operator
	solve.SingleOperator
	precond.Covariance
	Counts() cmvp.Counts
}

// Config says what to drive.
type Config struct {
	Spec    *job.Spec
	Problem *posterior.Problem
	Plan    *chains.Plan
	Budget  *parallel.Budget
	// Operator returns an operator over all rows for a chain (0 is the search for
	// the mode). Each chain has its own.
	Operator func(chain int) Operator
	// Observe, if set, is told of every gradient, of every step without one, and of
	// preconditioners that were compared. It must be safe for concurrent use.
	Observe func(runlog.Observation)
	// Trace, if set, is told of each iteration before it begins. It returns the
	// context to do it in, and a function that is called when it is done.
	Trace func(ctx context.Context, chain, iter int) (context.Context, func())
}

// Driver carries out tasks. Its methods may be called concurrently for
// different chains.
type Driver struct {
	Config
	needs sampler.Needs
	*shared

	certificate bool // this is the driver of a run that certifies
}

// shared is what all chains of a run share.
type shared struct {
	pre  once[precond.P] // the preconditioner at the mode
	rows once[[]int]     // the pivots of the joint density's P there

	points once[*kernel.Inputs] // inducing inputs

	factor *turns            // of staged runs
	subset *turns            // of some of the rows
	basis  once[[][]float64] // of their quadratic terms

	mu    sync.Mutex
	exact *Driver // of the run that certifies
}

// New returns a driver.
func New(c Config) *Driver {
	if c.Observe == nil {
		c.Observe = func(runlog.Observation) {}
	}
	return &Driver{Config: c, needs: c.Spec.Needs(), shared: &shared{pre: newOnce[precond.P](), rows: newOnce[[]int](), points: newOnce[*kernel.Inputs](), factor: newTurns(), subset: newTurns(), basis: newOnce[[][]float64]()}}
}

// With returns the driver with another operator and trace, for a lane that is driven
// by itself. What the lanes of a run share, both share.
func (d *Driver) With(operator func(lane int) Operator, trace func(ctx context.Context, chain, iter int) (context.Context, func())) *Driver {
	with := *d
	with.Operator, with.Trace = operator, trace
	return &with
}

// For returns the driver of some work: of the run, or of the one that certifies it.
func (d *Driver) For(w chains.Work) *Driver {
	if !w.Certificate {
		return d
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.exact == nil {
		c := d.Config
		c.Spec = d.Spec.Certificate()
		p := c.Spec.PlanOf(d.Plan.Names, len(d.Problem.Y), d.Problem.Functions())
		c.Plan = &p
		d.exact = New(c)
		d.exact.certificate = true
	}
	return d.exact.With(d.Operator, d.Trace)
}

// Event carries out work that is no chain's, and returns the event that comes of it.
func (d *Driver) Event(ctx context.Context, w chains.Work) (*chains.Event, error) {
	e := &chains.Event{}
	d = d.For(w)
	var err error
	switch {
	case w.Prepare != nil:
		e.Prepared, err = d.Prepare(ctx, w.Prepare)
	case w.Adapt != nil:
		e, err = sampler.Adapt(w.Adapt.Run())
	case w.Conclude != nil:
		e.Coefficients, err = d.conclude(ctx, w.Conclude)
	default:
		e.Provisional, err = d.weigh(ctx, w.Weigh)
	}
	if err != nil {
		return nil, err
	}
	e.Certificate = w.Certificate
	return e, nil
}

// maxAutoIterations bounds the solver's iterations if the specification does
// not: a system that needs more is better reported than waited for.
const maxAutoIterations = 5000

// source estimates gradients on some rows and counts what they cost.
type source struct {
	op        Operator
	est       *posterior.Estimator
	rows      int
	tolerance float64
}

// newSource returns a source over a problem (all rows or a subset) with a
// preconditioner that may be nil. With early, solves stop early.
func (d *Driver) newSource(p *posterior.Problem, op Operator, pre precond.P, tolerance float64, early bool) (*source, error) {
	s := &source{op: op, rows: len(p.Y), tolerance: tolerance}
	so := &d.Spec.Solver
	kind, err := posterior.ParseProbeKind(d.Spec.ProbeKind())
	if err != nil {
		return nil, err
	}
	c := posterior.EstimatorConfig{Problem: p, Operator: op, Probes: kind}
	opt := solve.Options{Tolerance: tolerance, Mixed: so.Mixed(early), Budget: d.Budget,
		MaxIter: so.MaxIterations.Or(min(maxAutoIterations, 10*s.rows+100))}
	if pre != nil {
		if f, ok := pre.(posterior.Factor); ok {
			c.Factor = f
		}
		if so.Method != "cg" {
			opt.Precond, opt.Flexible = pre, !precond.HasFactor(pre.Kind())
		}
	}
	if early {
		c.Early = &posterior.Early{Q: so.TailStart(), Law: so.StoppingLaw(), Replicates: 1}
		if d.needs.Noise {
			c.Early.Replicates = 2
		}
	}
	if m, ok := sampler.Of(d.Plan).(sampler.Keeper); ok {
		c.Redraw = m.Redraw(d.Spec.SamplerOptions())
	}
	c.Solver = solve.New(op, opt)
	s.est = posterior.NewEstimator(c)
	return s, nil
}

// request asks for a gradient.
type request struct {
	sampler.Request
	atMode float64        // iterations at the mode; 0 for none
	vitals *chains.Vitals // to tell of it, if not nil
}

// gradient estimates a gradient and reports it.
func (d *Driver) gradient(ctx context.Context, s *source, r request) (*posterior.Gradient, chains.Cost, error) {
	before := s.op.Counts()
	g, err := s.est.Gradient(ctx, r.Psi, r.Key, r.Probes, r.Spread)
	if err != nil {
		return nil, chains.Cost{}, err
	}
	for _, v := range g.Value {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, chains.Cost{}, unsolvable(r.Psi)
		}
	}
	rep := g.Report
	cost := costOf(rep, before, s.op.Counts(), g.Seconds)
	cost.Gradients = 1
	obs := d.observation(runlog.Gradient, r.Key, s.rows, r.Psi, rep, cost)
	obs.Gradient, obs.Probes, obs.Tolerance, obs.NoiseBudget = g.Value, r.Probes, s.tolerance, r.Budget
	if r.atMode > 0 {
		obs.Drift = obs.Iterations / r.atMode
	}
	if g.ProbeCov != nil && r.Metric != nil {
		if obs.Noise, err = sgld.NoiseRatio(r.Metric, g.Covariance()); err != nil {
			return nil, cost, err
		}
	}
	if r.vitals != nil {
		r.vitals.Add(obs.Residual, obs.Noise)
	}
	d.Observe(obs)
	return g, cost, nil
}

// unsolvable says that the gradient is not finite somewhere.
type unsolvable []float64

func (u unsolvable) Error() string {
	return fmt.Sprintf("the gradient is not finite at log parameters %.4g, where the covariance matrix cannot be solved", []float64(u))
}

// observation returns what is to be said of any gradient or step that led to, or
// was at, ψ.
func (d *Driver) observation(kind runlog.Kind, key random.Key, rows int, psi []float64, rep solve.Report, cost chains.Cost) runlog.Observation {
	return runlog.Observation{Kind: kind, Certificate: d.certificate, Chain: key.Chain, Iter: key.Iter, Rows: rows, Psi: slices.Clone(psi),
		Seconds: cost.Seconds, Solves: cost.Solves, Iterations: rep.MeanIterations(), Residual: rep.MaxResidual(),
		Unconverged: cost.Unconverged, Products: cost.Products, Singles: cost.Singles, Pairs: cost.Pairs, PairsRead: cost.PairsRead}
}

// costOf returns what solves cost.
func costOf(rep solve.Report, before, after cmvp.Counts, seconds float64) chains.Cost {
	cost := chains.Cost{Solves: len(rep.Iterations), Products: rep.Products, Singles: rep.Singles,
		Pairs: float64(after.Pairs - before.Pairs), PairsRead: float64(after.Read - before.Read),
		Unconverged: rep.Unconverged, Seconds: seconds}
	for _, it := range rep.Iterations {
		cost.Iterations += it
	}
	return cost
}
