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
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
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
	// Observe, if set, is told of every gradient and every exact step. It must
	// be safe for concurrent use.
	Observe func(Observation)
	// Trace, if set, is told of each iteration before it begins. It returns the
	// context to do it in, and a function that is called when it is done.
	Trace func(ctx context.Context, chain, iter int) (context.Context, func())
}

// Observation is what one gradient cost and gave.
type Observation struct {
	Chain      int       `json:"chain"` // 0 while the mode is sought
	Iter       int       `json:"iter"`
	N          int       `json:"n"` // rows: fewer than all while the mode is sought
	Psi        []float64 `json:"psi"`
	Gradient   []float64 `json:"gradient,omitempty"`
	Probes     int       `json:"probes,omitempty"`
	Iterations float64   `json:"iterations"`          // mean over right-hand sides
	Tolerance  float64   `json:"tolerance,omitempty"` // of the relative residual
	Residual   float64   `json:"residual"`            // largest true relative residual
	Noise      float64   `json:"noise_ratio,omitempty"`
	Acceptance float64   `json:"acceptance,omitempty"` // of the proposal of this step
	Budget     float64   `json:"noise_budget,omitempty"`
	Drift      float64   `json:"drift,omitempty"` // iterations over those at the mode, where P was built
	chains.Cost

	// Trials, if not nil, are the preconditioners that were compared, the chosen
	// one first: the observation is of nothing else.
	Trials []precond.Trial `json:"trials,omitempty"`
}

// Driver carries out tasks. Its methods may be called concurrently for
// different chains.
type Driver struct {
	Config

	pre  once[precond.P] // the preconditioner at the mode
	rows once[[]int]     // the pivots of the exact sampler there
}

// New returns a driver.
func New(c Config) *Driver {
	if c.Observe == nil {
		c.Observe = func(Observation) {}
	}
	return &Driver{Config: c, pre: newOnce[precond.P](), rows: newOnce[[]int]()}
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
		if d.Plan.Matched() { // its step depends on the noise: measure it
			c.Early.Replicates = 2
		}
	}
	if d.Plan.Method == "sgld" {
		c.Redraw = d.Spec.Sampler.SGLD.Redraw
	}
	c.Solver = solve.New(op, opt)
	s.est = posterior.NewEstimator(c)
	return s, nil
}

// request asks for a gradient.
type request struct {
	psi    []float64
	key    random.Key
	probes int
	spread bool           // measure its noise
	metric *mat.SymDense  // to compare the noise with; nil for none
	budget float64        // λ_min(Q) of the step that it is for
	atMode float64        // iterations at the mode; 0 for none
	vitals *chains.Vitals // to tell of it, if not nil
}

// gradient estimates a gradient and reports it.
func (d *Driver) gradient(ctx context.Context, s *source, r request) (*posterior.Gradient, chains.Cost, error) {
	before := s.op.Counts()
	g, err := s.est.Gradient(ctx, r.psi, r.key, r.probes, r.spread)
	if err != nil {
		return nil, chains.Cost{}, err
	}
	for _, v := range g.Value {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, chains.Cost{}, fmt.Errorf("the gradient is not finite at log parameters %.4g: the chain has left the region where the covariance matrix can be solved", r.psi)
		}
	}
	rep := g.Report
	cost := costOf(rep, before, s.op.Counts(), g.Seconds)
	cost.Gradients = 1
	obs := Observation{Chain: r.key.Chain, Iter: r.key.Iter, N: s.rows, Psi: slices.Clone(r.psi), Gradient: g.Value,
		Probes: r.probes, Iterations: rep.MeanIterations(), Tolerance: s.tolerance, Residual: rep.MaxResidual(), Budget: r.budget, Cost: cost}
	if r.atMode > 0 {
		obs.Drift = obs.Iterations / r.atMode
	}
	if g.ProbeCov != nil && r.metric != nil {
		if obs.Noise, err = sgld.NoiseRatio(r.metric, g.Covariance()); err != nil {
			return nil, cost, err
		}
	}
	if r.vitals != nil {
		r.vitals.Add(obs.Residual, obs.Noise)
	}
	d.Observe(obs)
	return g, cost, nil
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

