package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Event is an encoded event of a run (chains.Event), kept as it was received.
type Event []byte

// UnmarshalJSON reads base64, or an event in JSON as logs of format 1 hold it.
func (e *Event) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("{")) {
		*e = bytes.Clone(text)
		return nil
	}
	return json.Unmarshal(text, (*[]byte)(e))
}

// EncodeEvents returns events as commands hold them.
func EncodeEvents(events ...chains.Event) ([]Event, error) {
	out := make([]Event, len(events))
	for i, e := range events {
		var err error
		if out[i], err = e.Encode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addEvent appends an event to a job's.
func addEvent(tx *bbolt.Tx, j *Job, e Event) error {
	b, err := tx.Bucket(eventsBucket).CreateBucketIfNotExists([]byte(j.ID))
	if err != nil {
		return err
	}
	b.FillPercent = 0.9 // keys only grow
	j.Events++
	return b.Put(numberKey(j.Events), e)
}

// replay applies a job's events after the first n to r, and returns how many it
// has then.
func replay(tx *bbolt.Tx, id string, n uint64, r *chains.Run) (uint64, error) {
	b := tx.Bucket(eventsBucket).Bucket([]byte(id))
	if b == nil {
		return n, nil
	}
	c := b.Cursor()
	for k, text := c.Seek(numberKey(n + 1)); k != nil; k, text = c.Next() {
		e, err := chains.DecodeEvent(text)
		if err == nil {
			err = r.Apply(e)
		}
		if err != nil {
			return n, fmt.Errorf("event %d of job %s: %w", n+1, id, err)
		}
		n++
	}
	return n, nil
}

// removeEvents deletes a job's events.
func removeEvents(tx *bbolt.Tx, id string) error {
	err := tx.Bucket(eventsBucket).DeleteBucket([]byte(id))
	if errors.Is(err, berrors.ErrBucketNotFound) {
		return nil
	}
	return err
}
