package state

import (
	"errors"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Action is what a user, or the scheduler, does to a job.
type Action string

// The actions.
const (
	Pause   Action = "pause"
	Resume  Action = "resume"
	Preempt Action = "preempt" // back to the queue
	Cancel  Action = "cancel"  // of a job that has no run yet
	Delete  Action = "delete"
)

// Act does an action.
type Act struct {
	Job    string `json:"job"`
	Action Action `json:"action"`
}

func (a *Act) apply(x *transaction) (*Job, error) {
	if a.Action == Delete {
		return x.deleteJob(a.Job)
	}
	return x.update(a.Job, func(u *jobUpdate) error {
		j := u.job
		switch {
		case a.Action == Pause && !j.Phase.Ended() && j.Phase != Paused:
			j.move(Paused, u.time)
		case a.Action == Resume && (j.Phase == Paused || j.Phase == Failed), a.Action == Preempt && j.Phase.AtWork():
			j.release(Queued, u.time) // whoever still drives it is fenced off
			j.Message = ""
		case a.Action == Cancel && !j.Phase.Ended() && j.Plan == nil:
			j.release(Cancelled, u.time)
			j.Reason = chains.Cancelled
		default:
			return ErrPhase
		}
		return nil
	})
}

// deleteJob forgets a job that has ended.
func (x *transaction) deleteJob(id string) (*Job, error) {
	j, err := GetJob(x.Tx, id)
	if err != nil {
		return nil, err
	}
	if !j.Phase.Ended() {
		return nil, ErrPhase
	}
	x.machine.forget(id)
	if j.ClientID != "" {
		if err := deleteKey(x.Tx, clientsBucket, clientKey(j.Namespace, j.ClientID)); err != nil {
			return nil, err
		}
	}
	if err := addUsage(x.Tx, j.NamespaceName(), Usage{Draws: -j.Keeps}); err != nil {
		return nil, err
	}
	return j, errors.Join(removeEvents(x.Tx, id), removeNotes(x.Tx, id), removeEntry(x.Tx, j), removeUse(x.Tx, j), deleteKey(x.Tx, jobsBucket, id))
}

// Extend lets a job draw more, be certified, or go on to another goal.
type Extend struct {
	Job         string       `json:"job"`
	Draws       int          `json:"draws"`
	Certificate *chains.Plan `json:"certificate,omitempty"` // nil for none
	// Goal is what the job is to come to, nil for what it was, and Spec the specification that
	// says so. The time that the job has been at work counts.
	Goal *chains.Goal `json:"goal,omitempty"`
	Spec string       `json:"spec,omitempty"`
}

func (e *Extend) format() uint64 {
	if e.Goal != nil {
		return 3
	}
	return 0
}

func (e *Extend) apply(x *transaction) (*Job, error) {
	return x.update(e.Job, func(u *jobUpdate) error {
		j := u.job
		switch {
		case (e.Goal == nil) != (e.Spec == ""):
			return ErrMalformed
		case j.Phase == Failed:
			return ErrPhase
		}
		before := j.Keeps
		if e.Goal != nil {
			j.Spec, j.Keeps = e.Spec, int64(e.Goal.MaxDraws)*int64(j.Chains)
			if j.Plan == nil { // the plan will be that of the specification
				return addUsage(u.Tx, j.NamespaceName(), Usage{Draws: j.Keeps - before})
			}
		}
		run, err := u.run()
		if err != nil {
			return err
		}
		more := &chains.Event{Extend: &chains.Extend{Draws: e.Draws, Certificate: e.Certificate, Goal: e.Goal}}
		text, err := more.Encode()
		if err == nil {
			err = u.add(text, more)
		}
		if err != nil {
			return err
		}
		j.Keeps += int64(e.Draws) * int64(j.Chains)
		if err := addUsage(u.Tx, j.NamespaceName(), Usage{Draws: j.Keeps - before}); err != nil {
			return err
		}
		j.Extends++
		if g := e.Goal; g != nil {
			u.note(NoteExtended, "to R-hat %g and ESS %g, %d draws of each chain at least and %d at most, %s", g.RHat, g.ESS, g.Draws, g.MaxDraws, orNoLimit(g.MaxTime))
		}
		if e.Draws > 0 {
			u.note(NoteExtended, "%d more draws of each chain", e.Draws)
		}
		if e.Certificate != nil {
			u.note(NoteExtended, "to be certified")
		}
		if run.Stopped == nil {
			j.Reason, j.DrawsSHA256, j.Final = "", "", nil
		}
		if j.Phase.Ended() {
			j.move(Queued, u.time)
			if e.Goal == nil {
				j.Active = 0 // max_time bounds what it is asked for now
			}
		}
		return nil
	})
}

// orNoLimit returns a time in words.
func orNoLimit(t time.Duration) string {
	if t == 0 {
		return "without a limit of time"
	}
	return t.String() + " at work at most"
}

// Fail ends a job that cannot go on.
type Fail struct {
	Job     string `json:"job"`
	Chain   int    `json:"chain"`
	Attempt int64  `json:"attempt"` // of the driver that says so; 0 for the leader
	Message string `json:"message"`
}

func (f *Fail) apply(x *transaction) (*Job, error) {
	return x.update(f.Job, func(u *jobUpdate) error {
		j := u.job
		if f.Attempt != 0 {
			if err := j.Fence(f.Chain, f.Attempt); err != nil {
				return err
			}
		}
		if j.Phase.Ended() {
			return ErrPhase
		}
		j.release(Failed, u.time)
		j.Message = f.Message
		return nil
	})
}
