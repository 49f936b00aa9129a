package chains

import (
	"math"
	"time"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Convergence is the worst of the diagnostics over all parameters.
type Convergence struct {
	Draws int     `json:"draws"` // of each chain
	RHat  float64 `json:"rhat"`
	ESS   float64 `json:"ess"` // smaller of bulk and tail
	// Error is the larger of the errors of a mean, in sds, and of an sd, relative.
	Error float64 `json:"error"`
}

// Column returns the first n kept draws of parameter i, chain by chain.
func (r *Run) Column(i, n int) [][]float64 {
	out := make([][]float64, len(r.Chains))
	for c, ch := range r.Chains {
		out[c] = make([]float64, n)
		for t := range n {
			out[c][t] = ch.Draws[t][i]
		}
	}
	return out
}

// Diagnose returns the convergence at n draws of each chain. The diagnostics
// are those of the log parameters, which the rank-based ones do not mind.
func (r *Run) Diagnose(n int) Convergence {
	c := Convergence{Draws: n, ESS: math.Inf(1)}
	for i := range r.Plan.Names {
		x := r.Column(i, n)
		c.RHat = worse(c.RHat, diagnostics.RHat(x), math.Max)
		c.ESS = worse(c.ESS, min(diagnostics.ESSBulk(x), diagnostics.ESSTail(x)), math.Min)
		e := r.Errors(x)
		c.Error = worse(c.Error, worse(e.Mean, e.SD, math.Max), math.Max)
	}
	return c
}

// worse keeps NaN, which is the worst of all.
func worse(a, b float64, f func(a, b float64) float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return f(a, b)
}

// Met reports whether the convergence is what the plan asks for.
func (p *Plan) Met(c Convergence) bool {
	return c.RHat <= p.RHat && c.ESS >= p.ESS && (p.Error == 0 || c.Error <= p.Error)
}

// Judge decides when a run ends. It looks at it after Plan.Draws draws of each
// chain and then at every further checkpoint, always at equal numbers of draws,
// so that the decision is a function of the draws alone.
type Judge struct {
	seen        int // draws at the last look; of a staged run, stages
	restarts    int // of the run, by then
	Last        Convergence
	certificate *Judge // of the run that certifies
}

// Decide returns the end of the run, or of the run that certifies it, or its beginning again
// because a chain diverged, or nil if it is to go on. elapsed is the time that the run has been at work: sampling, and
// again the certificate, may take the plan's MaxTime.
func (j *Judge) Decide(r *Run, elapsed time.Duration) *Event {
	if j.restarts != len(r.Restarts) {
		*j = Judge{restarts: len(r.Restarts)}
	}
	if r.Phase == Certifying {
		if j.certificate == nil {
			j.certificate = &Judge{}
		}
		e := j.certificate.Decide(r.Certificate, elapsed-seconds(r.Stopped.Elapsed))
		if e != nil {
			e.Certificate = true
		}
		return e
	}
	s := j.stop(r, elapsed)
	if s == nil && r.restartDue() > 0 {
		return &Event{Restart: &Restart{Elapsed: elapsed.Seconds()}}
	}
	if s == nil {
		return nil
	}
	s.Elapsed = elapsed.Seconds()
	return &Event{Stop: s}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (j *Judge) stop(r *Run, elapsed time.Duration) *Stop {
	if r.Phase == Done {
		return nil
	}
	if r.Phase == Sampling && r.Plan.Staged {
		if s := j.staged(r); s != nil {
			return s
		}
	} else if r.Phase == Sampling {
		p := &r.Plan
		for n := j.next(p); n <= r.MinDraws() && n <= p.MaxDraws; n = j.next(p) {
			j.seen = n
			if n < p.Draws && j.next(p) <= r.MinDraws() {
				continue // a look that would only inform, of the past
			}
			j.Last = r.Diagnose(n)
			if n >= p.Draws && p.Met(j.Last) {
				return &Stop{Reason: Converged, Draws: n}
			}
			if n == p.MaxDraws {
				return &Stop{Reason: MaxDraws, Draws: n}
			}
		}
	}
	if e := r.TimedOut(elapsed); e != nil {
		return e.Stop
	}
	return nil
}

// staged looks at the draws of a staged run, once each time that they were made.
func (j *Judge) staged(r *Run) *Stop {
	if r.Drawn == nil || r.Drawn.Stages == j.seen {
		return nil
	}
	j.seen = r.Drawn.Stages
	n := r.MinDraws()
	j.Last = r.Diagnose(n)
	switch {
	case n >= r.Plan.Draws && r.Plan.Met(j.Last) && r.Drawn.Tail == 0:
		return &Stop{Reason: Converged, Draws: n}
	case n >= r.Plan.MaxDraws:
		return &Stop{Reason: MaxDraws, Draws: n}
	}
	return nil
}

// TimedOut returns the end of a run, or of the run that certifies it, that has been
// at work for as long as its plan allows, nil if it may go on.
func (r *Run) TimedOut(elapsed time.Duration) *Event {
	limit := r.Plan.MaxTime
	switch {
	case r.Phase == Done || limit == 0:
		return nil
	case r.Phase == Concluding:
		if elapsed-seconds(r.Stopped.Elapsed) < limit {
			return nil
		}
		return &Event{Stop: &Stop{Reason: Cancelled, Draws: r.Stopped.Draws, Elapsed: elapsed.Seconds()}}
	case r.Phase == Certifying:
		e := r.Certificate.TimedOut(elapsed - seconds(r.Stopped.Elapsed))
		if e != nil {
			e.Certificate = true
		}
		return e
	case elapsed < limit:
		return nil
	}
	return &Event{Stop: &Stop{Reason: MaxTime, Draws: r.MinDraws(), Elapsed: elapsed.Seconds()}}
}

// next returns the number of draws to look at next. Before Plan.Draws the looks
// only inform.
func (j *Judge) next(p *Plan) int {
	n := j.seen + p.Checkpoint
	for _, mark := range []int{p.Draws, p.MaxDraws} {
		if j.seen < mark && n > mark {
			n = mark
		}
	}
	return n
}
