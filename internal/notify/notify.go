// Package notify sees to it that hooks (package hooks) are told of what happens to
// jobs. What is to be told, and who was told, is in the replicated state; the
// leader's notifier sends each notice to each of its targets, again and again
// until it is taken, for a day. A notice that was sent just before its leader was
// lost is sent again by the next leader, under the same id.
package notify

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Store holds the notices.
type Store interface {
	// Notices returns those that are kept, oldest first.
	Notices() ([]*state.Notice, error)
	// Changed returns a channel that is closed when there may be others.
	Changed() <-chan struct{}
	// Sent notes that a target, by its name, was told of a notice.
	Sent(ctx context.Context, notice uint64, target string) error
	// Close forgets a notice.
	Close(ctx context.Context, notice uint64) error
}

// Sending of notices.
const (
	sendAtOnce   = 8 // attempts under way
	firstPause   = time.Second
	longestPause = 5 * time.Minute // between attempts
	giveUpAfter  = 24 * time.Hour
	lookEvery    = time.Minute // though nothing has changed
)

// Config configures a notifier.
type Config struct {
	Store  Store
	Hooks  *hooks.Hooks
	Logger *slog.Logger
	// FirstPause is the time before the second attempt; it doubles with every
	// further one. Zero means 1 s.
	FirstPause time.Duration
}

// Counts are how many attempts there were, by what became of them, and how many
// notices were given up, a target each.
type Counts struct{ Sent, Failed, GivenUp int64 }

// Notifier sends notices.
type Notifier struct {
	cfg                   Config
	sent, failed, givenUp atomic.Int64
}

// New returns a notifier.
func New(c Config) *Notifier {
	if c.FirstPause == 0 {
		c.FirstPause = firstPause
	}
	return &Notifier{cfg: c}
}

// Counts returns what the notifier has done so far.
func (n *Notifier) Counts() Counts {
	return Counts{Sent: n.sent.Load(), Failed: n.failed.Load(), GivenUp: n.givenUp.Load()}
}

// Run sends what there is to send until ctx is done.
func (n *Notifier) Run(ctx context.Context) {
	t := &term{Notifier: n, attempts: map[target]*attempt{}, ended: make(chan struct{}, 1)}
	defer t.wg.Wait()
	for ctx.Err() == nil {
		changed := n.cfg.Store.Changed()
		next, err := t.round(ctx)
		if err != nil && ctx.Err() == nil {
			n.cfg.Logger.Warn("looking for notices to send", "error", err)
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-t.ended:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// term is the sending of notices from the beginning to the end of Run.
type term struct {
	*Notifier
	ended chan struct{} // an attempt has
	wg    sync.WaitGroup

	mu       sync.Mutex
	attempts map[target]*attempt
	running  int
}

// target is a notice and the name of somebody who is to be told of it.
type target struct {
	notice uint64
	name   string
}

// attempt is how far the telling is.
type attempt struct {
	running bool
	next    time.Time
	pause   *backoff.ExponentialBackOff
}

// round begins the attempts that are due and closes what is done. It returns
// the time until there is more to do.
func (t *term) round(ctx context.Context) (time.Duration, error) {
	pending, err := t.cfg.Store.Notices()
	if err != nil {
		return t.cfg.FirstPause, err
	}
	now, wait := time.Now(), lookEvery
	keep := map[uint64]bool{}
	for _, n := range pending {
		keep[n.Index] = true
		left := 0
		for _, to := range targets(t.cfg.Hooks, n) {
			if slices.Contains(n.Done, to.Name) {
				continue
			}
			left++
			wait = min(wait, t.attempt(ctx, n, to, now))
		}
		late := now.Sub(n.Time) > giveUpAfter
		if left > 0 && !late {
			continue
		}
		if left > 0 {
			t.givenUp.Add(int64(left))
			t.cfg.Logger.Warn("a notice is given up", "notice", n.ID(), "event", n.Kind, "job", n.Job, "targets", left)
		}
		if err := t.cfg.Store.Close(ctx, n.Index); err != nil {
			return t.cfg.FirstPause, err
		}
	}
	t.forget(keep)
	return wait, nil
}

// forget drops what is known of attempts to tell of notices that are not in keep.
func (t *term) forget(keep map[uint64]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.attempts {
		if !keep[k.notice] {
			delete(t.attempts, k)
		}
	}
}

// targets returns where a notice goes.
func targets(h *hooks.Hooks, n *state.Notice) []hooks.Target {
	var own []string
	if n.Notify != nil && asksFor(n.Notify, n.Kind) {
		own = n.Notify.Webhooks
	}
	return h.Targets(own)
}

// asksFor reports whether a job's webhooks get notices of a kind: by default of
// all but that it was cancelled or is well again.
func asksFor(n *state.Notify, k state.Kind) bool {
	if len(n.On) == 0 {
		return k != state.OnCancelled && k != state.OnRecovered
	}
	return slices.Contains(n.On, k)
}

// attempt begins to send a notice to a target if it is time, and returns how
// long that may wait.
func (t *term) attempt(ctx context.Context, n *state.Notice, to hooks.Target, now time.Time) time.Duration {
	k := target{n.Index, to.Name}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.attempts[k]
	if a == nil {
		a = &attempt{next: now, pause: &backoff.ExponentialBackOff{InitialInterval: t.cfg.FirstPause, Multiplier: 2,
			RandomizationFactor: backoff.DefaultRandomizationFactor, MaxInterval: longestPause}}
		t.attempts[k] = a
	}
	switch {
	case a.running, t.running >= sendAtOnce: // whoever ends says so
		return lookEvery
	case now.Before(a.next):
		return a.next.Sub(now)
	}
	a.running = true
	t.running++
	t.wg.Go(func() { t.send(ctx, n, to, a) })
	return lookEvery
}

// send makes an attempt.
func (t *term) send(ctx context.Context, n *state.Notice, to hooks.Target, a *attempt) {
	err := to.Send(ctx, eventOf(n))
	if err == nil {
		t.sent.Add(1)
		_ = t.cfg.Store.Sent(ctx, n.Index, to.Name) // else it is told again
	} else if ctx.Err() == nil {
		t.failed.Add(1)
		t.cfg.Logger.Warn("a notice could not be sent; it will be tried again", "notice", n.ID(), "event", n.Kind, "job", n.Job, "target", to.Name, "error", err)
	}
	t.mu.Lock()
	a.running = false
	a.next = time.Now().Add(a.pause.NextBackOff())
	t.running--
	t.mu.Unlock()
	select {
	case t.ended <- struct{}{}:
	default:
	}
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
