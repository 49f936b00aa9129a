package state

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// EncodeEvents returns events as commands hold them.
func EncodeEvents(events ...chains.Event) ([][]byte, error) {
	out := make([][]byte, len(events))
	for i := range events {
		var err error
		if out[i], err = events[i].Encode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addEvent appends an encoded event to a job's.
func addEvent(tx *bbolt.Tx, j *Job, e []byte) error {
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
			err = r.Apply(*e)
		}
		if err != nil {
			return n, fmt.Errorf("%w: event %d of %s: %v", ErrDamaged, n+1, id, err)
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
