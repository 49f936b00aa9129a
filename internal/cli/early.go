package cli

import (
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// early writes the provisional answer of a run while its chains warm up: the Laplace
// approximation once the mode is known, its correction when that is there.
type early struct {
	job       *runJob
	dir       string
	answered  bool
	corrected bool
}

// watch is told of every event, one call at a time.
func (e *early) watch(v local.View, p *progress) {
	if v.Run.Prepared == nil || v.Run.Stopped != nil || e.corrected || e.answered && v.Run.Provisional == nil {
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
