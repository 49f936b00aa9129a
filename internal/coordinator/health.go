package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// What makes a job stalled or diverging. A job that computes at all is heard of
// after every gradient (its log lines) and every checkpoint.
const (
	noWorkerAfter = 20 * time.Second // without a worker that could do it
	noDriverAfter = 20 * time.Second // from the last that was heard of a chain whose worker is lost
	pauseFactor   = 5                // longer than the longest of the last pauses
	pauseLeast    = 30 * time.Second // but so long at least
	pauseFirst    = 10 * time.Minute // where no pace is known yet: reading data, building a preconditioner

	farPsi       = 30.0 // of log parameters: drivers give up at twice that
	farSDs       = 25.0 // posterior standard deviations from the mode, root mean square
	rhatDraws    = 100  // of each chain, before R-hat has to fall
	rhatBad      = 1.1
	rhatFall     = 0.8 // of R-hat − 1, while the draws double: chains that mix halve it
	steepShare   = 0.5 // of gradients too steep to follow
	unsolvedMost = 0.5 // of solves that stop early
	shareLeast   = 40  // gradients, before shares are looked at
)

// pulses is when the leader last heard of chains. It is not replicated: a new
// leader begins to wait anew.
type pulses struct {
	mu     sync.Mutex
	chains map[chainKey]*pulse
}

// pulse is the pace of a chain.
type pulse struct {
	last time.Time
	gaps [16]time.Duration // the last pauses, in a ring
	next int
	iter int // at the last look
	busy bool
}

func newPulses() *pulses { return &pulses{chains: map[chainKey]*pulse{}} }

// heard notes that a chain has told of progress, if anybody looks after it.
func (p *pulses) heard(k chainKey, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.chains[k]; c != nil {
		c.beat(now)
	}
}

func (c *pulse) beat(now time.Time) {
	if c.busy {
		c.gaps[c.next%len(c.gaps)] = now.Sub(c.last)
		c.next++
	}
	c.last, c.busy = now, true
}

// look notes a chain's iterations, and that it waits if it has nothing to do. It
// returns how long nothing was heard of it, and the longest of its last pauses
// (0 if none is known).
func (p *pulses) look(k chainKey, iter int, busy bool, now time.Time) (silent, usual time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.chains[k]
	if c == nil {
		c = &pulse{last: now, iter: iter, busy: busy}
		p.chains[k] = c
	}
	switch {
	case !busy:
		c.last, c.busy, c.iter = now, false, iter
	case c.iter != iter:
		c.iter = iter
		c.beat(now)
	case !c.busy:
		c.last, c.busy = now, true
	}
	return now.Sub(c.last), slices.Max(c.gaps[:])
}

// forget drops the chains of jobs that are not in keep.
func (p *pulses) forget(keep map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.chains {
		if !keep[k.job] {
			delete(p.chains, k)
		}
	}
}

// crew is what the health of jobs depends on of the workers.
type crew struct {
	isas  map[string]bool      // of workers that take chains
	heard map[string]time.Time // when a worker was heard of
}

// physician finds out what is wrong with jobs. It belongs to a term of
// leadership.
type physician struct {
	pulses *pulses
	staff  time.Time // when there was last a worker that takes chains
	fits   map[string]time.Time
	rhats  map[string]rhatTrend
	shares map[string]costMark
	looked time.Time
}

// rhatTrend is R-hat at so many draws, and at half of them.
type rhatTrend struct {
	draws      int
	whole, was float64
}

// costMark is what a job had cost, and what became of the gradients since.
type costMark struct {
	at              chains.Cost
	steep, unsolved float64 // shares
}

func newPhysician(p *pulses, now time.Time) *physician {
	return &physician{pulses: p, staff: now, fits: map[string]time.Time{}, rhats: map[string]rhatTrend{}, shares: map[string]costMark{}}
}

// attend looks after all jobs once a second and replicates what has changed.
func (l *leader) attend(ctx context.Context, active []string) error {
	now := time.Now()
	if now.Sub(l.health.looked) < lookEvery {
		return nil
	}
	l.health.looked = now
	who := l.workers.crew()
	keep := map[string]bool{}
	for _, id := range active {
		keep[id] = true
		var found *state.Health
		changed := false
		err := l.views.with(id, func(f *state.Follower) error {
			found = l.health.examine(f, who, now)
			changed = causeOf(found) != causeOf(f.Job.Health) && !f.Job.Phase.Ended() && f.Job.Phase != state.Paused
			return nil
		})
		if errors.Is(err, state.ErrUnknown) {
			continue
		}
		if err != nil {
			return err
		}
		if !changed {
			continue
		}
		if found != nil {
			found.Since = now.UTC()
			l.Logger.Warn("a job is not well", "job", id, "health", found.Status, "reason", found.Message)
		}
		_, err = l.propose(ctx, state.Command{Diagnose: &state.Diagnose{Job: id, Health: found}})
		if err != nil && !errors.Is(err, state.ErrPhase) && !errors.Is(err, state.ErrUnknown) {
			return err
		}
	}
	l.health.forget(keep)
	return nil
}

