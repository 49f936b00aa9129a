package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Workers of one instruction set compute the same bits. Where two did not, one of them computes
// wrongly, and a driver that says so may be the one. So a disagreement is between two, who are kept
// apart; who disagrees with two others gets no work at all. A worker that lies, whatever it says, is
// the first to be put aside, and takes nobody with it.

// disagreeFor is how long a disagreement counts, if neither is started again.
const disagreeFor = time.Hour

// disagreement is what was seen of two workers' numbers.
type disagreement struct {
	at     time.Time
	reason string
}

// disagreements are those of late, by the two workers, in order; with itself stands for one that
// computes other numbers each time. The leader's registry has them, and its lock guards them; they
// are not replicated.
type disagreements map[[2]string]disagreement

func between(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// add notes that two workers disagree, and reports whether that is new.
func (d disagreements) add(a, b, reason string, now time.Time) bool {
	k := between(a, b)
	old, ok := d[k]
	d[k] = disagreement{now, reason}
	return !ok || now.Sub(old.at) >= disagreeFor
}

// of returns with whom a worker disagrees, and what was seen.
func (d disagreements) of(worker string, now time.Time) map[string]string {
	out := map[string]string{}
	for k, x := range d {
		if now.Sub(x.at) >= disagreeFor {
			continue
		}
		switch worker {
		case k[0]:
			out[k[1]] = x.reason
		case k[1]:
			out[k[0]] = x.reason
		}
	}
	return out
}

// aside reports whether a worker disagrees with so many that it is the one who is wrong.
func (d disagreements) aside(worker string, now time.Time) bool { return len(d.of(worker, now)) > 1 }

// expire drops those that count no more.
func (d disagreements) expire(now time.Time) {
	maps.DeleteFunc(d, func(_ [2]string, x disagreement) bool { return now.Sub(x.at) >= disagreeFor })
}

// forget drops what concerns a worker, whose process is another one.
func (d disagreements) forget(worker string) {
	maps.DeleteFunc(d, func(k [2]string, _ disagreement) bool { return k[0] == worker || k[1] == worker })
}

// disagree notes that two workers do not compute the same bits, as the first of them says. It
// reports whether that is news, and who is put aside for it. Who has been put aside is not heard.
func (r *registry) disagree(by, with, reason string, now time.Time) (news bool, aside []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.disagreements
	if d.aside(by, now) || !d.add(by, with, reason, now) {
		return false, nil
	}
	for _, w := range []string{by, with} {
		if d.aside(w, now) && !slices.Contains(aside, w) {
			aside = append(aside, w)
			r.activity.add(now, w, workerAside)
		}
	}
	r.wake()
	return true, aside
}

// disagreements takes what a driver says of members of its group, or of itself.
func (s *workersService) disagreements(ctx context.Context, r *pb.ReportRequest, at state.Placement) {
	for _, d := range r.Disagreements {
		if d.Worker == at.Worker || slices.Contains(at.Group, d.Worker) {
			s.c.disagree(ctx, at.Worker, d.Worker, r.Job, fmt.Sprintf("chain %d of job %s: %s", r.Chain, r.Job, d.Reason[:min(len(d.Reason), maxFailure)]))
		}
	}
}

// disagree notes a disagreement, and tells of it wherever operators look.
func (c *Coordinator) disagree(ctx context.Context, by, with, job, reason string) {
	news, aside := c.workers.disagree(by, with, reason, time.Now())
	if !news {
		return
	}
	text := fmt.Sprintf("workers %s and %s do not compute the same numbers: they share no work for an hour (%s)", by, with, reason)
	if by == with {
		text = fmt.Sprintf("worker %s computes other numbers each time (%s)", by, reason)
	}
	if len(aside) > 0 {
		text += fmt.Sprintf("; it is not the first time for %s, who get no work until they are started again, or for an hour", strings.Join(aside, " and "))
	}
	c.disagreed.Add(1)
	c.log.Error("workers do not compute the same numbers: test their memory and processors", "job", job, "workers", []string{by, with}, "reason", reason, "aside", aside)
	if _, err := c.propose(ctx, &state.Remark{Job: job, Kind: state.NoteWrong, Text: text}); err != nil {
		c.log.Debug("the job's log does not have it", "job", job, "error", err) // it may be while versions are mixed
	}
}
