package state

import (
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Follower keeps up with a job and its run. It is not safe for concurrent use.
type Follower struct {
	// Machine, if set, spares the follower from applying the events that it has
	// applied. Without one the run is rebuilt.
	Machine *Machine

	Job *Job
	Run *chains.Run // nil until the data have been read
	// Convergence is what Run's draws say, and Due the end that they call for,
	// if any.
	Convergence chains.Convergence
	Due         *chains.Event

	judge chains.Judge
	db    *bbolt.DB // that has the events of Run
	seen  uint64    // how many those are
}

// Update reads what is new of a job. A follower follows one job.
func (f *Follower) Update(tx *bbolt.Tx, id string) error {
	j, err := GetJob(tx, id)
	if err != nil {
		return err
	}
	if f.Job != nil && f.Job.Extends != j.Extends {
		f.judge, f.Due = chains.Judge{}, nil
	}
	if f.db != tx.DB() { // the first look, or the state was restored from a backup
		f.db, f.Run, f.seen, f.judge, f.Due = tx.DB(), nil, 0, chains.Judge{}, nil
	}
	f.Job = j
	if j.Plan == nil {
		return nil
	}
	if f.Run == nil {
		f.Run = chains.New(*j.Plan)
	}
	if err := f.catchUp(tx); err != nil {
		return err
	}
	if f.Due != nil && !f.Due.Certificate && f.Run.Stopped != nil {
		f.Due = nil // it has come; that of the certificate may follow
	}
	if f.Due == nil || f.Due.Restart != nil { // which may have come
		f.Due = f.judge.Decide(f.Run, 0)
	}
	f.Convergence = f.judge.Last
	return nil
}

// catchUp brings the run up to the job's events.
func (f *Follower) catchUp(tx *bbolt.Tx) (err error) {
	if f.seen == f.Job.Events {
		return nil
	}
	if f.Machine != nil {
		if r := f.Machine.Snapshot(tx, f.Job); r != nil {
			f.Run, f.seen = r, f.Job.Events
			return nil
		}
	}
	f.seen, err = replay(tx, f.Job.ID, f.seen, f.Run)
	return err
}
