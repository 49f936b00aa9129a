package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// A driver that computes wrongly, or lies, is believed: what it reports is checked for its shape
// only. But a checkpoint is a function of its task, to the last bit. So one in a hundred, at random,
// is computed again by a worker that drives nothing, if there is one, and what came of it compared.
// The chain goes on meanwhile. Where the two differ a third one decides: if the driver was right the
// other is put aside; if it was wrong, or there is nobody to decide, the job fails, for the draws since
// then cannot be taken back. What is under way is lost with the leadership.

// check is a checkpoint that is computed again.
type check struct {
	number     int64
	job        string
	what       string // in words
	assignment *pb.Assignment
	driver     string            // whose checkpoint it is
	rival      string            // who came to something else; empty for nobody yet
	sums       map[string]string // by worker; empty of those who could not say
}

// answered is what a worker said of a check.
type answered struct {
	*check
	by, sum string
}

// checking are the checks under way, by the worker that was asked, and the answers that have come. The
// leader's registry has them, and its lock guards them.
type checking struct {
	last    int64
	asked   map[string]*check
	answers []answered
	counts  map[string]int64 // by result
}

// Results of checks.
const (
	checkSame  = "same"
	checkOther = "other"
	checkNone  = "none" // the worker that was asked could not say
)

// candidate returns the check of a checkpoint in a report, before it is applied; mostly nil.
func (c *Coordinator) candidate(r *pb.ReportRequest, driver string) (out *check) {
	if c.cfg.CheckEvery < 0 || r.Chain == 0 || !c.workers.mayCheck(driver) {
		return nil
	}
	_ = c.jobs.with(r.Job, func(j *followed) error { // a report that is malformed is refused when it is applied
		if j.Run == nil || j.Run.Settings == nil || j.Run.Phase == chains.Certifying || int(r.Chain) > len(j.Run.Chains) {
			return nil
		}
		from := j.Run.Chains[r.Chain-1].State
		for _, text := range r.Events {
			e, err := chains.DecodeEvent(text)
			if err != nil || e.Checkpoint == nil || e.Checkpoint.FromIter != from.Iter || e.Checkpoint.Chain != int(r.Chain) {
				return err
			}
			if rand.IntN(c.cfg.CheckEvery) == 0 {
				if out, err = j.check(from, e.Checkpoint, driver); err != nil {
					return err
				}
			}
			from = e.Checkpoint.State
		}
		return nil
	})
	return out
}

// check returns the check of a checkpoint of a chain that was in a state.
func (j *followed) check(from chains.State, k *chains.Checkpoint, driver string) (*check, error) {
	sum, err := k.Sum()
	if err != nil {
		return nil, err
	}
	t := j.Run.TaskOf(from, k)
	w := chains.Work{Advance: &t}
	a := &pb.Assignment{Spec: j.Job.Spec, Data: j.Job.Data, DataSha256: j.Job.Info.SHA256, Work: w.Wire(), Prepared: j.Run.PreparedFor(w).Wire()}
	return &check{job: j.Job.ID, what: fmt.Sprintf("the checkpoint of chain %d from iteration %d to %d", k.Chain, k.FromIter, k.State.Iter),
		assignment: a, driver: driver, sums: map[string]string{driver: sum}}, nil
}

// mayCheck reports whether there is a worker that might check what another one drives.
func (r *registry) mayCheck(driver string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checker(&check{driver: driver, sums: map[string]string{driver: ""}}) != nil
}

// checker returns a worker that drives nothing and computes the bits of a check's driver; where
// somebody has to decide, a busy one will do. The caller holds the lock.
func (r *registry) checker(c *check) (best *worker) {
	d := r.byID[c.driver]
	for _, w := range r.byID {
		_, asked := r.checking.asked[w.id]
		_, tried := c.sums[w.id]
		if d == nil || w.session == nil || w.draining || asked || tried || r.disagreements.aside(w.id, time.Now()) ||
			w.capacity.GetInstructionSet() != d.capacity.GetInstructionSet() || w.version != d.version {
			continue
		}
		if (len(w.holds) == 0 || c.rival != "") && (best == nil || len(w.holds) < len(best.holds)) {
			best = w
		}
	}
	return best
}

