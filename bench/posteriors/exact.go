package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// exact evaluates the posterior's log density by stored factors: with one worker on all
// cores for large data, with one for each core for small ones.
type exact struct {
	problem *posterior.Problem
	budget  *parallel.Budget
	workers []*worker
}

type worker struct {
	problem       *posterior.Problem
	stored        *posterior.Stored
	values, grads atomic.Int64
}

// alone is up to how many rows a density is computed on one core.
const alone = 1500

func newExact(p *posterior.Problem, b *parallel.Budget) *exact {
	e := &exact{problem: p, budget: b}
	n, own := b.MaxWorkers(), func() *parallel.Budget {
		one := parallel.NewBudget(1)
		_ = one.Acquire(context.Background()) // its only core is free
		return one
	}
	if len(p.Y) > alone {
		n, own = 1, func() *parallel.Budget { return b }
	}
	for range n {
		e.workers = append(e.workers, &worker{problem: p, stored: posterior.NewStored(p, own())})
	}
	return e
}

// each runs body for i in [0,n), on as many cores as there are workers for.
func (e *exact) each(n int, body func(w *worker, i int)) {
	if len(e.workers) == 1 {
		for i := range n {
			body(e.workers[0], i)
		}
		return
	}
	e.budget.NewLoop(func(w, i int) { body(e.workers[w], i) }).Run(n)
}

func (e *exact) values() (n int64) {
	for _, w := range e.workers {
		n += w.values.Load()
	}
	return n
}

func (e *exact) gradients() (n int64) {
	for _, w := range e.workers {
		n += w.grads.Load()
	}
	return n
}

// evidence returns log|K| and yᵀK⁻¹y, nil where K is numerically singular or ctx is done.
func (w *worker) evidence(ctx context.Context, psi []float64, gradients bool) *posterior.Evidence {
	v, err := w.stored.At(ctx, psi, gradients)
	if err != nil {
		return nil
	}
	return v
}

// at returns the log density, and its gradient if it is asked for; −∞ where there is none.
func (w *worker) at(ctx context.Context, psi []float64, gradient bool) (float64, []float64) {
	prior, grad := w.problem.LogPrior(psi)
	if math.IsInf(prior, 0) || math.IsNaN(prior) {
		return math.Inf(-1), nil
	}
	v := w.evidence(ctx, psi, gradient)
	if v == nil {
		return math.Inf(-1), nil
	}
	for i := range v.LogDetGrad {
		grad[i] -= (v.LogDetGrad[i] + v.QuadGrad[i]) / 2
	}
	return prior - (v.LogDet+v.Quad+float64(len(w.problem.Y))*math.Log(2*math.Pi))/2, grad
}

func (w *worker) gradient(ctx context.Context, psi []float64) (float64, []float64) {
	w.grads.Add(1)
	return w.at(ctx, psi, true)
}

// evaluate computes the targets of proposals.
func (e *exact) evaluate(ctx context.Context, p *metropolis.Proposals) error {
	e.each(len(p.X), func(w *worker, i int) {
		w.values.Add(1)
		p.Target[i], _ = w.at(ctx, p.X[i], false)
	})
	return ctx.Err()
}

// check compares a density with that of the oracle, which shares no code with it.
func (e *exact) check(oracle *posterior.Dense) error {
	if len(e.problem.Y) > 3000 {
		return nil
	}
	psi := make([]float64, e.problem.Model.NumParams())
	for i := range psi {
		psi[i] = -1 + 0.1*float64(i)
	}
	got, _ := e.workers[0].at(context.Background(), psi, false)
	if want := oracle.LogDensity(slices.Clone(psi)); !(math.Abs(got-want) < 1e-8*math.Abs(want)) {
		return fmt.Errorf("the log density is %v, the oracle's %v", got, want)
	}
	return nil
}
