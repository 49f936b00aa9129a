package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// The buckets.
var (
	jobsBucket    = []byte("jobs")    // id → Job
	clientsBucket = []byte("clients") // client id → id
	eventsBucket  = []byte("events")  // id → bucket of number → encoded chains.Event
	activeBucket  = []byte("active")  // id of a job that has not ended → 1, and when it was last known to be at work
	blobsBucket   = []byte("blobs")   // address → Blob
	noticesBucket = []byte("notices") // index of the command → Notice
	notesBucket   = []byte("notes")   // id → bucket of number → Note
	orderBucket   = []byte("order")   // time of submission and id → what is searched for

	tokensBucket     = []byte("tokens")     // id → Token
	namespacesBucket = []byte("namespaces") // name → Quota
	usageBucket      = []byte("usage")      // name of a namespace → Usage
	secretsBucket    = []byte("secrets")    // nodeKey → NodeKey

	// buckets are all but the indexes, which initIndex and initUses make.
	buckets = [][]byte{jobsBucket, clientsBucket, eventsBucket, activeBucket, blobsBucket, noticesBucket, notesBucket,
		tokensBucket, namespacesBucket, usageBucket, secretsBucket}
)

// getJSON reads a value, or returns false.
func getJSON(tx *bbolt.Tx, bucket []byte, key string, v any) (bool, error) {
	text := tx.Bucket(bucket).Get([]byte(key))
	if text == nil {
		return false, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("%s/%s: %w", bucket, key, err)
	}
	return true, nil
}

// putJSON writes a value.
func putJSON(tx *bbolt.Tx, bucket []byte, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put([]byte(key), text)
}

// deleteKey deletes a key; it need not be there.
func deleteKey(tx *bbolt.Tx, bucket []byte, key string) error {
	return tx.Bucket(bucket).Delete([]byte(key))
}

// GetJob returns a job, or ErrUnknownJob.
func GetJob(tx *bbolt.Tx, id string) (*Job, error) {
	var j Job
	ok, err := getJSON(tx, jobsBucket, id, &j)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrUnknownJob
	}
	j.Alive = aliveAt(tx.Bucket(activeBucket).Get([]byte(id)))
	return &j, nil
}

// The value of a job that has not ended: a byte, and then the time Alive, if there is
// one. It is apart from the record because it changes often.
func aliveValue(t time.Time) []byte {
	out := []byte{1}
	if !t.IsZero() {
		out = binary.BigEndian.AppendUint64(out, uint64(t.UnixNano()))
	}
	return out
}

func aliveAt(value []byte) time.Time {
	if len(value) != 9 {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(value[1:]))).UTC()
}

func putAlive(tx *bbolt.Tx, j *Job) error {
	return tx.Bucket(activeBucket).Put([]byte(j.ID), aliveValue(j.Alive))
}

// putJob writes a job, and whether it has ended, which its namespace's quota
// counts.
func putJob(tx *bbolt.Tx, j *Job) error {
	var err error
	value := tx.Bucket(activeBucket).Get([]byte(j.ID))
	was := value != nil
	one := Usage{Jobs: 1, Chains: int64(j.Chains)}
	switch {
	case was && j.Phase.Ended():
		err = errors.Join(deleteKey(tx, activeBucket, j.ID), addUsage(tx, j.NamespaceName(), Usage{Jobs: -one.Jobs, Chains: -one.Chains}))
	case !was && !j.Phase.Ended():
		err = errors.Join(putAlive(tx, j), addUsage(tx, j.NamespaceName(), one))
	case was && !aliveAt(value).Equal(j.Alive):
		err = putAlive(tx, j)
	}
	if err != nil {
		return err
	}
	if err := putEntry(tx, j); err != nil {
		return err
	}
	return putJSON(tx, jobsBucket, j.ID, j)
}

// Active returns the ids of the jobs that have not ended, in order. It takes no
// longer for those that have.
func Active(tx *bbolt.Tx) []string {
	var out []string
	c := tx.Bucket(activeBucket).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		out = append(out, string(k))
	}
	return out
}

// CountJobs returns the number of jobs.
func CountJobs(tx *bbolt.Tx) (n int) {
	c := tx.Bucket(jobsBucket).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		n++
	}
	return n
}

// Jobs calls f with every job, in the order of their ids, until it returns
// false.
func Jobs(tx *bbolt.Tx, f func(*Job) bool) error { return each(tx, jobsBucket, f) }

func each[T any](tx *bbolt.Tx, bucket []byte, f func(*T) bool) error {
	c := tx.Bucket(bucket).Cursor()
	for k, text := c.First(); k != nil; k, text = c.Next() {
		v := new(T)
		if err := json.Unmarshal(text, v); err != nil {
			return fmt.Errorf("%s/%s: %w", bucket, k, err)
		}
		if !f(v) {
			return nil
		}
	}
	return nil
}

// numberKey returns a number as a key: keys are in the order of the numbers.
func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
