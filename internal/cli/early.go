package cli

import (
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// early writes what is known of a run before it has ended: the provisional answer while its
// chains warm up (the Laplace approximation once the mode is known, its correction when that
// is there), and its draws so far.
type early struct {
	app       *App
	job       *runJob
	dir       string
	answered  bool
	corrected bool
	due       time.Time // of the next record
}

// Between two records of a run pass recordEvery, and recordShare times what writing one takes.
const (
	recordEvery = 10 * time.Second
	recordShare = 100
)

// watch is told of every event, one call at a time.
func (e *early) watch(v local.View, p *progress) {
	if v.Run.Prepared == nil || v.Run.Stopped != nil {
		return
	}
	e.answer(v, p)
	if began := e.app.Now(); !began.Before(e.due) {
		if err := e.record(v.Run, v.Elapsed, string(v.Run.Phase)); err != nil { // the run does not need it
			p.Say("results", "the results so far were not written: "+err.Error())
		}
		now := e.app.Now()
		e.due = now.Add(max(recordEvery, recordShare*now.Sub(began)))
	}
}

// answer writes the provisional answer.
func (e *early) answer(v local.View, p *progress) {
	if e.corrected || e.answered && v.Run.Provisional == nil {
		return
	}
	e.answered, e.corrected = true, v.Run.Provisional != nil
	answer, err := report.NewProvisional(e.job.problem.Model, &e.job.data.Info, v.Run)
	if err == nil && answer != nil {
		if err = answer.Write(e.dir); err == nil {
			p.Say("provisional", answer.Line())
		}
	}
	if err != nil { // the chains do not need it
		p.Say("provisional", "no provisional answer: "+err.Error())
	}
}

// record writes the record of a run that has not come to its end, in words how it stands.
func (e *early) record(r *chains.Run, elapsed time.Duration, state string) error {
	rec, err := e.job.record(e.app, r, elapsed)
	if err != nil {
		return err
	}
	rec.Origin.State, rec.Origin.Ended = state, time.Time{}
	return rec.WriteSoFar(e.dir)
}