// Chain drives one chain. It is not safe for concurrent use.
type Chain struct {
	d         *Driver
	op        Operator         // gradients: sgld, fisher, leimkuhler-matthews
	pre       precond.P        // of op
	source    *source          // over op
	atMode    float64          // iterations of a solve at the mode
	tolerance float64          // of its solves
	early     bool             // whether its solves stop early
	dense     *posterior.Dense // cholesky
	exact     *exact           // exact
}

// NewChain returns the driver of a chain (from 1) of a prepared run.
func (d *Driver) NewChain(ctx context.Context, prep *chains.Prepared, chain int) (*Chain, error) {
	if d.Plan.Method == "cholesky" {
		return &Chain{d: d, dense: posterior.NewDense(d.Problem, d.Budget)}, nil
	}
	if d.Plan.Method == "exact" {
		x, err := d.newExact(ctx, prep, chain)
		return &Chain{d: d, exact: x}, err
	}
	op := d.Operator(chain)
	pre, err := d.atMode(ctx, prep, op)
	if err != nil {
		return nil, err
	}
	return &Chain{d: d, op: op, pre: pre, atMode: prep.Iterations, tolerance: d.tolerance(prep)}, nil
}

// use makes the chain's source what the settings ask for.
func (c *Chain) use(early bool) (err error) {
	if c.source == nil || c.early != early {
		c.early = early
		c.source, err = c.d.newSource(c.d.Problem, c.op, c.pre, c.tolerance, early)
	}
	return err
}

// spreadEvery is how often the gradient's noise is measured once the settings
// are frozen, to show that it has not changed.
const spreadEvery = 10

// maxPsi bounds the log parameters: beyond it something has diverged.
const maxPsi = 60

// Advance carries out a task. The result depends on the task alone.
func (c *Chain) Advance(ctx context.Context, t chains.Task) (*chains.Checkpoint, error) {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: t.From}
	if c.op != nil {
		if err := c.use(t.Settings.Early); err != nil {
			return nil, err
		}
	}
	step, err := c.stepper(t, k)
	if err != nil {
		return nil, err
	}
	if c.source != nil {
		c.source.est.Reset()
	}
	st := &k.State
	for range t.Iterations {
		st.Iter++
		within, end := ctx, func() {}
		if c.d.Trace != nil {
			within, end = c.d.Trace(ctx, t.Chain, st.Iter)
		}
		err := step(within, random.Key{Seed: c.d.Plan.Seed, Chain: t.Chain, Iter: st.Iter})
		end()
		if err != nil {
			return nil, err
		}
		for _, x := range st.Psi {
			if math.IsNaN(x) || math.Abs(x) > maxPsi {
				return nil, fmt.Errorf("chain %d diverged at iteration %d: log parameters %.4g: the posterior is far from normal there; use a smaller sampler.step, method: exact, or informative priors", t.Chain, st.Iter, st.Psi)
			}
		}
		k.Draws = append(k.Draws, slices.Clone(st.Psi))
	}
	return k, nil
}

// stepper returns the function that does one iteration of the method.
func (c *Chain) stepper(t chains.Task, k *chains.Checkpoint) (func(context.Context, random.Key) error, error) {
	switch c.d.Plan.Method {
	case "sgld":
		return c.sgld(t, k)
	case "fisher":
		kern, err := t.Settings.Fisher()
		if err != nil {
			return nil, err
		}
		return c.matched(t, k, kern.Budget, func(psi, g []float64, key random.Key) {
			kern.Advance(psi, g, key.Stream(random.Noise, 0))
		}), nil
	case "leimkuhler-matthews":
		kern, err := t.Settings.Leimkuhler()
		if err != nil {
			return nil, err
		}
		return c.matched(t, k, kern.Budget, func(psi, g []float64, key random.Key) {
			before := key
			before.Iter--
			kern.Advance(psi, g, before.Stream(random.Noise, 0), key.Stream(random.Noise, 0))
		}), nil
	case "exact":
		return c.exact.stepper(t, k)
	case "cholesky":
		return c.metropolis(t, k)
	}
	return nil, fmt.Errorf("unknown method %q", c.d.Plan.Method)
}

