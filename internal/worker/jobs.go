package worker

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// jobCache keeps the data of jobs that the worker has to do with.
type jobCache struct {
	w    *Worker
	mu   sync.Mutex
	byID map[string]*loaded
}

// keepIdle is how many jobs that nobody drives are kept, in case they return.
const keepIdle = 2

// loaded is a job with its data.
type loaded struct {
	w       *Worker
	id      string
	ready   chan struct{}
	err     error
	spec    *job.Spec
	data    *dataset.Dataset
	problem *posterior.Problem
	plan    *chains.Plan
	cache   *cmvp.CachePlan // nil for none

	mu     sync.Mutex
	drv    *driver.Driver
	groups map[int]*drive // who drives a chain here
}

func newJobCache(w *Worker) *jobCache { return &jobCache{w: w, byID: map[string]*loaded{}} }

// load returns a job with its data, reading them if need be. Each driver loads
// its job once or more and releases it once.
func (c *jobCache) load(ctx context.Context, id string, a *coordinator.Assignment) (*loaded, error) {
	c.mu.Lock()
	j := c.byID[id]
	if j == nil {
		j = &loaded{w: c.w, id: id, ready: make(chan struct{}), groups: map[int]*drive{}}
		c.byID[id] = j
		go func() {
			defer close(j.ready)
			if j.err = j.read(context.WithoutCancel(ctx), a); j.err != nil { // the next one tries again
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.byID, id)
			}
		}()
	}
	c.mu.Unlock()
	select {
	case <-j.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if j.err == nil && a.Info != nil && a.Info.SHA256 != j.data.SHA256 {
		return nil, fmt.Errorf("the data at %s are not those that the job began with: their hash is %s, not %s", j.spec.Data.Path, j.data.SHA256, a.Info.SHA256)
	}
	return j, j.err
}

// release forgets jobs that nobody drives, but for a few.
func (c *jobCache) release(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inUse := map[string]bool{}
	c.w.mu.Lock()
	for k := range c.w.drives {
		inUse[k.job] = true
	}
	c.w.mu.Unlock()
	idle := 0
	for id := range c.byID {
		if inUse[id] {
			continue
		}
		if idle++; idle > keepIdle {
			delete(c.byID, id)
		}
	}
}

// read reads the data and makes the problem.
func (j *loaded) read(ctx context.Context, a *coordinator.Assignment) error {
	if p := j.w.Preloaded; p != nil {
		j.spec, j.data, j.problem, j.plan, j.drv = p.Spec, p.Data, p.Problem, p.Plan, p.Driver
		return nil
	}
	spec, err := job.ParseString(a.Spec)
	if err != nil {
		return err
	}
	var table io.ReadCloser
	if spec.Data.Synthetic == nil {
		if table, err = j.w.Open(ctx, a.Data, spec.Data.Path); err != nil {
			return fmt.Errorf("opening the data: %w", err)
		}
		defer table.Close()
	}
	if err := j.w.Budget.Acquire(ctx); err != nil {
		return err
	}
	defer j.w.Budget.Release()
	if j.data, err = spec.Load(ctx, reader(table), j.w.Budget); err != nil {
		return err
	}
	if j.problem, err = spec.Problem(j.data); err != nil {
		return err
	}
	p := spec.Plan(j.problem.Model.Names(), j.data.N())
	j.spec, j.plan = spec, &p
	if j.cache, err = driver.PlanCache(ctx, spec, j.problem, j.w.Budget); err != nil {
		return err
	}
	if j.cache != nil {
		j.w.Logger.Info("cache of K", "job", j.id, "decision", j.cache.String())
	}
	return nil
}

// reader returns a reader that is nil if r is.
func reader(r io.ReadCloser) io.Reader {
	if r == nil {
		return nil
	}
	return r
}

// driver returns the job's driver, which all its chains here share.
func (j *loaded) driver(d *drive) *driver.Driver {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.groups[d.key.chain] = d
	if j.drv == nil {
		j.drv = driver.New(driver.Config{Spec: j.spec, Problem: j.problem, Plan: j.plan, Budget: j.w.Budget,
			Observe:  func(o runlog.Observation) { j.w.observe(j.id, o) },
			Trace:    j.trace,
			Operator: func(chain int) driver.Operator { return j.operator(chain) }})
	}
	return j.drv
}

// trace follows an iteration of a chain, if it is time.
func (j *loaded) trace(ctx context.Context, chain, iter int) (context.Context, func()) {
	if j.w.Tracer == nil {
		return ctx, func() {}
	}
	j.mu.Lock()
	d := j.groups[chain]
	j.mu.Unlock()
	return j.w.Tracer.Iteration(ctx, j.id, chain, d.attempt, iter)
}

// operator returns the operator of a chain, over the group of its driver.
func (j *loaded) operator(chain int) driver.Operator {
	j.mu.Lock()
	d := j.groups[chain]
	j.mu.Unlock()
	data := shard.Data{Address: inputsAddress(j.id, j.data.SHA256), Covariance: j.problem.Covariance, ISA: j.w.isa, Rows: j.data.N()}
	own := cmvp.New(j.problem.Inputs, j.problem.Covariance, j.w.Budget)
	if j.cache != nil && d.alone() { // members of a group compute other rows each time
		j.cache.Apply(own)
	}
	g := shard.New(shard.Config{Local: own, MinRows: j.w.MinRows, Meter: j.w.Meter, Log: j.w.Logger,
		Dial: func(address string) shard.Member { return j.w.Peers.Member(address, data) }})
	d.setOperator(g)
	return g
}

// chain returns the driver of a chain of the job.
func (j *loaded) chain(d *drive, w chains.Work, prep *chains.Prepared) (*driver.Chain, error) {
	drv := j.driver(d).For(w)
	if err := j.w.Budget.Acquire(d.ctx); err != nil {
		return nil, err
	}
	defer j.w.Budget.Release()
	return drv.NewChain(d.ctx, prep, d.key.chain)
}
