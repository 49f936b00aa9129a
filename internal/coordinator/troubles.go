package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// What a worker cannot do may be the worker's fault: its disk is full, its network
// cannot reach the data, its memory does not suffice. Others are tried then, and the
// worker gets no chain of the job for a while. A job fails when several workers, or
// all that there are, have failed it and none has got any further.

// Times and bounds of trials.
const (
	firstAside, longestAside = time.Second, 10 * time.Minute
	mostStrikes              = 3 // workers that fail a job, without any progress, until it fails
	keepStrikes              = 16
)

// strike is a worker's failure to go on with a job.
type strike struct {
	worker, reason string
	at             time.Time
}

// aside says until when a worker gets no chain of a job.
type aside struct {
	until  time.Time
	pause  time.Duration
	reason string
}

// troubles are what jobs met with at workers. The leader's registry has them, and its
// lock guards them; they are not replicated: a new leader tries anew.
type troubles struct {
	strikes map[string][]strike         // by job, since it last went on
	asides  map[string]map[string]aside // by job and worker
}

// add notes that a worker failed a job. One that was lost may be lost by chance: the
// first is not put aside for it.
func (t *troubles) add(job, worker, reason string, now time.Time) {
	if t.strikes == nil {
		t.strikes, t.asides = map[string][]strike{}, map[string]map[string]aside{}
	}
	if now.Before(t.asides[job][worker].until) { // another of its chains says the same
		return
	}
	all := append(t.strikes[job], strike{worker, reason, now})
	if t.strikes[job] = all[max(0, len(all)-keepStrikes):]; len(all) == 1 && reason == lostReason {
		return
	}
	if t.asides[job] == nil {
		t.asides[job] = map[string]aside{}
	}
	a := aside{pause: min(max(firstAside, 2*t.asides[job][worker].pause), longestAside), reason: reason}
	a.until = now.Add(a.pause)
	t.asides[job][worker] = a
}

// heard notes that a job goes on at a worker.
func (t *troubles) heard(job, worker string) {
	delete(t.strikes, job)
	delete(t.asides[job], worker)
}

// of returns the jobs that a worker gets no chain of at a time, and why.
func (t *troubles) of(worker string, now time.Time) map[string]string {
	out := map[string]string{}
	for job, all := range t.asides {
		if a, ok := all[worker]; ok && now.Before(a.until) {
			out[job] = a.reason
		}
	}
	return out
}

// verdict returns why a job has to fail, empty if it has not: each of the workers that
// there are has failed it, or so many have, and nobody got any further since.
func (t *troubles) verdict(job string, there []string) string {
	all := t.strikes[job]
	if len(all) < mostStrikes {
		return ""
	}
	said := map[string]string{}
	var order []string
	for _, s := range all {
		if said[s.worker] == "" {
			order = append(order, s.worker)
		}
		said[s.worker] = s.reason
	}
	if len(said) < mostStrikes && slices.ContainsFunc(there, func(w string) bool { return said[w] == "" }) {
		return ""
	}
	var why []string
	for _, w := range order[max(0, len(order)-mostStrikes):] {
		why = append(why, fmt.Sprintf("%s: %s", w, said[w]))
	}
	if len(order) == 1 {
		return fmt.Sprintf("worker %s failed %d times", why[0], len(all))
	}
	return fmt.Sprintf("%d workers failed: %s", len(order), strings.Join(why, "; "))
}

// last returns what was last said against a job that has been failed repeatedly, empty
// for none.
func (t *troubles) last(job string) string {
	all := t.strikes[job]
	if len(all) < 2 {
		return ""
	}
	s := all[len(all)-1]
	return fmt.Sprintf("worker %s could not go on with it: %s; others are tried", s.worker, s.reason)
}

// keep forgets all jobs but some.
func (t *troubles) keep(jobs map[string]*state.Job) {
	for id := range t.strikes {
		if jobs[id] == nil {
			delete(t.strikes, id)
		}
	}
	for id := range t.asides {
		if jobs[id] == nil {
			delete(t.asides, id)
		}
	}
}

// lostReason is what is said of a worker that was lost while it had a job.
const lostReason = "its process was lost while it worked on the job (out of memory?)"

// fail notes that a worker cannot go on with a job.
func (r *registry) fail(job, worker, reason string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles.add(job, worker, reason, now)
	r.wake()
}

// heard notes that a job goes on at a worker.
func (r *registry) heard(job, worker string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles.heard(job, worker)
}

// verdict returns why a job has to fail, empty if it has not.
func (r *registry) verdict(job string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var there []string
	for _, w := range r.byID {
		if w.session != nil && !w.draining {
			there = append(there, w.id)
		}
	}
	return r.troubles.verdict(job, there)
}

// strikeLost notes that a worker's process was lost with what it held, but for what the one
// in its place says that it still holds; the caller holds the lock. Silence is not enough:
// it may be the network's, and that of all workers. Workers that are lost together, by a power
// cut say, are lost by no job: one counts only if it took up the job after the one before it was lost.
func (r *registry) strikeLost(w *worker, holds map[state.ChainKey]*held, now time.Time) {
	taken := map[string]time.Time{} // by job: when the last chain of it was taken up
	for _, had := range []map[state.ChainKey]*held{w.holds, w.gone} {
		for k, h := range had {
			if since, seen := taken[k.Job]; holds[k] == nil && (!seen || h.since.After(since)) {
				taken[k.Job] = h.since
			}
		}
	}
	for job, since := range taken {
		if all := r.troubles.strikes[job]; len(all) == 0 || since.After(all[len(all)-1].at) {
			r.troubles.add(job, w.id, lostReason, now)
		}
	}
}
