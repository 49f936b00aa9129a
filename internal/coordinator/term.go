package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/schedule"
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
	t := &term{c: c, since: time.Now()}
	c.checker.Reset(t.since) // what an earlier term heard is old
	c.lastRound.Store(t.since.UnixNano())
	c.log.Info("leading the cluster")
	defer c.log.Info("leading the cluster no more")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.notifier.Run(ctx) })
	for ctx.Err() == nil {
		changed, workers := c.node.Changed(), c.workers.Changed()
		if err := t.look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("the leader's round failed; it will be repeated", "error", err)
			changed, workers = nil, nil // not at once
		} else {
			c.lastRound.Store(time.Now().UnixNano())
		}
		select {
		case <-changed:
		case <-workers:
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

// term is a term of leadership.
type term struct {
	c     *Coordinator
	since time.Time
	// hasAdmin says that there is an administrator, as far as callers are asked who
	// they are; until then it is tried at tryAdmin.
	hasAdmin bool
	tryAdmin time.Time
	// checked is when the health of jobs was last checked.
	checked time.Time
	// distrusted are jobs that have to fail, since their draws are not to be believed, and why.
	distrusted map[string]string
}

// look brings the cluster one step closer to where it should be.
func (t *term) look(ctx context.Context) error {
	t.ensureAdmin(ctx)
	var active []string
	err := t.c.node.View(func(tx *bbolt.Tx) error { active = state.Active(tx); return nil })
	if err != nil {
		return err
	}
	jobs, unclear, err := t.decideAll(ctx, active)
	if err != nil {
		return err
	}
	now := time.Now()
	known := t.c.workers.known(now, t.since, t.c.cfg.Grace, placed(jobs))
	plan := schedule.Plan(jobs, known, t.c.cfg.SplitRows)
	records, err := t.carryOut(ctx, jobs, &plan)
	if err != nil {
		return err
	}
	for _, j := range unclear { // it stays where it is
		records[j.ID] = j
		for chain := range j.Placements {
			plan.Keep[state.ChainKey{Job: j.ID, Chain: chain}] = true
		}
	}
	t.c.workers.tell(plan.Keep, records, time.Now())
	if err := t.settleChecks(ctx); err != nil {
		return err
	}
	t.tick(ctx, records, now)
	if err := t.checkHealth(ctx, active, jobs, known); err != nil {
		return err
	}
	t.c.workers.forget(now, forgetAfter, t.c.cfg.Grace, records)
	return nil
}

// ensureAdmin sees to it that there is an administrator.
func (t *term) ensureAdmin(ctx context.Context) {
	if t.c.cfg.TokenFile == "" || t.hasAdmin || time.Now().Before(t.tryAdmin) {
		return
	}
	err := t.c.firstToken(ctx)
	if err != nil && ctx.Err() == nil {
		t.c.log.Error("nobody is administrator", "error", err)
	}
	t.hasAdmin, t.tryAdmin = err == nil, time.Now().Add(beginEvery)
}

// propose replicates a command within bounded time.
func (c *Coordinator) propose(ctx context.Context, cmd state.Command) (*state.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	return c.apply(ctx, cmd)
}

// decideAll takes the decisions that are due in jobs, and returns what those that
// have not ended need. A job whose events cannot be read fails, and one that cannot be
// decided otherwise is returned as unclear: neither keeps the others waiting.
func (t *term) decideAll(ctx context.Context, active []string) (out []schedule.Job, unclear []*state.Job, err error) {
	for _, id := range active {
		j, err := t.decide(ctx, id)
		if errors.Is(err, state.ErrDamaged) {
			t.c.log.Error("a job cannot be read", "job", id, "error", err)
			_, err = t.c.propose(ctx, &state.Fail{Job: id, Message: err.Error()})
		}
		switch {
		case err == nil && j.Job != nil && !j.Phase.Ended():
			out = append(out, j)
		case err == nil, errors.Is(err, state.ErrUnknownJob):
		case ctx.Err() != nil || !t.c.node.IsLeader():
			return nil, nil, err
		default:
			var record *state.Job
			if e := t.c.node.View(func(tx *bbolt.Tx) (e error) { record, e = state.GetJob(tx, id); return e }); e != nil {
				return nil, nil, errors.Join(err, e)
			}
			t.c.log.Error("nothing can be decided about a job: it stays where it is", "job", id, "error", err)
			t.c.jobErrors.Add(1)
			unclear = append(unclear, record)
		}
	}
	return out, unclear, nil
}

// decide takes the decisions that are due in a job, and returns what it needs.
func (t *term) decide(ctx context.Context, id string) (schedule.Job, error) {
	for {
		var due state.Command
		var out schedule.Job
		err := t.c.jobs.with(id, func(j *followed) (err error) {
			out = schedule.Job{Job: j.Job, Active: lanes(&j.Follower)}
			if j.Job.Info != nil {
				out.Rows = j.Job.Info.Rows
				spec, err := j.Spec()
				if err != nil {
					return err
				}
				rows, inputs := j.Job.Info.Rows, j.Job.Info.D()
				out.Memory = driver.LeastMemory(spec, rows, inputs)
				if _, ok := driver.Spread(spec, rows, 2); ok {
					out.Within = func(members int) (int64, int64) { return driver.GroupMemory(spec, rows, inputs, members) }
				}
			}
			if why := t.c.workers.verdict(id); why != "" && !j.Job.Phase.Ended() {
				due = &state.Fail{Job: id, Message: why}
				return nil
			}
			due, err = dueIn(&j.Follower, t.c.rounds(j.Job), time.Now())
			return err
		})
		if err != nil || due == nil {
			return out, err
		}
		if _, err := t.c.propose(ctx, due); err != nil && !errors.Is(err, state.ErrPhase) && !errors.Is(err, chains.ErrPhase) {
			return out, err
		}
	}
}

// rounds reports whether this program rounds as the workers of a job do: metrics and
// steps, hence draws, are the same bits wherever they are computed only then.
func (c *Coordinator) rounds(j *state.Job) bool {
	_, rounding, told := strings.Cut(j.InstructionSet, "/")
	return !told || rounding == c.cfg.rounding
}

// dueIn returns the decision that a job waits for, nil if there is none. Where this
// program does not round as the job, the settings of windows are computed by a driver
// (followed.assignment), and there is no certificate: it would begin at numbers of ours.
func dueIn(f *state.Follower, rounds bool, now time.Time) (state.Command, error) {
	if f.Run == nil || f.Job.Phase.Ended() {
		return nil, nil
	}
	if f.Due != nil && f.Due.Restart != nil {
		e := chains.Event{Restart: &chains.Restart{Elapsed: f.Job.Elapsed(now).Seconds()}}
		text, err := e.Encode()
		return &state.Decide{Job: f.Job.ID, Extends: f.Job.Extends, Event: text}, err
	}
	if f.Due != nil {
		return ending(f, f.Due, now)
	}
	if e := f.Run.TimedOut(f.Job.Elapsed(now)); e != nil {
		return ending(f, e, now)
	}
	if cert := f.Run.Certificate; !rounds && f.Run.Phase == chains.Certifying && cert.Phase == chains.Preparing {
		return ending(f, &chains.Event{Stop: &chains.Stop{Reason: chains.Cancelled, Draws: f.Run.Stopped.Draws}}, now)
	}
	if !rounds || !f.Run.AtBarrier() {
		return nil, nil
	}
	e, err := sampler.Adapt(f.Run)
	if err != nil {
		return &state.Fail{Job: f.Job.ID, Message: err.Error()}, nil
	}
	text, err := e.Encode()
	return &state.Decide{Job: f.Job.ID, Extends: f.Job.Extends, Event: text}, err
}

// ending returns the command that ends the sampling of a run, or its certificate.
func ending(f *state.Follower, end *chains.Event, now time.Time) (state.Command, error) {
	stop := *end.Stop
	stop.Elapsed = f.Job.Elapsed(now).Seconds()
	e := chains.Event{Certificate: end.Certificate, Stop: &stop}
	text, err := e.Encode()
	d := &state.Decide{Job: f.Job.ID, Extends: f.Job.Extends, Event: text}
	if err != nil || f.Run.Stopped != nil { // the draws are what they were
		return d, err
	}
	kept := keptDraws(f.Run, stop.Draws)
	c := kept.Diagnose(stop.Draws)
	d.DrawsSHA256 = report.DrawsSHA256(kept)
	d.Final = &state.Final{Draws: stop.Draws, RHat: finite(c.RHat), ESS: finite(c.ESS), Error: finite(c.Error)}
	return d, nil
}

// lanes returns the lanes of a job that want a driver.
func lanes(f *state.Follower) []int {
	if f.Run == nil {
		return []int{0}
	}
	return f.Run.Lanes()
}

// placed returns the workers that jobs have chains at.
func placed(jobs []schedule.Job) map[string]bool {
	out := map[string]bool{}
	for _, j := range jobs {
		for _, p := range j.Placements {
			if p.Worker != "" {
				out[p.Worker] = true
			}
		}
	}
	return out
}

// newSecret returns what only the driver of an attempt is told.
func newSecret() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it does not fail
	return hex.EncodeToString(b)
}

