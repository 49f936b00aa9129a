package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// followers keeps what is known of the jobs that somebody looks at, so that their
// runs are not rebuilt for every request.
type followers struct {
	node    Node
	machine *state.Machine
	mu      sync.Mutex
	byID    map[string]*followed
	swept   time.Time
}

// followed is a job that somebody looks at.
type followed struct {
	state.Follower
	mu    sync.Mutex // guards Follower, spec and items
	spec  *job.Spec  // what text says; nil until somebody asks
	text  string
	items chains.Dispatcher // of stages, where this is the leader
	used  time.Time         // guarded by followers.mu
}

// followIdle is how long a job that nobody asks for is kept.
const followIdle = 2 * time.Minute

func newFollowers(n Node, m *state.Machine) *followers {
	return &followers{node: n, machine: m, byID: map[string]*followed{}}
}

// with calls f with an up-to-date job, which f must not keep, or returns
// state.ErrUnknownJob.
func (s *followers) with(id string, f func(*followed) error) error {
	s.mu.Lock()
	j := s.byID[id]
	if j == nil {
		j = &followed{Follower: state.Follower{Machine: s.machine}}
		s.byID[id] = j
	}
	j.used = time.Now()
	s.sweep(j.used)
	s.mu.Unlock()

	j.mu.Lock()
	defer j.mu.Unlock()
	if err := s.node.View(func(tx *bbolt.Tx) error { return j.Update(tx, id) }); err != nil {
		// It may be half brought up to date, or of a state that was replaced.
		s.mu.Lock()
		if s.byID[id] == j {
			delete(s.byID, id)
		}
		s.mu.Unlock()
		return err
	}
	return f(j)
}

// Spec returns the job's specification, which must not be changed.
func (j *followed) Spec() (*job.Spec, error) {
	if j.spec == nil || j.text != j.Job.Spec {
		spec, err := job.ParseString(j.Job.Spec)
		if err != nil {
			return nil, fmt.Errorf("the job's specification: %w", err)
		}
		j.spec, j.text = spec, j.Job.Spec
	}
	return j.spec, nil
}

// sweep forgets, now and then, jobs that nobody has asked for; the caller holds the
// lock.
func (s *followers) sweep(now time.Time) {
	if now.Sub(s.swept) < followIdle/4 {
		return
	}
	s.swept = now
	for id, j := range s.byID {
		if now.Sub(j.used) > followIdle {
			delete(s.byID, id)
		}
	}
}

// wait calls f with a job whenever the state has changed, until f returns true
// or an error, or ctx is done.
func (s *followers) wait(ctx context.Context, id string, f func(*followed) (bool, error)) error {
	for {
		changed := s.node.Changed()
		var done bool
		err := s.with(id, func(j *followed) (err error) {
			done, err = f(j)
			return err
		})
		if err != nil || done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
