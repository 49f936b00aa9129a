package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Note is something that happened to a job.
type Note struct {
	Time time.Time `json:"time"`
	Kind NoteKind  `json:"kind"`
	Text string    `json:"text"`
}

// NoteKind is what kind of thing happened.
type NoteKind string

// The kinds of notes.
const (
	NoteSubmitted NoteKind = "submitted"
	NoteState     NoteKind = "state"
	NotePlaced    NoteKind = "placed"
	NoteTuned     NoteKind = "tuned"
	NoteExtended  NoteKind = "extended"
	NoteHealth    NoteKind = "health"
	NoteWrong     NoteKind = "wrong" // numbers of a worker are wrong, or may be
)

// maxNotes bounds the notes of a job: the oldest are dropped.
const maxNotes = 300

// noteChange adds notes of what became of the job's health and phase.
func (u *jobUpdate) noteChange(before *Job) {
	j := u.job
	switch h := j.Health; {
	case h == nil && before.Health != nil:
		u.note(NoteHealth, "well again")
	case h != nil && (before.Health == nil || before.Health.Status != h.Status):
		u.note(NoteHealth, "%s: %s", h.Status, h.Message)
	}
	if j.Phase == before.Phase {
		return
	}
	text := string(j.Phase)
	switch {
	case j.Phase == Failed && j.Message != "":
		text += ": " + j.Message[:min(len(j.Message), 500)]
	case j.Phase == Unconverged && j.Reason != "":
		text += ": " + string(j.Reason)
	}
	u.note(NoteState, "%s", strings.ToValidUTF8(text, ""))
}

// Remark adds a note to those of a job.
type Remark struct {
	Job  string   `json:"job"`
	Kind NoteKind `json:"kind"`
	Text string   `json:"text"`
	// Shown says that it is the job's message, too, unless that says why the job failed.
	Shown bool `json:"shown,omitempty"`
}

func (r *Remark) format() uint64 {
	if r.Shown {
		return 5
	}
	return 4
}

func (r *Remark) apply(x *transaction) (*Job, error) {
	return x.update(r.Job, func(u *jobUpdate) error {
		text := strings.ToValidUTF8(r.Text[:min(len(r.Text), 1000)], "")
		u.note(r.Kind, "%s", text)
		if r.Shown && u.job.Phase != Failed {
			u.job.Message = text
		}
		return nil
	})
}

// addNotes keeps notes of a job.
func addNotes(tx *bbolt.Tx, job string, notes []Note) error {
	if len(notes) == 0 {
		return nil
	}
	b, err := tx.Bucket(notesBucket).CreateBucketIfNotExists([]byte(job))
	if err != nil {
		return err
	}
	for _, n := range notes {
		at, err := b.NextSequence()
		if err != nil {
			return err
		}
		text, err := json.Marshal(n)
		if err != nil {
			return err
		}
		if err := b.Put(numberKey(at), text); err != nil {
			return err
		}
		if at > maxNotes {
			if err := b.Delete(numberKey(at - maxNotes)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Notes returns what happened to a job, oldest first: the latest few hundred.
func Notes(tx *bbolt.Tx, job string) ([]Note, error) {
	all := tx.Bucket(notesBucket)
	if all == nil { // of a node that has applied nothing yet
		return nil, nil
	}
	b := all.Bucket([]byte(job))
	if b == nil {
		return nil, nil
	}
	var out []Note
	err := b.ForEach(func(_, text []byte) error {
		var n Note
		if err := json.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("a note of job %s: %w", job, err)
		}
		out = append(out, n)
		return nil
	})
	return out, err
}

// removeNotes forgets the notes of a job.
func removeNotes(tx *bbolt.Tx, job string) error {
	err := tx.Bucket(notesBucket).DeleteBucket([]byte(job))
	if errors.Is(err, berrors.ErrBucketNotFound) {
		return nil
	}
	return err
}
