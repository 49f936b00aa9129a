package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Lane computes what a staged run asks of one of its lanes. It is not safe for concurrent
// use.
type Lane struct {
	d    *Driver
	lane int
	prep *chains.Prepared // of the run

	stored *posterior.Stored
	subset *posterior.Stored // of some rows
	rows   int               // how many
	op     Operator
	pre    []float64 // where the preconditioner of quad and of probed was built
	quad   *posterior.Quadratic
	near   []float64   // where P was built and the points that basis was solved at
	basis  [][]float64 // solutions
	probed *posterior.Probed
	cost   chains.Cost
}

// OwnFactorRows is up to how many rows each lane has a stored factor of its own, on its
// core. Beyond it the lanes take turns, each on all cores that are free.
const OwnFactorRows = 1500

// ownSubsetRows is the same of some of the rows.
const ownSubsetRows = 2000

// probedTolerance is the relative error of solutions that estimates by probes go to, unless
// the specification says otherwise: far below their noise.
const probedTolerance = 1e-4

// NewLane returns what computes for a lane.
func (d *Driver) NewLane(lane int) *Lane { return &Lane{d: d, lane: lane} }

// Event carries out some work of a staged run that was prepared, and returns the event that
// comes of it. The caller has a core of the budget.
func (l *Lane) Event(ctx context.Context, w chains.Work, prep *chains.Prepared) (*chains.Event, error) {
	l.prep = prep
	m, ok := sampler.Of(l.d.Plan).(sampler.Stager)
	if !ok {
		return nil, fmt.Errorf("runs of %s are not staged", l.d.Plan.Method)
	}
	o := l.d.Spec.SamplerOptions()
	if w.Conduct != nil {
		return m.Conduct(ctx, l, o, l.d.Plan, w.Conduct)
	}
	began := time.Now()
	numbers, err := m.Evaluate(ctx, l, o, l.d.Plan, w.Evaluate)
	if err != nil {
		return nil, err
	}
	cost := l.Cost()
	cost.Seconds = time.Since(began).Seconds()
	l.d.Observe(runlog.Observation{Kind: runlog.Item, Chain: l.lane, Iter: w.Evaluate.Item, Stage: w.Evaluate.Stage, StageKind: w.Evaluate.Kind,
		Rows: len(l.d.Problem.Y), Seconds: cost.Seconds, Solves: cost.Solves, Products: cost.Products, Singles: cost.Singles, Pairs: cost.Pairs,
		Unconverged: cost.Unconverged})
	return w.Evaluate.Event(numbers, cost)
}

// Model says what the posterior is of.
func (l *Lane) Model() sampler.Model {
	p := l.d.Problem
	rows, ok := p.Likelihood.(likelihood.ByRow)
	known := ok && rows.Offset() || slices.ContainsFunc(p.Covariance.Terms(), func(t kernel.TermAt) bool { return t.Variance < 0 })
	return sampler.Model{Rows: len(p.Y), Inputs: p.Inputs.Dim(), Params: p.Params, Offset: known}
}

// Budget returns the cores.
func (l *Lane) Budget() *parallel.Budget { return l.d.Budget }

// LogPrior returns the log prior density.
func (l *Lane) LogPrior(psi []float64) (float64, []float64) { return l.d.Problem.LogPrior(psi) }

// Cost returns what was done since the last call.
func (l *Lane) Cost() chains.Cost {
	c := l.cost
	l.cost = chains.Cost{}
	return c
}

// Factor evaluates by a stored factor.
func (l *Lane) Factor(ctx context.Context, psi []float64, gradients bool) (*sampler.Evidence, error) {
	d := l.d
	if len(d.Problem.Y) > OwnFactorRows {
		return l.inTurn(ctx, d.factor, len(d.Problem.Y), psi, gradients)
	}
	if l.stored == nil {
		l.stored = posterior.NewStored(d.Problem, d.Budget)
	}
	return l.at(ctx, l.stored, psi, gradients)
}

// Subset evaluates some rows, the first of which the search for the mode began with.
func (l *Lane) Subset(ctx context.Context, psi []float64, rows int) (*sampler.Evidence, error) {
	if rows > ownSubsetRows {
		return l.inTurn(ctx, l.d.subset, rows, psi, true)
	}
	if l.subset == nil || l.rows != rows {
		l.subset, l.rows = posterior.NewStored(l.some(rows), l.d.Budget), rows
	}
	return l.at(ctx, l.subset, psi, true)
}

// some returns the problem of so many random rows.
func (l *Lane) some(rows int) *posterior.Problem {
	p := l.d.Problem
	if rows == len(p.Y) {
		return p
	}
	return p.Subset(mode.Subset(len(p.Y), rows, random.Key{Seed: l.d.Spec.Seed}))
}