func causeOf(h *state.Health) string {
	if h == nil {
		return ""
	}
	return h.Cause
}

// crew returns what is known of the workers.
func (r *registry) crew() crew {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := crew{isas: map[string]bool{}, heard: map[string]time.Time{}}
	for _, w := range r.byID {
		c.heard[w.id] = w.seen
		if w.session != nil && !w.draining {
			c.isas[w.capacity.GetInstructionSet()] = true
		}
	}
	return c
}

// forget drops what is known of jobs that are not in keep.
func (p *physician) forget(keep map[string]bool) {
	p.pulses.forget(keep)
	maps.DeleteFunc(p.fits, func(id string, _ time.Time) bool { return !keep[id] })
	maps.DeleteFunc(p.rhats, func(id string, _ rhatTrend) bool { return !keep[id] })
	maps.DeleteFunc(p.shares, func(id string, _ costMark) bool { return !keep[id] })
}

// examine returns what is wrong with a job, nil if nothing is.
func (p *physician) examine(f *state.Follower, who crew, now time.Time) *state.Health {
	if len(who.isas) > 0 {
		p.staff = now
	}
	j := f.Job
	if j.Phase.Ended() || j.Phase == state.Paused {
		return nil
	}
	if h := p.unstaffed(j, who, now); h != nil {
		return h
	}
	if j.Phase == state.Queued {
		p.rest(f, now)
		return nil // it waits for others to end
	}
	if h := p.silent(f, who, now); h != nil {
		return h
	}
	if f.Run == nil {
		return nil
	}
	for _, look := range []func(*state.Follower) *state.Health{p.astray, p.costly, p.apart} {
		if h := look(f); h != nil {
			return h
		}
	}
	return nil
}

func stalled(cause, format string, args ...any) *state.Health {
	return &state.Health{Status: state.Stalled, Cause: cause, Message: fmt.Sprintf(format, args...)}
}

func diverging(cause, format string, args ...any) *state.Health {
	return &state.Health{Status: state.Diverging, Cause: cause, Message: fmt.Sprintf(format, args...)}
}

// unstaffed finds that no worker can take the job's chains.
func (p *physician) unstaffed(j *state.Job, who crew, now time.Time) *state.Health {
	if now.Sub(p.staff) >= noWorkerAfter {
		return stalled("no worker", "no worker is connected that takes chains: start one, or see 'ulisse workers'")
	}
	if j.InstructionSet == "" || who.isas[j.InstructionSet] || len(who.isas) == 0 {
		p.fits[j.ID] = now
		return nil
	}
	if now.Sub(p.fits[j.ID]) >= noWorkerAfter {
		return stalled("no fitting worker", "no connected worker computes with %s, with which the job began: its draws would differ with another", j.InstructionSet)
	}
	return nil
}

// rest notes that none of a job's chains has anything to do.
func (p *physician) rest(f *state.Follower, now time.Time) {
	for c := range f.Job.Placements {
		p.pulses.look(chainKey{f.Job.ID, c}, 0, false, now)
	}
}

// silent finds a chain of which nothing is heard though it has something to do.
func (p *physician) silent(f *state.Follower, who crew, now time.Time) *state.Health {
	j := f.Job
	var found *state.Health
	for c := range j.Placements {
		busy, iter := f.Run == nil && c == 0, 0
		if f.Run != nil {
			_, busy = f.Run.Work(c)
			busy = busy && f.Due == nil
			iter = f.Run.Iter(c)
		}
		silent, usual := p.pulses.look(chainKey{j.ID, c}, iter, busy, now)
		if !busy || found != nil {
			continue
		}
		name := fmt.Sprintf("chain %d", c)
		if c == 0 {
			name = "the preparation"
		}
		at := j.Placements[c].Worker
		heard, known := who.heard[at]
		switch {
		case at == "" && silent >= noDriverAfter:
			found = stalled("no driver", "%s has had no worker for %s: the others are full, or drain; see 'ulisse workers'", name, span(silent))
		case at != "" && (!known || now.Sub(heard) > noDriverAfter) && silent >= noDriverAfter:
			found = stalled("worker silent", "worker %s, which drives %s, has not been heard of for %s: its chains are given to others", at, name, span(silent))
		case at != "" && silent >= limit(usual):
			found = stalled("chain silent", "%s has reported nothing for %s, where %s: see 'ulisse logs %s' and worker %s", name, span(silent), pace(usual), j.ID, at)
		}
	}
	return found
}

