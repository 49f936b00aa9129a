package state

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// Submit makes a job. A client id that made one before returns that one.
type Submit struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	ClientID  string `json:"client_id,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Spec      string `json:"spec"`
	Data      string `json:"data,omitempty"`
	Priority  int    `json:"priority,omitempty"`
	Chains    int    `json:"chains"`

	Notify *Notify `json:"notify,omitempty"`
	Keeps  int64   `json:"keeps,omitempty"` // draws at most, of all chains
}

// Bounds of a job.
const (
	maxChains = 4096
	maxKeeps  = 1 << 48 // draws
)

func (s *Submit) apply(x *transaction) (*Job, error) {
	if s.ID == "" || s.Chains < 1 || s.Chains > maxChains || s.Keeps < 0 || s.Keeps > maxKeeps {
		return nil, ErrMalformed
	}
	if j, err := s.earlier(x.Tx); j != nil || err != nil {
		return j, err
	}
	if _, err := GetJob(x.Tx, s.ID); !errors.Is(err, ErrUnknownJob) {
		return nil, fmt.Errorf("%w: the id %s is taken", ErrMalformed, s.ID)
	}
	j := &Job{ID: s.ID, Name: s.Name, ClientID: s.ClientID, Owner: s.Owner, Namespace: s.Namespace, Spec: s.Spec, Data: s.Data,
		Priority: s.Priority, Chains: s.Chains, Keeps: s.Keeps, Phase: Queued, Submitted: x.time, Placements: make([]Placement, s.Chains+1), Version: x.index, Notify: s.Notify}
	if s.ClientID != "" {
		if err := putJSON(x.Tx, clientsBucket, clientKey(j.Namespace, s.ClientID), j.ID); err != nil {
			return nil, err
		}
	}
	if err := addUsage(x.Tx, j.NamespaceName(), Usage{Draws: j.Keeps}); err != nil {
		return nil, err
	}
	note := Note{Time: x.time, Kind: NoteSubmitted, Text: fmt.Sprintf("submitted with %d chains", j.Chains)}
	if err := addNotes(x.Tx, j.ID, []Note{note}); err != nil {
		return nil, err
	}
	if err := addUse(x.Tx, j); err != nil {
		return nil, err
	}
	return j, putJob(x.Tx, j)
}

// earlier returns the job that the client id made before, nil if there is none.
func (s *Submit) earlier(tx *bbolt.Tx) (*Job, error) {
	if s.ClientID == "" {
		return nil, nil
	}
	var id string
	ok, err := getJSON(tx, clientsBucket, clientKey(s.Namespace, s.ClientID), &id)
	if err != nil || !ok {
		return nil, err
	}
	j, err := GetJob(tx, id)
	if err == nil && (j.Spec != s.Spec || j.Data != s.Data) {
		return nil, conflictf("the client id %q made job %s, which is another", s.ClientID, id)
	}
	return j, err
}

// clientKey is that of a client's id, which is the client's own in its namespace.
func clientKey(namespace, id string) string {
	if n := orDefault(namespace); n != DefaultNamespace || id[0] == 0 {
		return "\x00" + n + "\x00" + id
	}
	return id
}
