package health

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// What makes a job stalled.
const (
	noWorkerAfter = 20 * time.Second // without a worker that could do it
	noDriverAfter = 20 * time.Second // from the last that was heard of a chain whose worker is lost
	pauseFactor   = 5                // longer than the longest of the last pauses
	pauseLeast    = 30 * time.Second // but so long at least
	pauseFirst    = 10 * time.Minute // where no pace is known yet: reading data, building a preconditioner
)

// Workers is what the health of jobs depends on of the workers.
type Workers struct {
	InstructionSets map[string]bool      // of those that take chains
	Seen            map[string]time.Time // when each was last heard of
	Memory          int64                // of the one that has most of those; below 0: not known
	Troubles        map[string]string    // by job, what workers met with that could not go on
}

// Checker checks the health of jobs. It remembers what it has seen, and is not
// replicated: a new leader begins anew. It is safe for concurrent use.
type Checker struct {
	mu     sync.Mutex
	paces  map[state.ChainKey]*pace
	worker time.Time            // when there was last a worker that takes chains
	fits   map[string]time.Time // by job: when there was last one that fits
	rhats  map[string]trend
	costs  map[string]costMark
}

// NewChecker returns a checker that begins at a time.
func NewChecker(now time.Time) *Checker {
	c := &Checker{}
	c.Reset(now)
	return c
}

// Reset forgets everything, and begins anew at a time.
func (c *Checker) Reset(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paces, c.worker, c.fits = map[state.ChainKey]*pace{}, now, map[string]time.Time{}
	c.rhats, c.costs = map[string]trend{}, map[string]costMark{}
}

// Heard notes that a chain has told of progress, if its job was ever checked.
func (c *Checker) Heard(k state.ChainKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.paces[k]; p != nil {
		p.hear(now)
	}
}

// Forget drops what is known of jobs that are not in keep.
func (c *Checker) Forget(keep map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.paces, func(k state.ChainKey, _ *pace) bool { return !keep[k.Job] })
	maps.DeleteFunc(c.fits, func(id string, _ time.Time) bool { return !keep[id] })
	maps.DeleteFunc(c.rhats, func(id string, _ trend) bool { return !keep[id] })
	maps.DeleteFunc(c.costs, func(id string, _ costMark) bool { return !keep[id] })
}

// Check returns what is wrong with a job, nil if nothing is.
func (c *Checker) Check(f *state.Follower, w Workers, now time.Time) *state.Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(w.InstructionSets) > 0 {
		c.worker = now
	}
	j := f.Job
	if j.Phase.Ended() {
		return nil
	}
	if j.Phase == state.Paused {
		c.fits[j.ID] = now
	} else if h := c.withoutWorker(j, w, now); h != nil {
		return h
	}
	if why := w.Troubles[j.ID]; why != "" && j.Phase != state.Paused {
		return stalled("workers fail", "%s", why)
	}
	if j.Phase == state.Paused || j.Phase == state.Queued { // nobody expects anything of it
		for chain := range j.Placements {
			c.look(state.ChainKey{Job: j.ID, Chain: chain}, 0, false, now)
		}
		return nil
	}
	if h := c.silentChain(f, w, now); h != nil || f.Run == nil {
		return h
	}
	for _, check := range []func(*state.Follower) *state.Health{c.farAway, c.wasteful, c.notMixing} {
		if h := check(f); h != nil {
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

// withoutWorker finds that no worker can take the job's chains.
func (c *Checker) withoutWorker(j *state.Job, w Workers, now time.Time) *state.Health {
	if now.Sub(c.worker) >= noWorkerAfter {
		return stalled("no worker", "no worker is connected that takes chains: start one, or see 'ulisse workers'")
	}
	if j.InstructionSet == "" || w.InstructionSets[j.InstructionSet] || len(w.InstructionSets) == 0 {
		c.fits[j.ID] = now
		return nil
	}
	if now.Sub(c.fits[j.ID]) >= noWorkerAfter {
		return stalled("no fitting worker", "no connected worker computes with %s, with which the job began: its draws would differ with another", j.InstructionSet)
	}
	return nil
}

// look notes where a chain is; see pace.look.
func (c *Checker) look(k state.ChainKey, iteration int, busy bool, now time.Time) (silent, usual time.Duration) {
	p := c.paces[k]
	if p == nil {
		p = &pace{last: now, iteration: iteration, busy: busy}
		c.paces[k] = p
	}
	return p.look(iteration, busy, now)
}

// silentChain finds a chain of which nothing is heard though it has something to
// do.
func (c *Checker) silentChain(f *state.Follower, w Workers, now time.Time) *state.Health {
	j := f.Job
	var found *state.Health
	for chain := range j.Placements {
		busy, iteration := f.Run == nil && chain == 0, 0
		if f.Run != nil {
			_, busy = f.Run.Work(chain)
			busy = busy && f.Due == nil
			iteration = f.Run.Iter(chain)
		}
		silent, usual := c.look(state.ChainKey{Job: j.ID, Chain: chain}, iteration, busy, now)
		if busy && found == nil {
			found = silence(j, chain, w, silent, usual, now)
		}
	}
	return found
}

// silence says whether a chain has been silent for too long, and why.
func silence(j *state.Job, chain int, w Workers, silent, usual time.Duration, now time.Time) *state.Health {
	name := fmt.Sprintf("chain %d", chain)
	if chain == 0 {
		name = "the preparation"
	}
	at := j.Placements[chain].Worker
	seen, known := w.Seen[at]
	switch {
	case at == "" && silent >= noDriverAfter:
		return stalled("no driver", "%s has had no worker for %s: the others are full, or drain; see 'ulisse workers'", name, span(silent))
	case at != "" && (!known || now.Sub(seen) > noDriverAfter) && silent >= noDriverAfter:
		return stalled("worker silent", "worker %s, which drives %s, has not been heard of for %s: its chains are given to others", at, name, span(silent))
	case at != "" && silent >= longestSilence(usual):
		return stalled("chain silent", "%s has reported nothing for %s, where %s: see 'ulisse logs %s --gradients' and worker %s", name, span(silent), paceOf(usual), j.ID, at)
	}
	return nil
}

// longestSilence is how long a chain may say nothing.
func longestSilence(usual time.Duration) time.Duration {
	if usual == 0 {
		return pauseFirst
	}
	return max(pauseLeast, pauseFactor*usual)
}

func paceOf(usual time.Duration) string {
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
