package cli

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Times between lines where there is no terminal: lineEvery in the first lineSoon, then
// lineLater.
const (
	lineEvery = 10 * time.Second
	lineSoon  = time.Minute
	lineLater = time.Minute
)

// due reports whether a line of how something stands is due.
func due(began, last, now time.Time) bool {
	every := lineEvery
	if now.Sub(began) > lineSoon {
		every = lineLater
	}
	return now.Sub(last) >= every
}

// ticks calls tell every second, until stop is called.
func ticks(tell func(now time.Time)) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				tell(now)
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// lines returns a function that tells of a job in lines, and one that ends that.
func (a *App) lines(out io.Writer) (show func(*pb.Job), end func()) {
	t := newTeller(out, a.Now())
	return func(j *pb.Job) { t.see(j, a.Now()) }, ticks(func(time.Time) { t.tell(a.Now()) })
}

// teller tells of a job in lines: of every change of its state, health or message, and how it
// stands when that is due, whether the cluster says anything or not.
type teller struct {
	log   *slog.Logger
	began time.Time

	mu   sync.Mutex
	job  *pb.Job   // as it was seen last
	seen time.Time // when that was
	last time.Time // when the last line was
}

func newTeller(out io.Writer, now time.Time) *teller {
	return &teller{log: slog.New(slog.NewTextHandler(out, nil)), began: now}
}

// see takes the job as it is.
func (t *teller) see(j *pb.Job, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.job
	t.job, t.seen = j, now
	if before == nil || before.State != j.State || client.HealthWord(before) != client.HealthWord(j) || before.Message != j.Message {
		t.line(now)
	}
}

// tell tells how the job stands, if that is due.
func (t *teller) tell(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job != nil && !client.Ended(t.job.State) && due(t.began, t.last, now) {
		t.line(now)
	}
}

// line tells how the job stands. The caller holds the lock.
func (t *teller) line(now time.Time) {
	t.last = now
	j, p := t.job, t.job.GetProgress()
	args := []any{"job", j.Id, "name", j.Name}
	if all := p.GetWarmup(); j.State == pb.JobState_JOB_STATE_WARMUP && all > 0 {
		args = append(args, "iterations", client.MinWarmup(p), "of", all)
	}
	if p.GetDraws() > 0 && (client.MinDraws(p) > 0 || j.State == pb.JobState_JOB_STATE_SAMPLING) {
		args = append(args, "draws", client.MinDraws(p), "wanted", p.Draws)
		if client.MinDraws(p) > int(p.Draws) {
			args = append(args, "max", p.MaxDraws)
		}
	}
	if p.GetRhat() != 0 {
		args = append(args, "rhat", round(p.Rhat, 4), "ess", round(p.Ess, 0), "ess_per_hour", round(client.ESSPerHour(p), 0))
		if p.LargestError != 0 {
			args = append(args, "largest_error", round(p.LargestError, 4))
		}
	}
	if p.GetStep() > 0 {
		args = append(args, "step", round(p.Step, 3), "probes", p.Probes, "noise_budget", round(p.NoiseBudget, 3))
	}
	since := now.Sub(t.seen)
	switch {
	case client.AtWork(j.State):
		args = append(args, "elapsed", span(p.GetActiveSeconds()+since.Seconds()))
	case p.GetActiveSeconds() > 0:
		args = append(args, "elapsed", span(p.ActiveSeconds))
	}
	if left, ok := client.ETA(j); ok && left > since {
		args = append(args, "eta", (left - since).Round(time.Second).String())
	}
	if j.StopReason != "" {
		args = append(args, "reason", j.StopReason)
	}
	if j.Message != "" {
		args = append(args, "message", j.Message)
	}
	if !client.AtWork(j.State) && !client.Ended(j.State) {
		args = append(args, "waited", now.Sub(t.began).Round(time.Second).String())
	}
	if health := client.HealthWord(j); health != "" {
		t.log.Warn(client.StateWord(j.State)+", "+health, append(args, "health", j.Health.Message)...)
		return
	}
	t.log.Info(client.StateWord(j.State), args...)
}
