package state

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// Loaded tells what the data are, and the plan that follows.
type Loaded struct {
	Job            string        `json:"job"`
	Attempt        int64         `json:"attempt"` // of the preparation
	Info           *dataset.Info `json:"info"`
	Plan           *chains.Plan  `json:"plan"`
	InstructionSet string        `json:"instruction_set"`
}

func (l *Loaded) format() uint64 {
	if l.Plan != nil && l.Plan.Mean {
		return 5
	}
	if l.Plan != nil && l.Plan.Latents() {
		return 3
	}
	return 0 // as ever
}

func (l *Loaded) apply(x *transaction) (*Job, error) {
	return x.update(l.Job, func(u *jobUpdate) error {
		j := u.job
		if l.Info == nil || l.Plan == nil || l.Plan.Chains != j.Chains || l.Plan.Checkpoint < 1 || len(l.Plan.Names) == 0 || l.Plan.Lanes > maxChains {
			return ErrMalformed
		}
		if err := j.Fence(0, l.Attempt); err != nil {
			return err
		}
		if j.Plan != nil { // a second driver of the preparation
			if l.Info.SHA256 != j.Info.SHA256 {
				return fmt.Errorf("%w: the data have changed: their hash was %s and is %s", ErrMalformed, j.Info.SHA256, l.Info.SHA256)
			}
			return nil
		}
		j.Info, j.Plan, j.InstructionSet = l.Info, l.Plan, l.InstructionSet
		if more := l.Plan.Lanes + 1 - len(j.Placements); l.Plan.Staged && more > 0 {
			j.Placements = append(j.Placements, make([]Placement, more)...)
		}
		return nil
	})
}

// Report adds events of a driver: what came of the work of its lane.
type Report struct {
	Job     string   `json:"job"`
	Chain   int      `json:"chain"`
	Attempt int64    `json:"attempt"`
	Events  [][]byte `json:"events"` // encoded chains.Event, kept as they were received
	// Brief says that from here on a checkpoint writes what it changes, and no more.
	Brief bool `json:"brief,omitempty"`
}

func (r *Report) format() uint64 {
	if r.Brief {
		return 5
	}
	for _, text := range r.Events {
		if e, err := chains.DecodeEvent(text); err == nil && (e.Diverged != nil || e.Coefficients != nil) {
			return 5
		}
	}
	return 2
}

func (r *Report) apply(x *transaction) (*Job, error) {
	return x.update(r.Job, func(u *jobUpdate) error {
		if err := u.job.Fence(r.Chain, r.Attempt); err != nil {
			return err
		}
		run, err := u.run()
		if err != nil {
			return err
		}
		u.job.brief = u.job.brief || r.Brief
		for _, text := range r.Events {
			e, err := chains.DecodeEvent(text)
			if err != nil {
				return err
			}
			if !comesOf(e, r.Chain) {
				return ErrMalformed
			}
			if err := u.add(text, e); err != nil {
				return err
			}
		}
		if u.job.Phase.AtWork() {
			if !u.job.Alive.IsZero() {
				u.job.stayAlive(u.time)
			}
			if run.Phase == chains.Done {
				u.job.release(phaseOf(run), u.time)
			} else {
				u.job.move(phaseOf(run), u.time)
			}
		}
		return nil
	})
}

// comesOf reports whether an event may come of the work of a lane.
func comesOf(e *chains.Event, lane int) bool {
	if lane == 0 {
		return e.Prepared != nil || e.Provisional != nil || e.Coefficients != nil || e.Stage != nil || e.Drawn != nil
	}
	return e.Evaluated != nil || e.Checkpoint != nil && e.Checkpoint.Chain == lane || e.Diverged != nil && e.Diverged.Chain == lane
}

// Decide adds an event that the leader computed: settings, a new beginning, or the end.
type Decide struct {
	Job     string `json:"job"`
	Extends int    `json:"extends"` // as the leader saw them
	Event   []byte `json:"event"`   // encoded chains.Event
	// DrawsSHA256 is the hash of the draws that are kept at the end, and Final
	// what they came to.
	DrawsSHA256 string `json:"draws_sha256,omitempty"`
	Final       *Final `json:"final,omitempty"`
}

func (d *Decide) format() uint64 {
	if e, err := chains.DecodeEvent(d.Event); err == nil && e.Restart != nil {
		return 5
	}
	return 2
}

func (d *Decide) apply(x *transaction) (*Job, error) {
	return x.update(d.Job, func(u *jobUpdate) error {
		j := u.job
		if j.Phase.Ended() || d.Extends != j.Extends {
			return ErrPhase
		}
		run, err := u.run()
		if err != nil {
			return err
		}
		e, err := chains.DecodeEvent(d.Event)
		if err != nil {
			return err
		}
		if e.Settings == nil && e.Restart == nil && e.Stop == nil {
			return ErrMalformed
		}
		sampled := run.Stopped != nil
		if err := u.add(d.Event, e); err != nil {
			return err
		}
		if s := e.Settings; s != nil {
			u.noteSettings(s)
		}
		if e.Restart != nil {
			u.note(NoteDiverged, "%s", run.Restarts[len(run.Restarts)-1].Text())
		}
		if run.Stopped != nil && !sampled {
			j.Reason, j.DrawsSHA256, j.Final = run.Stopped.Reason, d.DrawsSHA256, d.Final
		}
		if run.Phase == chains.Done {
			j.release(phaseOf(run), u.time)
		} else if j.Phase.AtWork() {
			j.move(phaseOf(run), u.time)
		}
		return nil
	})
}

// noteSettings adds a note of the settings of a window.
func (u *jobUpdate) noteSettings(s *chains.Settings) {
	if s.Step > 0 {
		u.note(NoteTuned, "window %d: step %.3g, %d probes, λ_min(Q) %.3g", s.Window+1, s.Step, s.Probes, s.Budget)
	} else {
		u.note(NoteTuned, "window %d begins", s.Window+1)
	}
}
