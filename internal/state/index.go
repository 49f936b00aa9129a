package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// Entry is what the index tells of a job: enough to search without reading its
// record, which holds the specification.
type Entry struct {
	ID        string
	Submitted time.Time
	Phase     Phase
	Name      string
	Namespace string
	Owner     string
	Tags      []string
}

// key orders entries by the time of submission, then by id.
func (e *Entry) key() []byte {
	return append(numberKey(uint64(e.Submitted.UnixNano())), e.ID...)
}

// value holds the fields that are not in the key, each after its length: four, then the tags.
func (e *Entry) value() []byte {
	var out []byte
	for _, s := range append([]string{string(e.Phase), e.Name, e.Namespace, e.Owner}, e.Tags...) {
		out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	return out
}

func readEntry(key, value []byte) (e Entry, err error) {
	if len(key) < 8 {
		return e, fmt.Errorf("the index of jobs has a key of %d bytes", len(key))
	}
	e.Submitted, e.ID = time.Unix(0, int64(binary.BigEndian.Uint64(key))).UTC(), string(key[8:])
	var fields []string
	for len(fields) < 4 || len(value) > 0 {
		n, size := binary.Uvarint(value)
		if size <= 0 || n > uint64(len(value)-size) {
			return e, fmt.Errorf("the index of jobs is damaged at %s", e.ID)
		}
		fields, value = append(fields, string(value[size:size+int(n)])), value[size+int(n):]
	}
	e.Phase, e.Name, e.Namespace, e.Owner, e.Tags = Phase(fields[0]), fields[1], fields[2], fields[3], fields[4:]
	return e, nil
}

func (j *Job) entry() *Entry {
	return &Entry{ID: j.ID, Submitted: j.Submitted, Phase: j.Phase, Name: j.Name, Namespace: j.Namespace, Owner: j.Owner, Tags: j.Tags}
}

// putEntry brings the index up to date with a job.
func putEntry(tx *bbolt.Tx, j *Job) error {
	b, e := tx.Bucket(orderBucket), j.entry()
	key, value := e.key(), e.value()
	if bytes.Equal(b.Get(key), value) { // as after every checkpoint
		return nil
	}
	return b.Put(key, value)
}

func removeEntry(tx *bbolt.Tx, j *Job) error { return tx.Bucket(orderBucket).Delete(j.entry().key()) }

// initIndex makes the index of a state that has none: it is a function of the
// jobs.
func initIndex(tx *bbolt.Tx) error {
	if tx.Bucket(orderBucket) != nil {
		return nil
	}
	if _, err := tx.CreateBucket(orderBucket); err != nil {
		return err
	}
	var failed error
	err := Jobs(tx, func(j *Job) bool {
		failed = putEntry(tx, j)
		return failed == nil
	})
	if err != nil {
		return err
	}
	return failed
}

// Newest calls f with the entries of the index, newest first, from the one at
// the key on (the newest of all if it is empty), until f returns false or an
// entry is from before since. It returns the key of the entry at which f
// stopped, where a later call goes on; nil if there are no more.
func Newest(tx *bbolt.Tx, from []byte, since time.Time, f func(Entry) bool) (next []byte, err error) {
	c := tx.Bucket(orderBucket).Cursor()
	k, v := c.Last()
	if len(from) > 0 {
		if k, v = c.Seek(from); k == nil {
			k, v = c.Last()
		} else if !bytes.Equal(k, from) {
			k, v = c.Prev() // it was deleted meanwhile
		}
	}
	for ; k != nil; k, v = c.Prev() {
		e, err := readEntry(k, v)
		if err != nil {
			return nil, err
		}
		if e.Submitted.Before(since) {
			return nil, nil
		}
		if !f(e) {
			return bytes.Clone(k), nil
		}
	}
	return nil, nil
}

// CountPhases adds the numbers of jobs by phase to counts.
func CountPhases(tx *bbolt.Tx, counts map[Phase]int) error {
	_, err := Newest(tx, nil, time.Time{}, func(e Entry) bool { counts[e.Phase]++; return true })
	return err
}
