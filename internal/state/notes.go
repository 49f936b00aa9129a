package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
)

// maxNotes bounds the notes of a job: the oldest are dropped.
const maxNotes = 300

// notes returns what a command did to a job that was as before says.
func notes(before, j *Job, c *Command) []Note {
	var out []Note
	add := func(k NoteKind, format string, args ...any) {
		out = append(out, Note{Time: c.Time, Kind: k, Text: fmt.Sprintf(format, args...)})
	}
	if before == nil {
		add(NoteSubmitted, "submitted with %d chains", j.Chains)
		return out
	}
	if c.Place != nil {
		var where []string
		for _, m := range c.Place.Places {
			p := &j.Placements[m.Chain]
			who := fmt.Sprintf("chain %d", m.Chain)
			if m.Chain == 0 {
				who = "preparation"
			}
			switch {
			case p.Worker == "":
				where = append(where, who+" waits for a worker")
			case len(p.Group) > 0:
				where = append(where, fmt.Sprintf("%s on %s with %s", who, p.Worker, strings.Join(p.Group, ", ")))
			default:
				where = append(where, who+" on "+p.Worker)
			}
		}
		if len(where) > 8 {
			where = append(slices.Clone(where[:8]), fmt.Sprintf("and %d more", len(where)-8))
		}
		add(NotePlaced, "%s", strings.Join(where, "; "))
	}
	if c.Extend != nil {
		add(NoteExtended, "%d more draws of each chain", c.Extend.Draws)
	}
	if c.Decide != nil && c.Decide.Event.Settings != nil {
		s := c.Decide.Event.Settings
		if s.Step > 0 {
			add(NoteTuned, "window %d: step %.3g, %d probes, λ_min(Q) %.3g", s.Window+1, s.Step, s.Probes, s.Budget)
		} else {
			add(NoteTuned, "window %d begins", s.Window+1)
		}
	}
	switch h := j.Health; {
	case h == nil && before.Health != nil:
		add(NoteHealth, "well again")
	case h != nil && (before.Health == nil || before.Health.Status != h.Status):
		add(NoteHealth, "%s: %s", h.Status, h.Message)
	}
	if j.Phase != before.Phase {
		text := string(j.Phase)
		switch {
		case j.Phase == Failed && j.Message != "":
			text += ": " + j.Message[:min(len(j.Message), 500)]
		case j.Phase == Unconverged && j.Reason != "":
			text += ": " + string(j.Reason)
		}
		add(NoteState, "%s", strings.ToValidUTF8(text, ""))
	}
	return out
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
		if err := b.Put(number(at), text); err != nil {
			return err
		}
		if at > maxNotes {
			if err := b.Delete(number(at - maxNotes)); err != nil {
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
