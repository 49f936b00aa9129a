package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// A driver that computes wrongly, or lies, is believed: what it reports is checked for its shape
// only. But what it reports is a function of its work, to the last bit. So one report in a hundred,
// at random, is computed again by a worker that drives nothing, or else by one that drives another lane
// of the job and has its data, and what came of it is compared. The chain goes on meanwhile. Where the two differ, what two workers agree on is right: a
// third one is asked, if need be a busy one. Where there is none, the driver, and then the other,
// compute it once more: a fault that comes and goes shows itself. If both come to what they came to
// before, the job goes on and says so, and a third is asked as soon as there is one: one worker
// alone, whatever it says, stops no job. If the driver was wrong the job fails, for the draws since
// then cannot be taken back. What is under way is lost with the leadership.

// check is a report of a driver that is computed again.
type check struct {
	number     int64
	job        string
	what       string // in words
	assignment *pb.Assignment
	memory     int64             // bytes that it takes at the least
	driver     string            // whose report it is
	rival      string            // who first came to something else; empty for nobody yet
	sums       map[string]string // by worker; empty of those who could not say
	repeated   map[string]bool   // who was asked a second time
	doubted    bool              // the job says that nobody could decide
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
	open    []*check // in dispute, with nobody to ask
	answers []answered
	counts  map[string]int64 // by result
}

// Results of checks.
const (
	checkSame  = "same"
	checkOther = "other"
	checkNone  = "none" // the worker that was asked could not say
)

// maxOpen bounds the checks that wait for somebody to decide; the oldest are given up.
const maxOpen = 64

// candidate returns the check of an event in a report, before that is applied; mostly nil.
func (c *Coordinator) candidate(r *pb.ReportRequest, driver string) (out *check) {
	if c.cfg.CheckEvery < 0 {
		return nil
	}
	at := slices.IndexFunc(r.Events, func([]byte) bool { return rand.IntN(c.cfg.CheckEvery) == 0 })
	if at < 0 || !c.workers.mayCheck(r.Job, driver) {
		return nil
	}
	_ = c.jobs.with(r.Job, func(j *followed) error { // a report that is malformed is refused when it is applied
		run := j.Run.Snapshot()
		for i, text := range r.Events[:at+1] {
			e, err := chains.DecodeEvent(text)
			if err != nil || run == nil {
				return err
			}
			if i == at {
				out, err = j.check(run, e, driver, c.rounds(j.Job))
				return err
			}
			if err := run.Apply(*e); err != nil {
				return err
			}
		}
		return nil
	})
	return out
}

// check returns the check of an event that comes next in a run, nil if it cannot be told for certain of
// what work: a job that was extended may have asked its sampler for another number of draws than it
// does by then, and another leader may have rounded where a certificate begins.
func (j *followed) check(run *chains.Run, e *chains.Event, who string, rounds bool) (*check, error) {
	w, ok := run.WorkOf(e)
	if !ok || w.Conduct != nil && j.Job.Extends > 0 || w.Certificate && w.Prepare != nil && !rounds {
		return nil, nil
	}
	sum, err := e.Sum()
	if err != nil {
		return nil, err
	}
	spec, err := j.Spec()
	if err != nil {
		return nil, err
	}
	a := &pb.Assignment{Spec: j.Job.Spec, Data: j.Job.Data, DataSha256: j.Job.Info.SHA256, Work: w.Wire(), Prepared: run.PreparedFor(w).Wire()}
	return &check{job: j.Job.ID, what: inWords(e), assignment: a, memory: driver.LeastMemory(spec, j.Job.Info.Rows, j.Job.Info.D()), driver: who, sums: map[string]string{who: sum}, repeated: map[string]bool{}}, nil
}