// inTurn evaluates so many rows by a stored factor that the lanes use one after the other.
func (l *Lane) inTurn(ctx context.Context, t *turns, rows int, psi []float64, gradients bool) (*sampler.Evidence, error) {
	b := l.d.Budget
	b.Release() // to the lane whose turn it is
	err := t.take(ctx)
	_ = b.Acquire(context.WithoutCancel(ctx)) // the caller is to find it as it was
	if err != nil {
		return nil, err
	}
	defer t.leave()
	if t.stored == nil || t.rows != rows {
		t.stored, t.rows = posterior.NewStored(l.some(rows), b), rows
	}
	return l.at(ctx, t.stored, psi, gradients)
}

func (l *Lane) at(ctx context.Context, stored *posterior.Stored, psi []float64, gradients bool) (*sampler.Evidence, error) {
	l.cost.Densities++
	v, err := stored.At(ctx, psi, gradients)
	if v == nil {
		return nil, err
	}
	return &sampler.Evidence{LogDet: v.LogDet, Quad: v.Quad, LogDetGrad: v.LogDetGrad, QuadGrad: v.QuadGrad}, nil
}

// Solves evaluates by products with K alone and probes.
func (l *Lane) Solves(ctx context.Context, psi, at []float64, key random.Key, probes int) (*sampler.Evidence, error) {
	if err := l.solveWith(ctx, at); err != nil {
		return nil, err
	}
	before := l.op.Counts()
	v, err := l.probed.At(ctx, psi, key, probes)
	l.cost.Add(costOf(l.probed.Report(), before, l.op.Counts(), 0))
	l.cost.Gradients++
	if v == nil {
		return nil, err
	}
	return &sampler.Evidence{LogDet: v.LogDet, LogDetVar: v.LogDetVar, Quad: v.Quad, LogDetGrad: v.LogDetGrad, QuadGrad: v.QuadGrad,
		GradCov: chains.Flat(v.GradCov), Probes: probes}, nil
}

// solveWith makes the solvers with P at a ψ, unless they are there.
func (l *Lane) solveWith(ctx context.Context, at []float64) error {
	d := l.d
	if l.quad != nil && slices.Equal(l.pre, at) {
		return nil
	}
	if l.op == nil {
		l.op = d.Operator(l.lane)
	}
	prep := *l.prep
	prep.Psi = at
	pre, err := d.atMode(ctx, &prep, l.op)
	if err != nil {
		return err
	}
	root, ok := pre.(posterior.Root)
	if !ok {
		return fmt.Errorf("the sampler %s needs a preconditioner with a factor, not %s", d.Plan.Method, d.Spec.Solver.Preconditioner.Kind)
	}
	opt := solve.Options{Tolerance: fineTolerance, Precond: pre, Mixed: true, Budget: d.Budget,
		MaxIter: d.Spec.Solver.MaxIterations.Or(min(maxAutoIterations, 10*len(d.Problem.Y)+100))}
	l.quad, l.pre = posterior.NewQuadratic(d.Problem, l.op, solve.New(l.op, opt)), at
	opt.Tolerance, opt.Mixed = d.Spec.Solver.Tolerance.Or(probedTolerance), false
	l.probed = posterior.NewProbed(d.Problem, l.op, solve.New(l.op, opt), root)
	return nil
}

// Quadratic returns yᵀK⁻¹y.
func (l *Lane) Quadratic(ctx context.Context, psi, at []float64, basis [][]float64, tolerance, enough float64) (value, bound float64, err error) {
	if err := l.solveWith(ctx, at); err != nil {
		return 0, 0, err
	}
	before := l.op.Counts()
	if err = l.solveBasis(ctx, at, basis); err == nil {
		value, bound, err = l.quad.At(ctx, psi, l.basis, tolerance, enough)
	}
	l.cost.Add(costOf(l.quad.Report(), before, l.op.Counts(), 0))
	return value, bound, err
}

// solveBasis has the solutions at points solved for with P at a ψ, once for all lanes, unless they are there.
func (l *Lane) solveBasis(ctx context.Context, at []float64, points [][]float64) error {
	near := slices.Concat(append([][]float64{at}, points...)...)
	if slices.Equal(near, l.near) {
		return nil
	}
	d := l.d
	d.Budget.Release() // to the lane that solves
	basis, err := d.basis.get(ctx, near, func() ([][]float64, error) {
		if err := d.Budget.Acquire(ctx); err != nil {
			return nil, err
		}
		defer d.Budget.Release()
		return l.quad.Basis(ctx, points)
	})
	_ = d.Budget.Acquire(context.WithoutCancel(ctx)) // the caller is to find it as it was
	if err != nil {
		return err
	}
	l.near, l.basis = near, basis
	return nil
}

// turns is a stored factor that lanes use one after the other.
type turns struct {
	turn   chan struct{} // full while somebody uses it
	stored *posterior.Stored
	rows   int // that it is of
}

func newTurns() *turns { return &turns{turn: make(chan struct{}, 1)} }

func (t *turns) take(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turns) leave() { <-t.turn }