// limit is how long a chain may say nothing.
func limit(usual time.Duration) time.Duration {
	if usual == 0 {
		return pauseFirst
	}
	return max(pauseLeast, pauseFactor*usual)
}

func pace(usual time.Duration) string {
	if usual == 0 {
		return "nothing was heard of it before"
	}
	return fmt.Sprintf("its longest pause of late was %s", span(usual))
}

func span(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// astray finds a chain that has left the posterior behind.
func (p *physician) astray(f *state.Follower) *state.Health {
	r := f.Run
	if r.Prepared == nil {
		return nil
	}
	sds := deviations(r.Prepared.Cov, r.Plan.Params())
	for c := range r.Chains {
		psi := r.Chains[c].State.Psi
		if len(psi) != len(sds) {
			continue
		}
		far := 0.0
		for i, x := range psi {
			if math.Abs(x) > farPsi {
				return diverging("psi", "chain %d runs off: log %s is %.3g; use a smaller sampler.step, method: exact, or informative priors", c+1, r.Plan.Names[i], x)
			}
			far += sq((x - r.Prepared.Psi[i]) / sds[i])
		}
		if far = math.Sqrt(far / float64(len(psi))); far > farSDs && r.Phase == chains.Sampling {
			return diverging("far", "chain %d is %.0f standard deviations away from the mode: the posterior is far from normal; use a smaller sampler.step, method: exact, or informative priors", c+1, far)
		}
	}
	return nil
}

func sq(x float64) float64 { return x * x }

// deviations returns the square roots of a p×p covariance's diagonal.
func deviations(cov []float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Sqrt(math.Max(cov[i*n+i], math.SmallestNonzeroFloat64))
	}
	return out
}

// costly finds gradients that are of no use, and solves that do not converge,
// among those since the last look at so many.
func (p *physician) costly(f *state.Follower) *state.Health {
	id, m := f.Job.ID, p.shares[f.Job.ID]
	if f.Run.Phase != chains.Sampling {
		p.shares[id] = costMark{at: f.Run.Cost()}
		return nil
	}
	now := f.Run.Cost()
	if d := now.Gradients - m.at.Gradients; d >= shareLeast {
		m.steep, m.unsolved = float64(now.Shortened-m.at.Shortened)/float64(d), 0
		if s := now.Solves - m.at.Solves; s > 0 {
			m.unsolved = float64(now.Unconverged-m.at.Unconverged) / float64(s)
		}
		m.at = now
		p.shares[id] = m
	}
	switch {
	case m.steep > steepShare:
		return diverging("steep", "%.0f %% of the last gradients were too steep to be followed: the chains are not where the posterior is; use a smaller sampler.step, method: exact, or informative priors", 100*m.steep)
	case m.unsolved > unsolvedMost:
		return diverging("unsolved", "%.0f %% of the last solves stopped before their tolerance: raise solver.max_iterations, or take another preconditioner", 100*m.unsolved)
	}
	return nil
}

// apart finds chains that do not come to agree: R-hat does not fall while the
// draws double.
func (p *physician) apart(f *state.Follower) *state.Health {
	n := f.Convergence.Draws
	if f.Run.Phase != chains.Sampling || n < rhatDraws || !(f.Convergence.RHat > max(rhatBad, f.Run.Plan.RHat)) {
		return nil
	}
	t := p.rhats[f.Job.ID]
	if n < t.draws || n >= t.draws+max(1, t.draws/10) { // a tenth more draws each time
		t = rhatTrend{draws: n, whole: f.Convergence.RHat, was: f.Run.Diagnose(n / 2).RHat}
		p.rhats[f.Job.ID] = t
	}
	if math.IsNaN(t.was) || t.whole-1 <= rhatFall*(t.was-1) || t.whole <= rhatBad {
		return nil
	}
	return diverging("rhat", "R-hat is not falling: %.2f at %d draws, %.2f at %d; the chains are in different places, or barely move: look at 'ulisse draws', start anew with another seed, or use method: exact", t.whole, t.draws, t.was, t.draws/2)
}