// matched does iterations of a sampler that counts with the gradient's noise,
// which is measured throughout warm-up.
func (c *Chain) matched(t chains.Task, k *chains.Checkpoint, budget float64, advance func(psi, g []float64, key random.Key)) func(context.Context, random.Key) error {
	metric := t.Settings.Metric()
	return func(ctx context.Context, key random.Key) error {
		spread := t.Warmup || key.Iter%spreadEvery == 0
		g, cost, err := c.d.gradient(ctx, c.source, request{psi: k.State.Psi, key: key, probes: t.Settings.Probes,
			spread: spread, metric: metric, budget: budget, atMode: c.atMode, vitals: &k.Vitals})
		if err != nil {
			return err
		}
		k.Cost.Add(cost)
		if t.Warmup && g.ProbeCov != nil {
			k.Stats.Spreads++
			k.Stats.Products += cost.Products
			k.Stats.ProbeCov = sum(k.Stats.ProbeCov, g.ProbeCov)
			if g.SolverCov != nil {
				k.Stats.SolverCov = sum(k.Stats.SolverCov, g.SolverCov)
			}
		}
		k.Cost.Shortened += shorten(g.Value, metric)
		advance(k.State.Psi, g.Value, key)
		return nil
	}
}

// reach bounds the length of C·g in posterior standard deviations, the root mean
// square over the parameters. Within the posterior it is about one, √2 with
// noise: of 10⁷ gradients, one is longer if three parameters are normal.
const reach = 5

// shorten bounds (gᵀCg/p)^½ by reach: where a skewed posterior is steep, at a
// dispersed start above all, a step would go as far on the other side. It
// returns the number of gradients that it changed, 0 or 1.
func shorten(g []float64, metric *mat.SymDense) int {
	v := mat.NewVecDense(len(g), g)
	length := math.Sqrt(mat.Inner(v, metric, v) / float64(len(g)))
	if length <= reach {
		return 0
	}
	v.ScaleVec(reach/length, v)
	return 1
}

func sum(a []float64, b *mat.SymDense) []float64 {
	x := chains.Flat(b)
	for i := range a {
		x[i] += a[i]
	}
	return x
}

func (c *Chain) sgld(t chains.Task, k *chains.Checkpoint) (func(context.Context, random.Key) error, error) {
	p := &c.d.Spec.Sampler.SGLD
	kern, ok := sgld.NewSGLD(p.A, p.B, p.Gamma, p.Freeze, p.Batch, t.Settings.Metric())
	if !ok {
		return nil, fmt.Errorf("the metric is not positive definite")
	}
	if k.State.SGLD == nil {
		k.State.SGLD = &sgld.SGLDState{}
	}
	return func(ctx context.Context, key random.Key) error {
		g, cost, err := c.d.gradient(ctx, c.source, request{psi: k.State.Psi, key: key, probes: t.Settings.Probes, atMode: c.atMode, vitals: &k.Vitals})
		if err != nil {
			return err
		}
		k.Cost.Add(cost)
		if k.State.SGLD.Frozen == 0 {
			k.Discard++
		}
		kern.Advance(k.State.Psi, g.Value, key.Iter, k.State.SGLD, key.Stream(random.Noise, 0))
		return nil
	}, nil
}

func (c *Chain) metropolis(t chains.Task, k *chains.Checkpoint) (func(context.Context, random.Key) error, error) {
	kern, ok := sgld.NewMetropolis(c.dense.LogDensity, t.Settings.Metric(), t.Settings.Mean, t.Warmup)
	if !ok {
		return nil, fmt.Errorf("the metric is not positive definite")
	}
	if k.State.Metropolis == nil {
		st := kern.Start(k.State.Psi)
		k.State.Metropolis = &st
	}
	return func(ctx context.Context, key random.Key) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		accept := kern.Advance(k.State.Psi, k.State.Metropolis, key.Stream(random.Accept, 0))
		cost := chains.Cost{Densities: 1, Seconds: time.Since(began).Seconds()}
		k.Cost.Add(cost)
		c.d.Observe(Observation{Chain: key.Chain, Iter: key.Iter, N: len(c.d.Problem.Y), Psi: slices.Clone(k.State.Psi), Acceptance: accept, Cost: cost})
		return nil
	}, nil
}
