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

func (l *Loaded) apply(x *transaction) (*Job, error) {
	return x.update(l.Job, func(u *jobUpdate) error {
		j := u.job
		if l.Info == nil || l.Plan == nil || l.Plan.Chains != j.Chains || l.Plan.Checkpoint < 1 || len(l.Plan.Names) == 0 {
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
		return nil
	})
}

// Report adds events of a driver: the preparation, or checkpoints of a chain.
type Report struct {
	Job     string  `json:"job"`
	Chain   int     `json:"chain"`
	Attempt int64   `json:"attempt"`
	Events  []Event `json:"events"`
}

func (r *Report) format() uint64 { return 2 }

func (r *Report) apply(x *transaction) (*Job, error) {
	return x.update(r.Job, func(u *jobUpdate) error {
		if err := u.job.Fence(r.Chain, r.Attempt); err != nil {
			return err
		}
		if u.run() == nil {
			return ErrPhase
		}
		for _, text := range r.Events {
			e, err := chains.DecodeEvent(text)
			if err != nil {
				return err
			}
			if r.Chain == 0 && e.Prepared == nil || r.Chain > 0 && (e.Checkpoint == nil || e.Checkpoint.Chain != r.Chain) {
				return ErrMalformed
			}
			if err := u.add(text, e); err != nil {
				return err
			}
		}
		if u.job.Phase.AtWork() {
			u.job.move(phaseOf(u.run()), u.time)
		}
		return nil
	})
}

// Decide adds an event that the leader computed: settings, or the end.
type Decide struct {
	Job     string `json:"job"`
	Extends int    `json:"extends"` // as the leader saw them
	Event   Event  `json:"event"`
	// DrawsSHA256 is the hash of the draws that are kept at the end, and Final
	// what they came to.
	DrawsSHA256 string `json:"draws_sha256,omitempty"`
	Final       *Final `json:"final,omitempty"`
}

func (d *Decide) format() uint64 { return 2 }

func (d *Decide) apply(x *transaction) (*Job, error) {
	return x.update(d.Job, func(u *jobUpdate) error {
		j, run := u.job, u.run()
		if run == nil || j.Phase.Ended() || d.Extends != j.Extends {
			return ErrPhase
		}
		e, err := chains.DecodeEvent(d.Event)
		if err != nil {
			return err
		}
		if e.Settings == nil && e.Stop == nil {
			return ErrMalformed
		}
		if err := u.add(d.Event, e); err != nil {
			return err
		}
		switch s := e.Settings; {
		case s == nil:
			j.release(phaseOf(run), u.time)
			j.Reason, j.DrawsSHA256, j.Final = run.Stopped.Reason, d.DrawsSHA256, d.Final
			return nil
		case s.Step > 0:
			u.note(NoteTuned, "window %d: step %.3g, %d probes, λ_min(Q) %.3g", s.Window+1, s.Step, s.Probes, s.Budget)
		default:
			u.note(NoteTuned, "window %d begins", s.Window+1)
		}
		if j.Phase.AtWork() {
			j.move(phaseOf(run), u.time)
		}
		return nil
	})
}
