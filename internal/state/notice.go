package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// Status says how a job at work is doing.
type Status string

// The statuses. A job that is well has no Health.
const (
	Stalled   Status = "stalled"   // nothing comes from it
	Diverging Status = "diverging" // what comes from it will not do
)

// Health is what the leader has found wrong with a job.
type Health struct {
	Status  Status    `json:"status"`
	Cause   string    `json:"cause"`   // what was found, for comparison
	Message string    `json:"message"` // the same in a sentence
	Since   time.Time `json:"since"`
}

// Diagnose notes what a health check has found wrong with a job; nil for nothing.
type Diagnose struct {
	Job    string  `json:"job"`
	Health *Health `json:"health,omitempty"`
}

// Notify says whom a job wants told of what happens to it.
type Notify struct {
	Webhooks []string `json:"webhooks"` // URLs
	On       []Kind   `json:"on,omitempty"`
}

// Kind is what happened to a job.
type Kind string

// The kinds of notices: the ends of a job, and what may be wrong with it.
const (
	OnConverged   Kind = "converged"
	OnUnconverged Kind = "unconverged"
	OnCancelled   Kind = "cancelled"
	OnFailed      Kind = "failed"
	OnStalled     Kind = "stalled"
	OnDiverging   Kind = "diverging"
	OnRecovered   Kind = "recovered" // neither stalled nor diverging any more
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{OnConverged, OnUnconverged, OnCancelled, OnFailed, OnStalled, OnDiverging, OnRecovered}
}

// Notice is a thing that happened and that somebody is to be told of. It is kept
// until the leader says that everybody was.
type Notice struct {
	Index     uint64    `json:"index"` // of the command that made it: its key
	Kind      Kind      `json:"kind"`
	Time      time.Time `json:"time"`
	Job       string    `json:"job"`
	Name      string    `json:"name"`
	Namespace string    `json:"namespace,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	Phase     Phase     `json:"phase"`
	Message   string    `json:"message,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Final     *Final    `json:"final,omitempty"`
	Notify    *Notify   `json:"notify,omitempty"`
	Done      []string  `json:"done,omitempty"` // names of those that were told
}

// ID returns the notice's name, which no other has: who is told twice can tell
// by it.
func (n *Notice) ID() string { return fmt.Sprintf("%s-%d", n.Job, n.Index) }

// Sent notes who was told of a notice. A notice of which everybody was told, or
// that is given up, is closed. One that is no longer there is no error.
type Sent struct {
	Notice uint64   `json:"notice"`
	To     []string `json:"to,omitempty"`
	Closed bool     `json:"closed,omitempty"`
}

// maxNotices bounds those that are kept: the oldest make room.
const maxNotices = 1000

// alertEvery is the least time between two notices that a job does badly.
const alertEvery = 10 * time.Minute

func (d *Diagnose) apply(x *transaction) (*Job, error) {
	return x.update(d.Job, func(u *jobUpdate) error {
		if u.job.Phase.Ended() || u.job.Phase == Paused {
			return ErrPhase
		}
		if h := d.Health; h != nil && (h.Status != Stalled && h.Status != Diverging || h.Message == "") {
			return ErrMalformed
		}
		u.job.Health = d.Health
		return nil
	})
}

// noticeOf returns what happened to a job that is worth a notice.
func noticeOf(before, j *Job, t time.Time) Kind {
	if j.Phase != before.Phase {
		switch j.Phase {
		case Converged:
			return OnConverged
		case Unconverged:
			return OnUnconverged
		case Cancelled:
			return OnCancelled
		case Failed:
			return OnFailed
		}
	}
	was, is := statusOf(before.Health), statusOf(j.Health)
	switch {
	case is != "" && is != was:
		if t.Sub(j.Alerted) < alertEvery {
			return ""
		}
		j.Alerted = t
		if is == Diverging {
			return OnDiverging
		}
		return OnStalled
	case is == "" && was != "" && j.Phase.AtWork():
		return OnRecovered
	}
	return ""
}

func statusOf(h *Health) Status {
	if h == nil {
		return ""
	}
	return h.Status
}

// addNotice keeps a notice of what happened to a job.
func addNotice(tx *bbolt.Tx, index uint64, kind Kind, j *Job, t time.Time) error {
	n := &Notice{Index: index, Kind: kind, Time: t, Job: j.ID, Name: j.Name, Namespace: j.Namespace, Owner: j.Owner,
		Phase: j.Phase, Message: j.Message, Reason: string(j.Reason), Final: j.Final, Notify: j.Notify}
	if j.Health != nil {
		n.Message = j.Health.Message
	}
	b := tx.Bucket(noticesBucket)
	count := 0
	var oldest []byte
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if count++; oldest == nil {
			oldest = bytes.Clone(k)
		}
	}
	if count >= maxNotices {
		if err := b.Delete(oldest); err != nil {
			return err
		}
	}
	return putJSON(tx, noticesBucket, string(numberKey(index)), n)
}

// Notices returns those that are kept, oldest first.
func Notices(tx *bbolt.Tx) (out []*Notice, err error) {
	err = each(tx, noticesBucket, func(n *Notice) bool { out = append(out, n); return true })
	return out, err
}

func (s *Sent) apply(x *transaction) (*Job, error) {
	b, key := x.Bucket(noticesBucket), numberKey(s.Notice)
	text := b.Get(key)
	if text == nil {
		return nil, nil
	}
	if s.Closed {
		return nil, b.Delete(key)
	}
	var n Notice
	if err := json.Unmarshal(text, &n); err != nil {
		return nil, fmt.Errorf("notice %d: %w", s.Notice, err)
	}
	for _, to := range s.To {
		if !slices.Contains(n.Done, to) {
			n.Done = append(n.Done, to)
		}
	}
	return nil, putJSON(x.Tx, noticesBucket, string(key), &n)
}
