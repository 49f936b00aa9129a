package driver

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Constants of trials.
const (
	trialRows       = 1024
	fewTrialRows    = 256 // where those take too long
	trialIterations = 6   // of each window, and of sampling
	trialLimit      = 20 * time.Second
)

// Trial is the beginning of a run, on all of its rows or on some: what the preparation
// and an iteration take, with the probes, the solver and the preconditioner that it chooses.
// Seconds are of all cores.
type Trial struct {
	Rows       int       `json:"rows"`
	Dense      float64   `json:"seconds_dense"`     // of the first, dense search for the mode
	Prepare    float64   `json:"seconds_prepare"`   // of the rest of the preparation
	Windows    []float64 `json:"seconds_windows"`   // of one iteration of one chain, by window
	Sampling   float64   `json:"seconds_iteration"` // the same, once the settings are frozen
	Probes     int       `json:"probes"`            // 0 where the sampler has none
	Iterations float64   `json:"iterations"`        // of a solve, mean; 0 where there are none
	Near       float64   `json:"near,omitempty"`    // share of all pairs of rows that products evaluate at the trial's mode; 0 for all
}

// seconds returns what a run on n rows takes by its trial: what is not the dense search grows
// with the power of the rows.
func (t *Trial) seconds(p *chains.Plan, n int, power int) (total, iteration float64) {
	scale := 1.0
	for range power {
		scale *= float64(n) / float64(t.Rows)
	}
	if t.Near > 0 && t.Rows < n { // the trial's own rows are not arranged
		scale *= t.Near
	}
	all := t.Prepare
	for w, iterations := range p.Windows {
		all += float64(p.Chains*iterations) * t.Windows[w]
	}
	all += float64(p.Chains*p.Draws) * t.Sampling
	return t.Dense + scale*all, scale * t.Sampling
}

// NewTrial returns a trial of a job of n rows, nil if it takes too long or fails. The problem may have
// fewer rows. A rank that the specification gives is to the root of the trial's rows what it is to
// that of n, since with few rows it would be nearly K. The cache may be nil.
func NewTrial(ctx context.Context, s *job.Spec, p *posterior.Problem, n int, cache *cmvp.CachePlan, budget *parallel.Budget) *Trial {
	for _, rows := range []int{trialRows, fewTrialRows} {
		some := *s
		if rank := &some.Solver.Preconditioner.Rank; rank.Set {
			*rank = job.Fixed(int(math.Ceil(float64(rank.Value) * math.Sqrt(float64(min(rows, len(p.Y)))/float64(n)))))
		}
		if t, err := try(ctx, &some, p, rows, cache, budget); err == nil {
			return t
		}
	}
	return nil // the run will say why, if it fails, too
}

// try runs a job for a few iterations of each window, on some rows.
func try(ctx context.Context, s *job.Spec, p *posterior.Problem, rows int, cache *cmvp.CachePlan, budget *parallel.Budget) (*Trial, error) {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	n := len(p.Y)
	t, whole := &Trial{Rows: min(n, rows)}, p
	if t.Rows < n {
		p, cache = p.Subset(mode.Subset(n, t.Rows, random.Key{Seed: s.Seed})), nil
	}
	plan := s.PlanOf(p.Model.Names(), t.Rows, p.Functions())
	plan.Chains = min(plan.Chains, budget.Cores())
	plan.Provisional, plan.Mean, plan.Certificate = false, false, nil
	for w := range plan.Windows {
		plan.Windows[w] = trialIterations
	}
	plan.Checkpoint, plan.Draws, plan.MaxDraws = trialIterations, trialIterations, trialIterations

	began := time.Now()
	first := sync.OnceFunc(func() { t.Dense = time.Since(began).Seconds() })
	d := New(Config{Spec: s, Problem: p, Plan: &plan, Budget: budget, Observe: func(runlog.Observation) { first() },
		Operator: func(int) Operator {
			op := cmvp.New(p.Inputs, p.Covariance, budget)
			if cache != nil {
				cache.Apply(op)
			}
			return op
		}})
	run := chains.New(plan)
	if err := d.tryPrepare(ctx, run); err != nil {
		return nil, err
	}
	first()
	t.Prepare = time.Since(began).Seconds() - t.Dense
	if !s.Needs().Dense {
		t.Near = Near(whole, run.Prepared.Psi, budget)
	}
	return t, d.tryChains(ctx, run, t)
}

// tryPrepare carries out the preparation of a trial.
func (d *Driver) tryPrepare(ctx context.Context, run *chains.Run) error {
	if err := d.Budget.Acquire(ctx); err != nil {
		return err
	}
	defer d.Budget.Release()
	prep, err := d.Prepare(ctx, &chains.Preparation{})
	if err != nil {
		return err
	}
	return run.Apply(chains.Event{Prepared: prep})
}

// tryChains advances the chains of a trial, a checkpoint of each at a time, as long as it has
// windows, and once after them.
func (d *Driver) tryChains(ctx context.Context, run *chains.Run, t *Trial) error {
	lanes := make([]*Chain, run.Plan.Chains)
	for windows := 0; windows <= len(run.Plan.Windows); windows++ {
		e, err := sampler.Adapt(run)
		if err == nil {
			err = run.Apply(*e)
		}
		if err != nil {
			return err
		}
		began := time.Now()
		done := make([]*chains.Checkpoint, len(lanes))
		g, gctx := errgroup.WithContext(ctx)
		for c := range lanes {
			task, _ := run.Task(c + 1)
			g.Go(func() (err error) {
				if err := d.Budget.Acquire(gctx); err != nil {
					return err
				}
				defer d.Budget.Release()
				if lanes[c] == nil {
					if lanes[c], err = d.NewChain(gctx, run.Prepared, c+1); err != nil {
						return err
					}
				}
				done[c], err = lanes[c].Advance(gctx, task)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		each := time.Since(began).Seconds() / float64(trialIterations*len(lanes))
		if windows < len(run.Plan.Windows) {
			t.Windows = append(t.Windows, each)
		} else {
			t.Sampling = each
			t.count(run, done)
		}
		for _, k := range done {
			if err := run.Apply(chains.Event{Checkpoint: k}); err != nil {
				return err
			}
		}
	}
	return nil
}

// count notes what an iteration was made of.
func (t *Trial) count(run *chains.Run, done []*chains.Checkpoint) {
	t.Probes = run.Settings.Probes
	var cost chains.Cost
	for _, k := range done {
		cost.Add(k.Cost)
	}
	if cost.Solves > 0 {
		t.Iterations = float64(cost.Iterations) / float64(cost.Solves)
	}
}