// inWords says what an event of a driver is.
func inWords(e *chains.Event) (out string) {
	switch {
	case e.Prepared != nil:
		out = "the preparation"
	case e.Provisional != nil:
		out = "the provisional answer"
	case e.Coefficients != nil:
		out = "the coefficients of the mean"
	case e.Stage != nil:
		out = fmt.Sprintf("the list of stage %d", e.Stage.Number)
	case e.Drawn != nil:
		out = fmt.Sprintf("the draws of %d stages", e.Drawn.Stages)
	case e.Evaluated != nil:
		out = fmt.Sprintf("item %d of stage %d", e.Evaluated.Item, e.Evaluated.Stage)
	default:
		k := e.Checkpoint
		out = fmt.Sprintf("the checkpoint of chain %d from iteration %d to %d", k.Chain, k.FromIter, k.State.Iter)
	}
	if e.Certificate {
		out += " of the certificate"
	}
	return out
}

// mayCheck reports whether there is a worker that might check what another one drives.
func (r *registry) mayCheck(job, driver string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checker(&check{job: job, driver: driver, sums: map[string]string{driver: ""}}) != nil
}

// checker returns a worker that computes the bits of a check's driver and has the time, best of all one
// that drives nothing; where somebody has to decide, any will do. Of who is kept apart from the driver it
// is known that they do not agree. The caller holds the lock.
func (r *registry) checker(c *check) (best *worker) {
	apart := r.disagreements.of(c.driver, time.Now())
	for _, w := range r.byID {
		_, tried := c.sums[w.id]
		_, disagrees := apart[w.id]
		if tried || disagrees || !r.fits(w, c) {
			continue
		}
		if (len(w.holds) == 0 || w.drives(c.job) || c.rival != "") && (best == nil || len(w.holds) < len(best.holds)) {
			best = w
		}
	}
	return best
}

// fits reports whether a worker can be asked to check: it has the memory beside what it drives, as if all
// that were chains of this job, and its version, for what is hashed of an event may be another thing in
// another one. The caller holds the lock.
func (r *registry) fits(w *worker, c *check) bool {
	d := r.byID[c.driver]
	if w == nil || d == nil {
		return false
	}
	if most := w.capacity.GetMemoryBytes(); most > 0 && int64(len(w.holds)+1)*c.memory > most {
		return false
	}
	return w.session != nil && !w.draining && r.checking.asked[w.id] == nil && !r.disagreements.aside(w.id, time.Now()) &&
		w.capacity.GetInstructionSet() == d.capacity.GetInstructionSet() && w.version == version.Version && d.version == version.Version
}

// again returns who of the two in dispute is to compute once more, nil for neither; the caller
// holds the lock.
func (r *registry) again(c *check) *worker {
	for _, id := range []string{c.driver, c.rival} {
		if w := r.byID[id]; c.rival != "" && !c.repeated[id] && r.fits(w, c) {
			c.repeated[id] = true
			return w
		}
	}
	return nil
}

// check asks a worker to check, if there is one.
func (r *registry) check(c *check) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.checker(c)
	if w == nil {
		w = r.again(c)
	}
	if w == nil {
		return false
	}
	r.checking.last++
	c.number = r.checking.last
	r.checking.asked[w.id] = c
	w.session.send(&pb.CoordinatorMessage{Message: &pb.CoordinatorMessage_Check{Check: &pb.Check{Number: c.number, Job: c.job, Assignment: c.assignment}}})
	return true
}

// leaveOpen keeps a check until there is somebody to ask.
func (r *registry) leaveOpen(c *check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checking.open = append(r.checking.open, c)
	r.checking.open = r.checking.open[max(0, len(r.checking.open)-maxOpen):]
}

