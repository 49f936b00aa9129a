package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/pseudomarginal"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Chain drives one chain. It is not safe for concurrent use.
type Chain struct {
	d         *Driver
	op        Operator         // gradients
	pre       precond.P        // of op
	source    *source          // over op
	atMode    float64          // iterations of a solve at the mode
	tolerance float64          // of its solves
	early     bool             // whether its solves stop early
	dense     *posterior.Dense // a stored K
	joint     *joint           // the joint density
	inducing  *posterior.Inducing
	white     *laplace.White // that around Laplace's approximation
	estimator *pseudomarginal.Estimator

	latent [][]float64 // the vectors of its state
	kept   latent.Ref  // what they are the encoding of
	blob   []byte      // that encoding
}

// NewChain returns the driver of a chain (from 1) of a prepared run.
func (d *Driver) NewChain(ctx context.Context, prep *chains.Prepared, chain int) (*Chain, error) {
	c := &Chain{d: d, atMode: prep.Iterations, tolerance: d.tolerance(prep)}
	var err error
	switch {
	case d.needs.Laplace:
		c.white, err = laplace.NewWhite(ctx, d.Problem, prep.Psi)
	case d.needs.Estimated:
		c.estimator, err = d.newEstimator()
	case d.needs.Dense:
		c.dense = posterior.NewDense(d.Problem, d.Budget)
	}
	if d.needs.Joint {
		c.joint, err = d.newJoint(ctx, prep, chain)
	}
	if d.needs.Inducing {
		c.inducing, err = d.inducing(ctx, chain)
	}
	if d.needs.Gradients {
		c.op = d.Operator(chain)
		c.pre, err = d.atMode(ctx, prep, c.op)
	}
	return c, err
}

// Lacks returns what names the latent vectors that the chain has to be given before
// it goes on from a state; nothing if it has them.
func (c *Chain) Lacks(from *chains.State) (latent.Ref, bool) {
	return from.Latent, from.Latent != c.kept && !from.Latent.IsZero()
}

// Give gives the chain the latent vectors that a state names, as they were kept.
func (c *Chain) Give(blob []byte) error {
	v, err := latent.Decode(blob, c.d.needs.Latent, c.d.latentLength())
	if err == nil {
		c.latent, c.blob, c.kept = v, blob, latent.RefOf(blob)
	}
	return err
}

// latentLength returns the length of a chain's latent vectors.
func (d *Driver) latentLength() int {
	return d.Spec.LatentLength(len(d.Problem.Y), d.Problem.Functions())
}

// Latent returns the encoding of the latent vectors that the last checkpoint names,
// nil for none. It is to be kept before the checkpoint is told of.
func (c *Chain) Latent() []byte { return c.blob }

// begin makes the latent vectors those of a state.
func (c *Chain) begin(from *chains.State) error {
	switch {
	case from.Latent.IsZero():
		c.latent, c.blob, c.kept = latent.New(c.d.needs.Latent, c.d.latentLength()), nil, latent.Ref{}
	case from.Latent != c.kept:
		return fmt.Errorf("the latent vectors at iteration %d are not those that the checkpoint names", from.Iter)
	}
	c.kept = latent.Ref{} // until the next checkpoint they are of no state
	return nil
}

// end has the checkpoint name the latent vectors.
func (c *Chain) end(k *chains.Checkpoint) error {
	if c.latent == nil {
		return nil
	}
	for i, v := range c.latent {
		if floats.HasNaN(v) || math.IsInf(floats.Norm(v, math.Inf(1)), 0) {
			return fmt.Errorf("chain %d diverged by iteration %d: its latent vector %d is not finite", k.Chain, k.State.Iter, i+1)
		}
	}
	c.blob = latent.Encode(c.latent)
	c.kept = latent.RefOf(c.blob)
	k.State.Latent = c.kept
	return nil
}

// use makes the chain's source what the settings ask for.
func (c *Chain) use(early bool) (err error) {
	if c.source == nil || c.early != early {
		c.early = early
		c.source, err = c.d.newSource(c.d.Problem, c.op, c.pre, c.tolerance, early)
	}
	return err
}

// maxPsi bounds the log parameters: beyond it something has diverged.
const maxPsi = 60

// Divergence is the error of a chain that has left where the posterior is.
type Divergence struct {
	chains.Divergence
	why string
}

func (d *Divergence) Error() string {
	return fmt.Sprintf("chain %d diverged at iteration %d: %s: the posterior is far from normal there; %s, method: auto or exact, or informative priors", d.Chain, d.Iter, d.why, sampler.Remedy)
}

