package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Sending of notices.
const (
	sendAtOnce  = 8 // attempts under way
	sendBackoff = time.Second
	sendSlowest = 5 * time.Minute // between attempts
	sendFor     = 24 * time.Hour  // then a notice is given up
)

// courier tells the targets of hooks what happened to jobs: it belongs to a term
// of leadership. What has to be told, and who was, is in the replicated state;
// a notice that was sent just before its leader was lost is sent again by the
// next, under the same id.
type courier struct {
	*leader
	backoff time.Duration
	wake    chan struct{}
	wg      sync.WaitGroup

	mu    sync.Mutex
	tries map[attemptKey]*attempts
	busy  int
}

// attemptKey is a notice and a target's name.
type attemptKey struct {
	notice uint64
	target string
}

type attempts struct {
	n       int
	next    time.Time
	running bool
}

// deliveries counts what became of attempts.
type deliveries struct{ sent, failed, givenUp atomic.Int64 }

func newCourier(l *leader) *courier {
	return &courier{leader: l, backoff: sendBackoff, wake: make(chan struct{}, 1), tries: map[attemptKey]*attempts{}}
}

// run sends what there is to send until ctx is done.
func (c *courier) run(ctx context.Context) {
	defer c.wg.Wait()
	for ctx.Err() == nil {
		changed := c.Node.Changed()
		next, err := c.round(ctx)
		if err != nil && ctx.Err() == nil {
			c.Logger.Warn("looking for notices to send", "error", err)
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-c.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// round begins the attempts that are due and closes what is done. It returns
// the time until there is more to do.
func (c *courier) round(ctx context.Context) (time.Duration, error) {
	var pending []*state.Notice
	if err := c.Node.View(func(tx *bbolt.Tx) (err error) { pending, err = state.Notices(tx); return err }); err != nil {
		return sendBackoff, err
	}
	now, wait := time.Now(), time.Minute
	keep := map[uint64]bool{}
	for _, n := range pending {
		keep[n.Index] = true
		left := 0
		for _, t := range c.targets(n) {
			if slices.Contains(n.Done, t.Name) {
				continue
			}
			left++
			wait = min(wait, c.attempt(ctx, n, t, now))
		}
		late := now.Sub(n.Time) > sendFor
		if left > 0 && !late {
			continue
		}
		if left > 0 {
			c.deliveries.givenUp.Add(int64(left))
			c.Logger.Warn("a notice is given up", "notice", n.ID(), "event", n.Kind, "job", n.Job, "targets", left)
		}
		if _, err := c.propose(ctx, state.Command{Sent: &state.Sent{Notice: n.Index, Closed: true}}); err != nil {
			return c.backoff, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.tries {
		if !keep[k.notice] {
			delete(c.tries, k)
		}
	}
	return wait, nil
}

// targets returns where a notice goes.
func (c *courier) targets(n *state.Notice) []hooks.Target {
	var own []string
	if w := n.Notify; w != nil && wants(w, n.Kind) {
		own = w.Webhooks
	}
	return c.Hooks.Targets(own)
}

// wants reports whether a job's webhooks get notices of a kind: by default of
// all but that it was cancelled or is well again.
func wants(w *state.Notify, k state.Kind) bool {
	if len(w.On) == 0 {
		return k != state.OnCancelled && k != state.OnRecovered
	}
	return slices.Contains(w.On, k)
}

// attempt begins to send a notice to a target if it is time, and returns how
// long that may wait.
func (c *courier) attempt(ctx context.Context, n *state.Notice, t hooks.Target, now time.Time) time.Duration {
	k := attemptKey{n.Index, t.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.tries[k]
	if a == nil {
		a = &attempts{next: now}
		c.tries[k] = a
	}
	switch {
	case a.running, c.busy >= sendAtOnce: // whoever ends wakes us
		return time.Minute
	case now.Before(a.next):
		return a.next.Sub(now)
	}
	a.running = true
	c.busy++
	c.wg.Go(func() { c.send(ctx, n, t, a) })
	return time.Minute
}

func (c *courier) send(ctx context.Context, n *state.Notice, t hooks.Target, a *attempts) {
	err := t.Send(ctx, eventOf(n))
	if err == nil {
		c.deliveries.sent.Add(1)
		_, _ = c.propose(ctx, state.Command{Sent: &state.Sent{Notice: n.Index, To: []string{t.Name}}}) // else it is told again
	} else if ctx.Err() == nil {
		c.deliveries.failed.Add(1)
		c.Logger.Warn("a notice could not be sent; it will be tried again", "notice", n.ID(), "event", n.Kind, "job", n.Job, "target", t.Name, "error", err)
	}
	c.mu.Lock()
	a.running = false
	a.n++
	a.next = time.Now().Add(pause(c.backoff, a.n))
	c.busy--
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// pause returns the time before the next attempt after n: it doubles each time,
// less up to a half by chance, so that what failed together comes apart.
func pause(backoff time.Duration, n int) time.Duration {
	d := sendSlowest
	if n < 20 {
		d = min(d, backoff<<(n-1))
	}
	return d/2 + rand.N(d/2+1)
}

// eventOf returns a notice as it is told.
func eventOf(n *state.Notice) *hooks.Event {
	e := &hooks.Event{Version: hooks.Version, ID: n.ID(), Event: string(n.Kind), Time: n.Time,
		Job: hooks.Job{ID: n.Job, Name: n.Name, Namespace: n.Namespace, Owner: n.Owner, State: string(n.Phase), Message: n.Message, StopReason: n.Reason}}
	if f := n.Final; f != nil {
		e.Job.Draws, e.Job.RHat, e.Job.ESS = f.Draws, f.RHat, f.ESS
	}
	return e
}

// AwaitNotices waits until all notices were sent or given up, or ctx is done.
func (c *Coordinator) AwaitNotices(ctx context.Context) error {
	for {
		changed := c.Node.Changed()
		var left []*state.Notice
		if err := c.Node.View(func(tx *bbolt.Tx) (err error) { left, err = state.Notices(tx); return err }); err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d notices were not sent: %w", len(left), ctx.Err())
		}
	}
}
