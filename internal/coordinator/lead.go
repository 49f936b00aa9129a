package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Times of the leader's loop.
const (
	lookEvery    = time.Second // though nothing changed: for limits of time
	applyTimeout = 10 * time.Second
	beginEvery   = 10 * time.Second // where nobody could be made administrator
	forgetAfter  = 24 * time.Hour   // of a worker that is gone
)

// Lead decides for the cluster until ctx is done. It runs while the node leads.
func (c *Coordinator) Lead(ctx context.Context) {
	l := &leader{Coordinator: c, since: time.Now()}
	l.health = newPhysician(c.pulses, l.since)
	c.pulses.forget(nil) // what an earlier term heard is old
	c.Logger.Info("leading the cluster")
	defer c.Logger.Info("leading the cluster no more")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { newCourier(l).run(ctx) })
	for ctx.Err() == nil {
		changed, workers := c.Node.Changed(), c.workers.Changed()
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			c.Logger.Warn("the leader's round failed; it will be repeated", "error", err)
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-changed:
		case <-workers:
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

// leader is a term of leadership.
type leader struct {
	*Coordinator
	since  time.Time
	health *physician
	// began says that there is an administrator, as far as callers are asked who
	// they are; until then it is tried at this time.
	began bool
	begin time.Time
}

// look brings the cluster one step closer to where it should be.
func (l *leader) look(ctx context.Context) error {
	if l.TokenFile != "" && !l.began && !time.Now().Before(l.begin) {
		err := l.firstToken(ctx)
		if err != nil && ctx.Err() == nil {
			l.Logger.Error("nobody is administrator", "error", err)
		}
		l.began, l.begin = err == nil, time.Now().Add(beginEvery)
	}
	var active []string
	err := l.Node.View(func(tx *bbolt.Tx) error { active = state.Active(tx); return nil })
	if err != nil {
		return err
	}
	var wishes []wish
	jobs := map[string]*state.Job{}
	for _, id := range active {
		w, err := l.decide(ctx, id)
		if errors.Is(err, state.ErrUnknown) {
			continue
		}
		if err != nil {
			return err
		}
		if w.job.Phase.Ended() {
			continue
		}
		jobs[id] = w.job
		if w.job.Phase != state.Paused {
			wishes = append(wishes, *w)
		}
	}
	placed := map[string]bool{}
	for _, j := range jobs {
		for _, p := range j.Placements {
			if p.Worker != "" {
				placed[p.Worker] = true
			}
		}
	}
	now := time.Now()
	s := plan(wishes, l.workers.snapshot(now, l.since, l.Grace, placed), l.SplitRows)
	l.lost(&s, jobs, now)
	for _, id := range slices.Sorted(maps.Keys(s.places)) {
		j, err := l.propose(ctx, state.Command{Place: &state.Place{Job: id, Places: s.places[id]}})
		if errors.Is(err, state.ErrPhase) || errors.Is(err, state.ErrUnknown) {
			continue // it ended meanwhile
		}
		if err != nil {
			return err
		}
		jobs[id] = j
		for _, m := range s.places[id] {
			if m.Worker != "" {
				l.Tracer.Placement(id, m.Chain, j.Placements[m.Chain].Attempt, m.Worker, now)
			}
		}
	}
	for _, id := range s.preempt {
		if _, err := l.propose(ctx, state.Command{Act: &state.Act{Job: id, Action: state.Preempt}}); err != nil && !errors.Is(err, state.ErrPhase) {
			return err
		}
	}
	l.tell(&s, jobs)
	if err := l.attend(ctx, active); err != nil {
		return err
	}
	l.workers.forget(now, forgetAfter)
	l.views.sweep()
	return nil
}

// propose replicates a command within bounded time.
func (l *leader) propose(ctx context.Context, cmd state.Command) (*state.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	return l.apply(ctx, cmd)
}

// decide takes the decisions that are due in a job, and returns what it needs.
func (l *leader) decide(ctx context.Context, id string) (*wish, error) {
	for {
		var cmd *state.Command
		w := &wish{}
		err := l.views.with(id, func(f *state.Follower) error {
			w.job = f.Job
			w.chains = needs(f)
			if f.Job.Info != nil {
				w.rows = f.Job.Info.Rows
			}
			cmd = l.due(f)
			return nil
		})
		if err != nil || cmd == nil {
			return w, err
		}
		if _, err := l.propose(ctx, *cmd); err != nil && !errors.Is(err, state.ErrPhase) && !errors.Is(err, chains.ErrPhase) {
			return nil, err
		}
	}
}

// due returns the decision that a job waits for, nil if there is none.
func (l *leader) due(f *state.Follower) *state.Command {
	if f.Run == nil || f.Job.Phase.Ended() {
		return nil
	}
	if f.Due != nil {
		return &state.Command{Decide: ending(f, f.Due)}
	}
	if e := f.Run.TimedOut(f.Job.Elapsed(time.Now())); e != nil {
		return &state.Command{Decide: ending(f, e)}
	}
	if !f.Run.AtBarrier() {
		return nil
	}
	e, err := sampler.Adapt(f.Run)
	if err != nil {
		return &state.Command{Fail: &state.Fail{Job: f.Job.ID, Message: err.Error()}}
	}
	return &state.Command{Decide: &state.Decide{Job: f.Job.ID, Extends: f.Job.Extends, Event: *e}}
}

// needs returns the lanes of a job that want a driver.
func needs(f *state.Follower) []int {
	if f.Run == nil {
		return []int{0}
	}
	return f.Run.Lanes()
}

// lost takes chains away from workers that did not come back in time, and from
// those that have released them.
func (l *leader) lost(s *schedule, jobs map[string]*state.Job, now time.Time) {
	l.workers.mu.Lock()
	defer l.workers.mu.Unlock()
	for id, j := range jobs {
		for c, p := range j.Placements {
			k := chainKey{id, c}
			if p.Worker == "" || slices.ContainsFunc(s.places[id], func(m state.Moved) bool { return m.Chain == c }) {
				continue
			}
			w := l.workers.byID[p.Worker]
			gone := w == nil && now.Sub(l.since) > l.Grace || w != nil && w.session == nil && now.Sub(w.seen) > l.Grace
			released := w != nil && w.session != nil && w.holds[k] == nil && !s.keep[k]
			if gone || released {
				s.places[id] = append(s.places[id], state.Moved{Chain: c})
				delete(s.keep, k)
			}
		}
	}
}

// tell tells the workers what has changed for them.
func (l *leader) tell(s *schedule, jobs map[string]*state.Job) {
	l.workers.mu.Lock()
	defer l.workers.mu.Unlock()
	for id, j := range jobs {
		for c, p := range j.Placements {
			k := chainKey{id, c}
			w := l.workers.byID[p.Worker]
			if p.Worker == "" || w == nil || w.session == nil || !s.keep[k] {
				continue
			}
			h := w.holds[k]
			if h != nil && h.attempt == p.Attempt && slices.Equal(h.group, p.Group) && !h.revoked && !(h.restated && len(p.Group) > 0) {
				continue
			}
			w.holds[k] = &held{attempt: p.Attempt, group: p.Group}
			m := &pb.Placement{Job: id, Chain: int32(c), Attempt: p.Attempt, Worker: p.Worker}
			for _, g := range p.Group {
				if o := l.workers.byID[g]; o != nil {
					m.Group = append(m.Group, &pb.Member{Worker: g, Address: o.address})
				}
			}
			w.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Drive{Drive: &pb.Drive{Placement: m}}})
		}
	}
	for _, w := range l.workers.byID {
		if w.session == nil {
			continue
		}
		for k, h := range w.holds {
			j := jobs[k.job]
			mine := j != nil && k.chain >= 0 && k.chain < len(j.Placements) && j.Placements[k.chain].Worker == w.id && j.Placements[k.chain].Attempt == h.attempt
			if (mine && s.keep[k]) || h.revoked {
				continue
			}
			h.revoked = true
			w.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Revoke{Revoke: &pb.Revoke{Job: k.job, Chain: int32(k.chain), Attempt: h.attempt}}})
		}
		if w.draining && !w.left && len(w.holds) == 0 {
			w.left = true
			w.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Leave{Leave: &pb.Leave{}}})
		}
	}
}

// send queues a message; a worker that does not read is cut off.
func (w *worker) send(m *pb.CoordinatorMessage) {
	select {
	case w.session.out <- m:
	default:
		w.session.end()
	}
}
