package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Preloaded is a job that need not be read.
type Preloaded struct {
	Spec    *job.Spec
	Data    *dataset.Dataset
	Problem *posterior.Problem
	Plan    *chains.Plan
	Driver  *driver.Driver
}

// jobCache keeps the data of jobs that the worker has to do with.
type jobCache struct {
	open      func(ctx context.Context, address, path string) (io.ReadCloser, error)
	preloaded *Preloaded // the one job that there is, if set
	budget    *parallel.Budget
	memory    int64 // bytes that the worker may use; 0 if that is not known
	observe   func(job string, o runlog.Observation)
	log       *slog.Logger

	closed context.Context // done once the cache is closed
	end    context.CancelFunc
	wg     sync.WaitGroup // of what reads data

	mu   sync.Mutex
	byID map[string]*jobData
}

func newJobCache(c *Config, observe func(job string, o runlog.Observation)) *jobCache {
	out := &jobCache{open: c.Open, preloaded: c.Preloaded, budget: c.Budget, memory: c.MemoryBytes, observe: observe, log: c.Logger, byID: map[string]*jobData{}}
	out.closed, out.end = context.WithCancel(context.Background())
	return out
}

// close ends the reading of data.
func (c *jobCache) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.wg.Wait()
}

// keepIdle is how many jobs that nobody drives are kept, in case they return.
const keepIdle = 2

// jobData is a job with its data, and the driver of all its lanes here.
type jobData struct {
	id        string
	ready     chan struct{}
	err       error // why the data could not be read, once ready
	preloaded bool
	spec      *job.Spec
	data      *dataset.Dataset
	problem   *posterior.Problem
	cache     *cmvp.CachePlan // nil for none
	driver    *driver.Driver
}

// load returns a job with its data, reading them if need be. They have to be
// those that the assignment names, if it names any.
func (c *jobCache) load(ctx context.Context, id string, a *pb.Assignment) (*jobData, error) {
	c.mu.Lock()
	j := c.byID[id]
	if j == nil && c.closed.Err() != nil {
		c.mu.Unlock()
		return nil, errStopping
	}
	if j == nil {
		j = &jobData{id: id, ready: make(chan struct{})}
		c.byID[id] = j
		c.wg.Go(func() { c.fill(context.WithoutCancel(ctx), j, a) }) // for all who wait for it
	}
	c.mu.Unlock()
	select {
	case <-j.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if j.err == nil && a.DataSha256 != "" && a.DataSha256 != j.data.SHA256 {
		return nil, elsewhere{fmt.Errorf("the data at %s are not those that the job began with: their hash is %s, not %s", j.spec.Data.Path, j.data.SHA256, a.DataSha256)}
	}
	return j, j.err
}

// fill reads a job's data and says that they are ready, or why they are not.
func (c *jobCache) fill(ctx context.Context, j *jobData, a *pb.Assignment) {
	defer close(j.ready)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.closed, cancel)()
	if j.err = c.read(ctx, j, a); j.err != nil { // the next one tries again
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.byID, j.id)
	}
}

// trim forgets jobs that are not in use, but for a few.
func (c *jobCache) trim(inUse map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// read reads a job's data and makes its driver.
func (c *jobCache) read(ctx context.Context, j *jobData, a *pb.Assignment) error {
	if p := c.preloaded; p != nil {
		j.spec, j.data, j.problem, j.driver, j.preloaded = p.Spec, p.Data, p.Problem, p.Driver, true
		return nil
	}
	spec, err := job.ParseString(a.Spec)
	if err != nil { // a coordinator could read it, so that it is of a later version
		return elsewhere{fmt.Errorf("this worker, of version %s, cannot read a specification that the coordinator could: bring it to the cluster's version: %w", version.String(), err)}
	}
	var table io.Reader
	if spec.Data.Synthetic == nil {
		file, err := c.open(ctx, a.Data, spec.Data.Path)
		if err != nil {
			return elsewhere{fmt.Errorf("opening the data: %w", err)}
		}
		defer file.Close()
		table = file
	}
	if err := c.budget.Acquire(ctx); err != nil {
		return err
	}
	defer c.budget.Release()
	if j.data, err = spec.Load(ctx, table, c.budget); err != nil {
		return err
	}
	j.spec = spec
	if j.problem, err = spec.Problem(j.data); err != nil {
		return err
	}
	if j.cache, err = driver.PlanCache(ctx, spec, j.problem, c.budget); err != nil {
		return err
	}
	if j.cache != nil {
		c.log.Info("cache of K", "job", j.id, "decision", j.cache.String())
	}
	plan := spec.PlanOf(j.problem.Params.NamesBy(j.data.InputNames), j.data.N(), j.problem.Functions())
	j.driver = driver.New(driver.Config{Spec: spec, Problem: j.problem, Plan: &plan, Budget: c.budget,
		Observe: func(o runlog.Observation) { c.observe(j.id, o) }})
	return nil
}