// carryOut replicates what a plan changes, and returns the jobs as they are then.
func (t *term) carryOut(ctx context.Context, jobs []schedule.Job, plan *schedule.Schedule) (map[string]*state.Job, error) {
	records := map[string]*state.Job{}
	for _, j := range jobs {
		records[j.ID] = j.Job
	}
	for _, id := range slices.Sorted(maps.Keys(plan.Places)) {
		began := time.Now()
		for i := range plan.Places[id] {
			plan.Places[id][i].Secret = newSecret()
		}
		j, err := t.c.propose(ctx, &state.Place{Job: id, Places: plan.Places[id]})
		if errors.Is(err, state.ErrPhase) || errors.Is(err, state.ErrUnknownJob) {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		records[id] = j
		for _, m := range plan.Places[id] {
			if m.Worker != "" {
				t.c.cfg.Tracer.Placement(id, m.Chain, j.Placements[m.Chain].Attempt, m.Worker, began)
			}
		}
	}
	for _, id := range plan.Preempt {
		if _, err := t.c.propose(ctx, &state.Act{Job: id, Action: state.Preempt}); err != nil && !errors.Is(err, state.ErrPhase) {
			return nil, err
		}
	}
	return records, nil
}

// tickEvery is how often it is recorded that jobs are at work; a checkpoint does so,
// too.
const tickEvery = 5 * time.Second

// tick records which jobs are at work: those that a worker drives who is there.
func (t *term) tick(ctx context.Context, jobs map[string]*state.Job, now time.Time) {
	there := t.c.workers.there()
	var live []string
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		j := jobs[id]
		driven := slices.ContainsFunc(j.Placements, func(p state.Placement) bool { return there[p.Worker] })
		if driven && j.Phase.AtWork() && now.Sub(j.Alive) >= tickEvery {
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		return
	}
	if _, err := t.c.propose(ctx, &state.Tick{Jobs: live}); err != nil && ctx.Err() == nil {
		t.c.log.Debug("the time at work was not recorded", "error", err) // it may be while versions are mixed
	}
}

// inGroups says in words that a chain has some workers.
func inGroups(members int) string {
	if members == 1 {
		return ""
	}
	return fmt.Sprintf(", in groups of %d for each chain, which is what there are", members)
}

// checkHealth checks the health of all jobs once a second and replicates what has
// changed.
func (t *term) checkHealth(ctx context.Context, active []string, jobs []schedule.Job, known []schedule.Worker) error {
	now := time.Now()
	if now.Sub(t.checked) < lookEvery {
		return nil
	}
	t.checked = now
	workers := t.c.workers.health()
	for _, j := range jobs {
		if members, bytes, short := j.Short(known); short && workers.Memory > 0 {
			workers.Troubles[j.ID] = fmt.Sprintf("a worker needs %s of memory for it%s, and the one with most has %s", humanize.IBytes(uint64(bytes)), inGroups(members), humanize.IBytes(uint64(workers.Memory)))
		}
	}
	keep := map[string]bool{}
	for _, id := range active {
		keep[id] = true
		var found *state.Health
		changed := false
		err := t.c.jobs.with(id, func(j *followed) error {
			found = t.c.checker.Check(&j.Follower, workers, now)
			changed = causeOf(found) != causeOf(j.Job.Health) && !j.Job.Phase.Ended() && j.Job.Phase != state.Paused
			return nil
		})
		if err != nil || !changed { // an error was told when it was decided
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		if found != nil {
			found.Since = now.UTC()
			t.c.log.Warn("a job is not well", "job", id, "health", found.Status, "reason", found.Message)
		}
		_, err = t.c.propose(ctx, &state.Diagnose{Job: id, Health: found})
		if err != nil && !errors.Is(err, state.ErrPhase) && !errors.Is(err, state.ErrUnknownJob) {
			return err
		}
	}
	t.c.checker.Forget(keep)
	return nil
}

func causeOf(h *state.Health) string {
	if h == nil {
		return ""
	}
	return h.Cause
}
