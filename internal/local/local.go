// Package local runs a job in one process: it schedules the chains over a
// budget of cores and keeps a journal from which a run that was stopped, or
// killed, goes on as if it had not been.
package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Config says what to run.
type Config struct {
	Plan    chains.Plan
	Driver  *driver.Driver
	Budget  *parallel.Budget
	Journal string // path of the journal
	// Prepare, if set, is called in place of the driver's.
	Prepare func(context.Context) (*chains.Prepared, error)
	// Watch, if set, is called with the run after every event, one call at a
	// time. It must not keep the run.
	Watch func(View)
}

// View is a run as it stands.
type View struct {
	Run         *chains.Run
	Convergence chains.Convergence // at the last look of the judge
	Elapsed     time.Duration
}

// runner is a run at work.
type runner struct {
	Config
	mu      sync.Mutex
	changed sync.Cond
	run     *chains.Run
	journal *journal
	judge   chains.Judge
	began   time.Time
	err     error
}

// Run runs a job to its end and returns it. If ctx is done first it returns
// the run as far as it came together with ctx's error; called again with the
// same journal it goes on.
func Run(ctx context.Context, c Config) (*chains.Run, time.Duration, error) {
	r := &runner{Config: c, run: chains.New(c.Plan), began: time.Now()}
	r.changed.L = &r.mu
	var err error
	if r.journal, err = openJournal(c.Journal, r.run); err != nil {
		return nil, 0, err
	}
	defer r.journal.close()
	r.began = r.began.Add(-r.journal.elapsed)

	work, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.Plan.MaxTime > 0 {
		timer := time.AfterFunc(time.Until(r.began.Add(c.Plan.MaxTime)), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.decide()
			cancel()
			r.changed.Broadcast()
		})
		defer timer.Stop()
	}
	stop := context.AfterFunc(work, func() { // wake those who wait
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer stop()

	if err := r.prepare(work); err == nil {
		var wg sync.WaitGroup
		for c := range r.run.Chains {
			wg.Go(func() { r.drive(work, cancel, c+1) })
		}
		wg.Wait()
	} else {
		r.fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run.Phase != chains.Done && r.err == nil {
		r.err = ctx.Err()
	}
	if r.run.Phase == chains.Done {
		r.err = nil // what was interrupted by the end is not a failure
	}
	return r.run, time.Since(r.began), r.err
}

// fail keeps the first error.
func (r *runner) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// prepare finds the mode, unless the journal knows it.
func (r *runner) prepare(ctx context.Context) error {
	r.mu.Lock()
	phase := r.run.Phase
	r.mu.Unlock()
	if phase == chains.Preparing {
		if err := r.Budget.Acquire(ctx); err != nil {
			return err
		}
		prepare := r.Prepare
		if prepare == nil {
			prepare = r.Driver.Prepare
		}
		prep, err := prepare(ctx)
		r.Budget.Release()
		if err != nil {
			return err
		}
		if err := r.commit(chains.Event{Prepared: prep}); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settle()
}

// drive moves one chain for as long as it has something to do.
func (r *runner) drive(ctx context.Context, cancel context.CancelFunc, chain int) {
	var ch *driver.Chain
	for {
		t, ok := r.next(ctx, chain)
		if !ok {
			return
		}
		if err := r.Budget.Acquire(ctx); err != nil {
			r.fail(err)
			return
		}
		k, err := func() (*chains.Checkpoint, error) {
			defer r.Budget.Release()
			if ch == nil {
				var err error
				if ch, err = r.Driver.NewChain(ctx, r.run.Prepared, chain); err != nil {
					return nil, err
				}
			}
			return ch.Advance(ctx, t)
		}()
		if err == nil {
			err = r.commit(chains.Event{Checkpoint: k})
		}
		if err != nil {
			r.fail(err)
			cancel()
			return
		}
	}
}

// next waits for the chain's next task; false means that there will be none.
func (r *runner) next(ctx context.Context, chain int) (chains.Task, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.run.Phase == chains.Done || ctx.Err() != nil {
			return chains.Task{}, false
		}
		if t, ok := r.run.Task(chain); ok {
			return t, true
		}
		r.changed.Wait()
	}
}

// commit writes an event and applies it, and takes the decisions that follow.
func (r *runner) commit(e chains.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run.Phase == chains.Done && e.Checkpoint != nil {
		return nil // came too late to count
	}
	if err := r.apply(e); err != nil {
		return err
	}
	return r.settle()
}

// apply applies an event and writes it. An event that cannot be written ends
// the run before anybody has seen it.
func (r *runner) apply(e chains.Event) error {
	if err := r.run.Apply(e); err != nil {
		return err
	}
	elapsed := time.Since(r.began)
	if err := r.journal.append(e, elapsed); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if r.Watch != nil {
		r.Watch(View{Run: r.run, Convergence: r.judge.Last, Elapsed: elapsed})
	}
	r.changed.Broadcast()
	return nil
}

// settle takes the decisions that are due: settings at a barrier, the end.
func (r *runner) settle() error {
	for r.run.AtBarrier() {
		s, err := chains.Adapt(r.run)
		if err != nil {
			return err
		}
		if err := r.apply(chains.Event{Settings: s}); err != nil {
			return err
		}
	}
	return r.decide()
}

func (r *runner) decide() error {
	stop := r.judge.Decide(r.run, time.Since(r.began))
	if stop == nil {
		return nil
	}
	err := r.apply(chains.Event{Stop: stop})
	if err != nil && r.err == nil {
		r.err = err
	}
	return err
}

// ErrInterrupted reports whether an error of Run means that it can be resumed.
func ErrInterrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