// check asks a worker to check, if there is one.
func (r *registry) check(c *check) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.checker(c)
	if w == nil {
		return false
	}
	r.checking.last++
	c.number = r.checking.last
	r.checking.asked[w.id] = c
	w.session.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Check{Check: &pb.Check{Number: c.number, Job: c.job, Assignment: c.assignment}}})
	return true
}

// checked takes a worker's answer.
func (r *registry) checked(id string, m *pb.Checked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.checking.asked[id]; c != nil && c.number == m.Number {
		r.answer(c, id, m.Sha256)
	}
}

// answer notes an answer, which is empty of a worker that cannot say; the caller holds the lock.
func (r *registry) answer(c *check, by, sum string) {
	delete(r.checking.asked, by)
	r.checking.answers = append(r.checking.answers, answered{c, by, sum})
	r.wake()
}

// answers returns the answers that have come since the last call.
func (r *registry) answers() []answered {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.checking.asked {
		if w := r.byID[id]; w == nil || w.session == nil {
			r.answer(c, id, "")
		}
	}
	out := r.checking.answers
	r.checking.answers = nil
	for _, a := range out {
		switch a.sum {
		case "":
			r.checking.counts[checkNone]++
		case a.sums[a.driver]:
			r.checking.counts[checkSame]++
		default:
			r.checking.counts[checkOther]++
		}
	}
	return out
}

// settleChecks draws the conclusions from the answers that have come.
func (t *term) settleChecks(ctx context.Context) error {
	for _, a := range t.c.workers.answers() {
		c, same := a.check, a.sum == a.sums[a.driver]
		c.sums[a.by] = a.sum
		switch {
		case a.sum == "" && c.rival != "":
			t.askThird(c)
		case a.sum == "" || same && c.rival == "":
		case c.rival == "":
			c.rival = a.by
			t.c.disagree(ctx, a.by, c.driver, c.job, c.what)
			t.askThird(c)
		case same:
			t.c.disagree(ctx, a.by, c.rival, c.job, c.what)
		default:
			t.c.disagree(ctx, a.by, c.driver, c.job, c.what)
			t.distrust(c, fmt.Sprintf("and not worker %s alone but %s, too, comes to something else", c.rival, a.by))
		}
	}
	for job, why := range t.distrusted {
		switch _, err := t.c.propose(ctx, &state.Fail{Job: job, Message: why}); {
		case errors.Is(err, state.ErrPhase), errors.Is(err, state.ErrUnknownJob):
			t.c.log.Error("a job has ended whose draws are not to be trusted", "job", job, "reason", why)
		case err != nil:
			return err
		}
		delete(t.distrusted, job)
	}
	return nil
}

// askThird asks a worker to decide. A job that nobody can decide about fails.
func (t *term) askThird(c *check) {
	if !t.c.workers.check(c) {
		t.distrust(c, fmt.Sprintf("and worker %s comes to something else; there is no third one to decide who is right", c.rival))
	}
}

// distrust notes that a job has to fail, since its draws are not to be believed.
func (t *term) distrust(c *check, why string) {
	if t.distrusted == nil {
		t.distrusted = map[string]string{}
	}
	t.distrusted[c.job] = fmt.Sprintf("%s was computed by worker %s, %s: the draws of the chain since then are not to be trusted. "+
		"Test the memory and the processors of these workers, and submit the job anew: resumed, it would keep the draws", c.what, c.driver, why)
}

// checkCounts returns how many checks came to what.
func (r *registry) checkCounts() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int64{}
	for _, k := range []string{checkSame, checkOther, checkNone} {
		out[k] = r.checking.counts[k]
	}
	return out
}
