package chains

import (
	"fmt"
	"math"
)

// Where a chain diverges the step is too large for the posterior, and not for this chain alone: the others' draws, and
// the metric that was learnt from them, are not to be trusted either. So all chains begin again at their starting points,
// with a smaller step. From then on the run is the one that it would have been with this step in its specification.
//
// In sampling the chain that diverged waits until all have as many draws as it has, and Judge has not found
// that these are enough. So what becomes of the run does not depend on how far ahead a chain was.

// MaxRestarts is how often a run begins again before it fails, and restartShare what is left of the
// step each time. Half of it was too much: a chain may then stay just short of diverging.
const (
	MaxRestarts  = 2
	restartShare = 0.25
)

// Divergence says that a chain diverged on the way from a checkpoint to the next one.
type Divergence struct {
	Chain    int  `json:"chain"`
	FromIter int  `json:"from_iter"`
	Iter     int  `json:"iter"`     // at which it did
	Restarts int  `json:"restarts"` // of the run before that
	Cost     Cost `json:"cost"`
}

// Restart lets a run begin again. Apply fills in all but the time.
type Restart struct {
	Elapsed float64 `json:"elapsed,omitempty"` // how long the run was at work by then, in seconds
	Chain   int     `json:"chain"`             // that diverged
	Iter    int     `json:"iter"`              // when it did
	Before  float64 `json:"before"`            // the step until then
	Step    float64 `json:"step"`              // that the sampler is to take now
}

// Text says what happened.
func (s *Restart) Text() string {
	return fmt.Sprintf("chain %d diverged at iteration %d with a step of %.3g: all chains began again with a step of %.3g", s.Chain, s.Iter, s.Before, s.Step)
}

// Restarts returns how often the run had begun again when the work began that the event comes of.
func (e *Event) Restarts() int {
	switch {
	case e.Checkpoint != nil:
		return e.Checkpoint.State.Restarts
	case e.Diverged != nil:
		return e.Diverged.Restarts
	}
	return math.MaxInt
}

// again reports whether the run begins again if a chain diverges now: if it has a step to make smaller, and
// there are no draws that somebody was given as the result.
func (r *Run) again() bool {
	return r.Settings != nil && r.Settings.Step > 0 && len(r.Restarts) < MaxRestarts && !r.Extended
}

// diverged notes that a chain diverged.
func (r *Run) diverged(d *Divergence) error {
	if d.Chain < 1 || d.Chain > len(r.Chains) || !d.Cost.sane() {
		return ErrShape
	}
	t, ok := r.task(d.Chain)
	if !ok || d.FromIter != t.From.Iter || d.Restarts != t.From.Restarts || !t.Again {
		return ErrStale // also of a run that was extended meanwhile
	}
	if d.Iter <= d.FromIter || d.Iter > d.FromIter+t.Iterations {
		return ErrShape
	}
	r.Chains[d.Chain-1].Diverged = d.Iter
	r.Lost.Add(d.Cost)
	return nil
}

// restartDue returns the chain (from 1) because of which the run is to begin again, 0 for none.
func (r *Run) restartDue() int {
	for c := range r.Chains {
		if ch := &r.Chains[c]; ch.Diverged > 0 && (r.Phase == Warmup || r.Phase == Sampling && len(ch.Draws) == r.MinDraws()) {
			return c + 1
		}
	}
	return 0
}

// restart lets the run begin again.
func (r *Run) restart(s *Restart) error {
	c := r.restartDue()
	if c == 0 {
		return ErrPhase
	}
	if !(s.Elapsed >= 0 && s.Elapsed <= maxCost) {
		return ErrShape
	}
	done := Restart{Elapsed: s.Elapsed, Chain: c, Iter: r.Chains[c-1].Diverged, Before: r.Settings.Step, Step: restartShare * r.Settings.Step}
	for _, ch := range r.Chains {
		r.Lost.Add(ch.Cost)
	}
	r.Restarts = append(r.Restarts, done)
	r.Plan.Step = done.Step
	r.Phase, r.Settings, r.Tuned, r.Chains = Warmup, nil, nil, make([]Chain, len(r.Chains))
	return nil
}