// Checkpoint carries out a task, and returns what there is to be reported of it: its checkpoint, or that
// the chain diverged, if the run is to begin again then.
func (c *Chain) Checkpoint(ctx context.Context, t chains.Task) (*chains.Event, error) {
	k, err := c.Advance(ctx, t)
	var d *Divergence
	if t.Again && errors.As(err, &d) {
		return &chains.Event{Diverged: &d.Divergence}, nil
	}
	return &chains.Event{Checkpoint: k}, err
}

// Advance carries out a task, which it does not change. The result depends on the task alone,
// with the latent vectors that its state names: the chain has to have them (Lacks, Give).
// The error of a chain that diverges is a *Divergence.
func (c *Chain) Advance(ctx context.Context, t chains.Task) (*chains.Checkpoint, error) {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: t.From}
	k.State.Psi, k.State.Memory = slices.Clone(t.From.Psi), slices.Clone(t.From.Memory)
	if c.op != nil {
		if err := c.use(t.Settings.Early); err != nil {
			return nil, err
		}
		c.source.est.Reset()
	}
	if c.white != nil {
		defer c.white.Forget() // it takes as much memory as a factor of K
	}
	if err := c.begin(&t.From); err != nil {
		return nil, err
	}
	e := &env{chain: c, k: k}
	step, err := sampler.Of(c.d.Plan).Start(e, c.d.Spec.SamplerOptions(), c.d.Plan, &t, k)
	if err != nil {
		return nil, err
	}
	for range t.Iterations {
		k.State.Iter++
		err := e.iterate(ctx, step)
		var lost unsolvable
		if errors.As(err, &lost) {
			return nil, diverged(k, err.Error())
		}
		if err != nil {
			return nil, err
		}
		for _, x := range k.State.Psi {
			if math.IsNaN(x) || math.Abs(x) > maxPsi {
				return nil, diverged(k, fmt.Sprintf("log parameters %.4g", k.State.Psi))
			}
		}
		k.Draws = append(k.Draws, slices.Clone(k.State.Psi))
	}
	return k, c.end(k)
}

// diverged says that a chain diverged on the way to a checkpoint.
func diverged(k *chains.Checkpoint, why string) error {
	return &Divergence{chains.Divergence{Chain: k.Chain, FromIter: k.FromIter, Iter: k.State.Iter, Restarts: k.State.Restarts, Cost: k.Cost}, why}
}

// env is what a sampler moves a chain to a checkpoint with.
type env struct {
	chain    *Chain
	k        *chains.Checkpoint
	observed bool // a gradient of this iteration, which told what it cost
}

// iterate does one iteration and tells of it.
func (e *env) iterate(ctx context.Context, step sampler.Step) error {
	c, key := e.chain, random.Key{Seed: e.chain.d.Plan.Seed, Chain: e.k.Chain, Iter: e.k.State.Iter}
	if c.d.Trace != nil {
		var end func()
		ctx, end = c.d.Trace(ctx, key.Chain, key.Iter)
		defer end()
	}
	e.observed = false
	began := time.Now()
	if c.joint != nil {
		c.joint.begin()
	}
	out, err := step(ctx, key)
	if err != nil {
		return err
	}
	if out.Accepted {
		e.k.Accepted++
	}
	switch {
	case e.observed:
	case c.joint != nil:
		e.k.Cost.Add(c.joint.stepped(key, e.k.State.Psi, out, &e.k.Vitals))
	default:
		cost := chains.Cost{Densities: 1, Seconds: time.Since(began).Seconds()}
		e.k.Cost.Add(cost)
		o := c.d.observation(runlog.Step, key, len(c.d.Problem.Y), e.k.State.Psi, solve.Report{}, cost)
		o.Acceptance = out.Acceptance
		c.d.Observe(o)
	}
	return nil
}

func (e *env) Gradient(ctx context.Context, r sampler.Request) (*sampler.Gradient, error) {
	g, cost, err := e.chain.d.gradient(ctx, e.chain.source, request{Request: r, atMode: e.chain.atMode, vitals: &e.k.Vitals})
	if err != nil {
		return nil, err
	}
	e.observed = true
	e.k.Cost.Add(cost)
	return &sampler.Gradient{Value: g.Value, ProbeCov: g.ProbeCov, SolverCov: g.SolverCov, Products: cost.Products}, nil
}

func (e *env) Density(ctx context.Context, psi []float64) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return e.chain.dense.LogDensity(psi), nil
}

func (e *env) Joint() sampler.Joint { return e.chain.joint }

func (e *env) Inducing() sampler.Inducing { return e.chain.inducing }
func (e *env) White() sampler.White       { return e.chain.white }

func (e *env) Latent() [][]float64 { return e.chain.latent }
