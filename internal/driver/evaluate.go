package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
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

	stored *posterior.Stored
	op     Operator
	preP   []float64 // where the preconditioner of quad was built
	quad   *posterior.Quadratic
	cost   chains.Cost
}

// NewLane returns what computes for a lane.
func (d *Driver) NewLane(lane int) *Lane { return &Lane{d: d, lane: lane} }

// Event carries out some work of a staged run, and returns the event that comes of it.
func (l *Lane) Event(ctx context.Context, w chains.Work) (*chains.Event, error) {
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
	return sampler.Model{Rows: len(p.Y), Inputs: p.Inputs.Dim(), Params: p.Params}
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
	if l.stored == nil {
		l.stored = posterior.NewStored(l.d.Problem, l.d.Budget)
	}
	l.cost.Densities++
	v, err := l.stored.At(ctx, psi, gradients)
	if v == nil {
		return nil, err
	}
	return &sampler.Evidence{LogDet: v.LogDet, Quad: v.Quad, LogDetGrad: v.LogDetGrad, QuadGrad: v.QuadGrad}, nil
}

// Solves evaluates by solves and probes.
func (l *Lane) Solves(context.Context, []float64, []float64, random.Key, int) (*sampler.Evidence, error) {
	return nil, errors.New("evaluating by solves is not there yet")
}

// Quadratic returns yᵀK⁻¹y.
func (l *Lane) Quadratic(ctx context.Context, psi, at []float64, basis [][]float64, tolerance float64) (value, bound float64, err error) {
	d := l.d
	if l.quad == nil || !slices.Equal(l.preP, at) {
		if l.op == nil {
			l.op = d.Operator(l.lane)
		}
		pre, err := d.atMode(ctx, &chains.Prepared{Psi: at}, l.op)
		if err != nil {
			return 0, 0, err
		}
		opt := solve.Options{Tolerance: fineTolerance, Precond: pre, Mixed: true, Budget: d.Budget,
			MaxIter: d.Spec.Solver.MaxIterations.Or(min(maxAutoIterations, 10*len(d.Problem.Y)+100))}
		l.quad, l.preP = posterior.NewQuadratic(d.Problem, l.op, solve.New(l.op, opt)), at
	}
	before := l.op.Counts()
	value, bound, err = l.quad.At(ctx, psi, basis, tolerance)
	l.cost.Add(costOf(l.quad.Report(), before, l.op.Counts(), 0))
	return value, bound, err
}
