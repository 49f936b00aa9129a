// Package local runs a job in one process without a cluster: it schedules the chains over a
// budget of cores and keeps a journal from which a run that was stopped, or
// killed, goes on as if it had not been. Calibration uses it, and tests hold the draws of
// clusters against its own. (ulisse run is a cluster of one: server.Embedded.)
package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Config says what to run.
type Config struct {
	Plan    chains.Plan
	Driver  *driver.Driver
	Budget  *parallel.Budget
	Journal string // path of the journal
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
	latents latents
	judge   chains.Judge
	items   chains.Dispatcher
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
	r.latents = latents(c.Journal + ".latent")
	if err := r.latents.trim(r.run.Latents()); err != nil {
		return nil, 0, err
	}
	r.began = r.began.Add(-r.journal.elapsed)

	work, cancel := context.WithCancel(ctx)
	var clock sync.WaitGroup
	defer clock.Wait()
	defer cancel()
	if c.Plan.MaxTime > 0 {
		clock.Go(func() { r.limit(work, cancel) })
	}
	stop := context.AfterFunc(work, func() { // wake those who wait
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer stop()

	r.mu.Lock()
	err = r.settle()
	r.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	var wg sync.WaitGroup
	lanes := len(r.run.Chains)
	if c.Plan.Staged {
		lanes = max(lanes, min(c.Plan.Lanes, 2*c.Budget.Cores()))
	}
	for lane := range lanes + 1 {
		wg.Go(func() { r.drive(work, cancel, lane) })
	}
	wg.Wait()
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

// limit ends what has taken its time: the sampling, and then the certificate.
func (r *runner) limit(ctx context.Context, cancel context.CancelFunc) {
	for deadline := r.Plan.MaxTime; ; {
		select {
		case <-time.After(time.Until(r.began.Add(deadline))):
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		r.decide()
		done := r.run.Phase == chains.Done
		if !done && r.run.Stopped != nil {
			deadline = r.Plan.MaxTime + time.Duration(r.run.Stopped.Elapsed*float64(time.Second))
		}
		r.mu.Unlock()
		if done {
			cancel()
			return
		}
	}
}

// fail keeps the first error.
func (r *runner) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// drive does the work of one lane for as long as the run goes on.
func (r *runner) drive(ctx context.Context, cancel context.CancelFunc, lane int) {
	var chain *driver.Chain
	certificate := false // what chain is of
	stages := r.Driver.NewLane(lane)
	for {
		w, prep, ok := r.next(ctx, lane)
		if !ok {
			return
		}
		if err := r.Budget.Acquire(ctx); err != nil {
			r.fail(err)
			return
		}
		e, err := func() (*chains.Event, error) {
			defer r.Budget.Release()
			if w.Conduct != nil || w.Evaluate != nil {
				return stages.Event(ctx, w, prep)
			}
			if w.Advance == nil {
				return r.Driver.Event(ctx, w)
			}
			if chain == nil || certificate != w.Certificate {
				var err error
				if chain, err = r.Driver.For(w).NewChain(ctx, prep, lane); err != nil {
					return nil, err
				}
				certificate = w.Certificate
			}
			if ref, lacks := chain.Lacks(&w.Advance.From); lacks {
				blob, err := r.latents.get(ref)
				if err == nil {
					err = chain.Give(blob)
				}
				if err != nil {
					return nil, err
				}
			}
			e, err := chain.Checkpoint(ctx, *w.Advance)
			if err != nil {
				return nil, err
			}
			e.Certificate = w.Certificate
			return e, nil
		}()
		if err == nil {
			var blob []byte
			if e.Checkpoint != nil {
				blob = chain.Latent()
			}
			err = r.commit(*e, blob)
		}
		if err != nil {
			r.fail(err)
			cancel()
			return
		}
	}
}

// next waits for the lane's next work, with what was prepared for it; false means
// that there will be none.
func (r *runner) next(ctx context.Context, lane int) (chains.Work, *chains.Prepared, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.run.Phase == chains.Done || ctx.Err() != nil {
			return chains.Work{}, nil, false
		}
		w, ok := r.run.Work(lane)
		if !ok && lane > 0 {
			w, ok = r.items.Next(r.run, lane, time.Now())
		}
		if ok {
			return w, r.run.PreparedFor(w), true
		}
		r.changed.Wait()
	}
}

// commit writes an event, with the latent vectors that it names, and applies it, and
// takes the decisions that follow.
func (r *runner) commit(e chains.Event, blob []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.latents.put(blob)
	if err == nil {
		err = r.apply(e)
	}
	if errors.Is(err, chains.ErrStale) && (e.Evaluated != nil || e.Restarts() < len(r.run.Restarts)) {
		return nil // another lane was faster, or the run has begun again: with a step, and so without latent vectors
	}
	if err != nil && blob != nil {
		err = errors.Join(err, r.latents.drop([]latent.Ref{latent.RefOf(blob)}, r.run.Latents()))
	}
	if r.run.Stopped != nil && (errors.Is(err, chains.ErrPhase) || errors.Is(err, chains.ErrStale)) {
		return nil // came too late to count
	}
	if err != nil {
		return err
	}
	return r.settle()
}

// apply applies an event and writes it. An event that cannot be written ends
// the run before anybody has seen it.
func (r *runner) apply(e chains.Event) error {
	before := r.run.Latents()
	if err := r.run.Apply(e); err != nil {
		return err
	}
	elapsed := time.Since(r.began)
	if err := r.journal.append(e, elapsed); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := r.latents.drop(before, r.run.Latents()); err != nil {
		return err
	}
	if r.Watch != nil {
		r.Watch(View{Run: r.run, Convergence: r.judge.Last, Elapsed: elapsed})
	}
	r.changed.Broadcast()
	return nil
}

// settle takes the decisions that are due: the end, or to begin again, and settings at a barrier.
func (r *runner) settle() error {
	if err := r.decide(); err != nil {
		return err
	}
	for r.run.AtBarrier() {
		e, err := sampler.Adapt(r.run)
		if err != nil {
			return err
		}
		if err := r.apply(*e); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) decide() error {
	end := r.judge.Decide(r.run, time.Since(r.began))
	if end == nil {
		return nil
	}
	err := r.apply(*end)
	if err != nil && r.err == nil {
		r.err = err
	}
	return err
}

// ErrInterrupted reports whether an error of Run means that it can be resumed.
func ErrInterrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
