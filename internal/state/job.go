package state

import (
	"crypto/subtle"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// Phase is where a job stands.
type Phase string

// The phases of a job.
const (
	Queued      Phase = "queued" // waits for workers
	Preparing   Phase = "preparing"
	Warmup      Phase = "warmup"
	Sampling    Phase = "sampling"
	Certifying  Phase = "certifying"
	Paused      Phase = "paused"
	Converged   Phase = "converged"
	Unconverged Phase = "unconverged"
	Cancelled   Phase = "cancelled"
	Failed      Phase = "failed"
)

// Ended reports whether nothing more happens to a job in this phase unless it
// is extended.
func (p Phase) Ended() bool {
	return p == Converged || p == Unconverged || p == Cancelled || p == Failed
}

// AtWork reports whether the time of a job in this phase counts.
func (p Phase) AtWork() bool {
	return p == Preparing || p == Warmup || p == Sampling || p == Certifying
}

// Job is the record of a job.
type Job struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	ClientID  string    `json:"client_id,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Spec      string    `json:"spec"`           // YAML, with every default
	Data      string    `json:"data,omitempty"` // address of the table
	Priority  int       `json:"priority,omitempty"`
	Chains    int       `json:"chains"`
	Keeps     int64     `json:"keeps,omitempty"` // draws at most, of all chains
	Phase     Phase     `json:"phase"`
	Message   string    `json:"message,omitempty"`
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Active is the time at work up to Since, where it is at work since then, as far as
	// is known at Alive (zero: it is not told); see Tick.
	Active time.Duration `json:"active"`
	Since  time.Time     `json:"since,omitzero"`
	Alive  time.Time     `json:"-"` // kept apart
	// What the first worker to read the data told, from which the run follows.
	Info           *dataset.Info `json:"info,omitempty"`
	Plan           *chains.Plan  `json:"plan,omitempty"`
	InstructionSet string        `json:"instruction_set,omitempty"`
	// Placements are those of the run's lanes: of the preparation (0) and of the chains;
	// of staged runs there may be more.
	Placements []Placement `json:"placements"`
	// Events counts those of the run, Extends the times that it was extended.
	Events      uint64        `json:"events"`
	Extends     int           `json:"extends,omitempty"`
	Reason      chains.Reason `json:"reason,omitempty"`
	Final       *Final        `json:"final,omitempty"`
	DrawsSHA256 string        `json:"draws_sha256,omitempty"`
	// Health is what is wrong with the job, nil for nothing; Alerted is when
	// somebody was last told of that. Notify says whom the job wants told.
	Health  *Health   `json:"health,omitempty"`
	Alerted time.Time `json:"alerted,omitzero"`
	Notify  *Notify   `json:"notify,omitempty"`
	// What people write on the job.
	Note string   `json:"note,omitempty"`
	Tags []string `json:"tags,omitempty"` // in order
	// Version is the index of the last command that changed the job.
	Version uint64 `json:"version"`

	brief bool // Events and Version are kept apart from the record, until the job ends
}

// Final is what a run came to, kept with the job so that a list of jobs does
// not have to replay them.
type Final struct {
	Draws int     `json:"draws"` // of each chain
	RHat  float64 `json:"rhat"`  // 0 if there is none
	ESS   float64 `json:"ess"`
	Error float64 `json:"error,omitempty"` // as chains.Convergence has it, 0 if there is none
}

// Placement says which worker drives a chain, with whom.
type Placement struct {
	Attempt int64    `json:"attempt"`
	Worker  string   `json:"worker,omitempty"` // none if empty
	Group   []string `json:"group,omitempty"`  // further workers that share its products
	Secret  string   `json:"secret,omitempty"` // of the attempt, which its driver alone is told
}

// NamespaceName returns the namespace of a job.
func (j *Job) NamespaceName() string { return orDefault(j.Namespace) }

// restAfter is how long nobody may tell that a job is at work until it counts as at
// rest, from the last time on that somebody did.
const restAfter = 15 * time.Second

// Elapsed returns the time that the job has been at work at t. While nobody drives it,
// or nobody is there to tell, it is at rest.
func (j *Job) Elapsed(t time.Time) time.Duration {
	if j.Since.IsZero() || t.Before(j.Since) {
		return j.Active
	}
	if last := j.lastAlive(); !j.Alive.IsZero() && t.Sub(last) > restAfter {
		t = last
	}
	return j.Active + t.Sub(j.Since)
}

func (j *Job) lastAlive() time.Time {
	if j.Alive.After(j.Since) {
		return j.Alive
	}
	return j.Since
}

// stayAlive notes that the job is at work at t, and reports whether it was at rest
// before: then its record has changed.
func (j *Job) stayAlive(t time.Time) (rested bool) {
	if !j.Phase.AtWork() || t.Before(j.lastAlive()) {
		return false
	}
	if !j.Alive.IsZero() && t.Sub(j.lastAlive()) > restAfter {
		j.Active, j.Since, rested = j.Elapsed(t), t, true
	}
	j.Alive = t
	return rested
}

// move changes the phase, and counts the time at work.
func (j *Job) move(to Phase, t time.Time) {
	if j.Phase.AtWork() && !to.AtWork() {
		j.Active, j.Since = j.Elapsed(t), time.Time{}
	}
	if !j.Phase.AtWork() && to.AtWork() {
		j.Since = t
		if j.Started.IsZero() {
			j.Started = t
		}
	}
	j.Ended = time.Time{}
	if to.Ended() {
		j.Ended = t
	}
	if to.Ended() || to == Paused { // nothing is expected of it
		j.Health = nil
	}
	j.Phase = to
}

// place changes a placement; another driver is another attempt.
func (j *Job) place(chain int, worker string, group []string) {
	p := &j.Placements[chain]
	if p.Worker != worker || worker == "" {
		p.Attempt++
		p.Secret = ""
	}
	p.Worker, p.Group = worker, slices.Clone(group)
}

// release moves a job to a phase in which nobody drives it.
func (j *Job) release(to Phase, t time.Time) {
	j.move(to, t)
	for c := range j.Placements {
		j.place(c, "", nil)
	}
}

// Fence returns an error if the driver of an attempt may not speak for a chain any more.
func (j *Job) Fence(chain int, attempt int64) error {
	if chain < 0 || chain >= len(j.Placements) {
		return ErrMalformed
	}
	if p := &j.Placements[chain]; p.Worker == "" || p.Attempt != attempt || j.Phase.Ended() {
		return ErrFenced
	}
	return nil
}

// Knows returns an error if a driver may not speak for a chain under an attempt, or does
// not know the attempt's secret: then it is another worker than the one that was told
// to drive.
func (j *Job) Knows(chain int, attempt int64, secret string) error {
	if err := j.Fence(chain, attempt); err != nil {
		return err
	}
	if want := j.Placements[chain].Secret; subtle.ConstantTimeCompare([]byte(want), []byte(secret)) == 0 && want != "" {
		return ErrFenced
	}
	return nil
}

// Drives reports whether a secret is that of a driver of a lane of the job. One that was placed
// without a secret has none to show.
func (j *Job) Drives(secret string) bool {
	return slices.ContainsFunc(j.Placements, func(p Placement) bool {
		return p.Worker != "" && subtle.ConstantTimeCompare([]byte(p.Secret), []byte(secret)) == 1
	})
}

// Placed reports whether any chain has a driver.
func (j *Job) Placed() bool {
	return slices.ContainsFunc(j.Placements, func(p Placement) bool { return p.Worker != "" })
}

// phaseOf returns the phase of a job at work on a run.
func phaseOf(r *chains.Run) Phase {
	switch r.Phase {
	case chains.Warmup:
		return Warmup
	case chains.Sampling, chains.Concluding:
		return Sampling
	case chains.Certifying:
		return Certifying
	case chains.Done:
		switch r.Stopped.Reason {
		case chains.Converged:
			return Converged
		case chains.Cancelled:
			return Cancelled
		}
		return Unconverged
	}
	return Preparing
}