// reopened returns the checks that were left open, which are so no more.
func (r *registry) reopened() []*check {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.checking.open
	r.checking.open = nil
	return out
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

// settleChecks draws the conclusions from the answers that have come, and asks who has come since.
func (t *term) settleChecks(ctx context.Context) error {
	for _, a := range t.c.workers.answers() {
		t.settle(ctx, a)
	}
	for _, c := range t.c.workers.reopened() {
		t.ask(ctx, c)
	}
	for job, why := range t.distrusted {
		switch _, err := t.c.propose(ctx, &state.Fail{Job: job, Message: why}); {
		case errors.Is(err, state.ErrPhase):
			t.c.log.Error("a job has ended whose draws are not to be trusted", "job", job, "reason", why)
			t.tell(ctx, job, why)
		case errors.Is(err, state.ErrUnknownJob):
		case err != nil:
			return err
		}
		delete(t.distrusted, job)
	}
	return nil
}

// settle draws the conclusion from an answer.
func (t *term) settle(ctx context.Context, a answered) {
	c := a.check
	before, twice := c.sums[a.by]
	theirs := c.sums[c.driver]
	if !twice {
		c.sums[a.by] = a.sum
	}
	switch {
	case a.sum == "" && c.rival == "", !twice && a.sum == theirs && c.rival == "": // that is the end of it
	case a.sum == "", twice && a.sum == before:
		t.ask(ctx, c)
	case twice && a.by == c.driver:
		t.c.disagree(ctx, a.by, a.by, c.job, c.what)
		t.distrust(c, fmt.Sprintf("which came to something else than before when it did so again, as worker %s had", c.rival))
	case twice:
		t.c.disagree(ctx, a.by, a.by, c.job, c.what)
		t.trust(ctx, c, fmt.Sprintf("worker %s comes to something else each time", a.by))
	case c.rival == "":
		c.rival = a.by
		t.c.disagree(ctx, a.by, c.driver, c.job, c.what)
		t.ask(ctx, c)
	case a.sum == theirs:
		for other, sum := range c.sums {
			if sum != "" && sum != theirs {
				t.c.disagree(ctx, a.by, other, c.job, c.what)
			}
		}
		t.trust(ctx, c, fmt.Sprintf("worker %s comes to the same", a.by))
	default:
		t.outvote(ctx, a)
	}
}

// outvote concludes that a driver was wrong, if somebody else came to the same as who says so.
func (t *term) outvote(ctx context.Context, a answered) {
	c := a.check
	for other, sum := range c.sums {
		if other != a.by && sum == a.sum {
			t.c.disagree(ctx, a.by, c.driver, c.job, c.what)
			t.distrust(c, fmt.Sprintf("and not worker %s alone but %s, too, comes to something else", other, a.by))
			return
		}
	}
	t.ask(ctx, c)
}

// ask asks a worker to decide. Where there is none the job says so, and it waits for one.
func (t *term) ask(ctx context.Context, c *check) {
	if t.c.workers.check(c) {
		return
	}
	if !c.doubted {
		c.doubted = true
		t.tell(ctx, c.job, fmt.Sprintf("%s was computed by worker %s, and worker %s comes to something else; there is no third one to decide who is right, "+
			"so the draws since then are in doubt: start another worker, or test the memory and the processors of these", c.what, c.driver, c.rival))
	}
	t.c.workers.leaveOpen(c)
}

// trust concludes that a driver was right; a job that was in doubt says so.
func (t *term) trust(ctx context.Context, c *check, why string) {
	if c.doubted {
		t.tell(ctx, c.job, fmt.Sprintf("%s is in doubt no more: %s", c.what, why))
	}
}

// tell has a job say something of its draws, wherever its state is shown.
func (t *term) tell(ctx context.Context, job, text string) {
	if _, err := t.c.propose(ctx, &state.Remark{Job: job, Kind: state.NoteWrong, Text: text, Shown: true}); err != nil {
		t.c.log.Error("a job does not say what is known of its draws", "job", job, "what", text, "error", err) // it may be while versions are mixed
	}
}

// distrust notes that a job has to fail, since its draws are not to be believed.
func (t *term) distrust(c *check, why string) {
	if t.distrusted == nil {
		t.distrusted = map[string]string{}
	}
	t.distrusted[c.job] = fmt.Sprintf("%s was computed by worker %s, %s: the draws since then are not to be trusted. "+
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
