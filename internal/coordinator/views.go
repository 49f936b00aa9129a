package coordinator

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// views keeps what is known of the jobs that somebody looks at, so that their
// runs are not rebuilt for every request.
type views struct {
	node Node
	mu   sync.Mutex
	byID map[string]*view
}

type view struct {
	mu       sync.Mutex
	follower state.Follower
	used     time.Time // guarded by views.mu
}

// viewIdle is how long a view that nobody asks for is kept.
const viewIdle = 2 * time.Minute

func newViews(n Node) *views { return &views{node: n, byID: map[string]*view{}} }

// with calls f with an up-to-date follower of a job, which f must not keep, or
// returns state.ErrUnknown.
func (v *views) with(id string, f func(*state.Follower) error) error {
	v.mu.Lock()
	w := v.byID[id]
	if w == nil {
		w = &view{}
		v.byID[id] = w
	}
	w.used = time.Now()
	v.mu.Unlock()

	w.mu.Lock()
	defer w.mu.Unlock()
	if err := v.node.View(func(tx *bbolt.Tx) error { return w.follower.Update(tx, id) }); err != nil {
		// It may be half brought up to date, or of a state that was replaced.
		v.mu.Lock()
		if v.byID[id] == w {
			delete(v.byID, id)
		}
		v.mu.Unlock()
		return err
	}
	return f(&w.follower)
}

// sweep forgets views that nobody has asked for.
func (v *views) sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, w := range v.byID {
		if time.Since(w.used) > viewIdle {
			delete(v.byID, id)
		}
	}
}

// wait calls f with a job whenever the state has changed, until f returns true
// or an error, or ctx is done.
func (v *views) wait(ctx context.Context, id string, f func(*state.Follower) (bool, error)) error {
	for {
		changed := v.node.Changed()
		var done bool
		err := v.with(id, func(fo *state.Follower) (err error) {
			done, err = f(fo)
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
