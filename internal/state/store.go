package state

import (
	"bytes"
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
	activeBucket  = []byte("active")  // id of a job that has not ended → what changes often (liveValue)
	blobsBucket   = []byte("blobs")   // address → Blob
	noticesBucket = []byte("notices") // index of the command → Notice
	notesBucket   = []byte("notes")   // id → bucket of number → Note
	orderBucket   = []byte("order")   // time of submission and id → what is searched for

	tokensBucket     = []byte("tokens")     // id → Token
	namespacesBucket = []byte("namespaces") // name → Quota
	usageBucket      = []byte("usage")      // name of a namespace → Usage
	secretsBucket    = []byte("secrets")    // nodeKey → NodeKey

	latentsBucket    = []byte("latents")     // address → Latent
	latentUsesBucket = []byte("latent_uses") // job and place in its run → address
	latentIdleBucket = []byte("latent_idle") // what no chain uses, by the time since when
	latentLogBucket  = []byte("latent_log")  // number → address that was recorded or forgotten

	// buckets are all but the indexes, which initIndex and initUses make.
	buckets = [][]byte{jobsBucket, clientsBucket, eventsBucket, activeBucket, blobsBucket, noticesBucket, notesBucket,
		tokensBucket, namespacesBucket, usageBucket, secretsBucket,
		latentsBucket, latentUsesBucket, latentIdleBucket, latentLogBucket}
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
	j.live(tx)
	return &j, nil
}

// The value of a job that has not ended is apart from its record because it changes often: a byte, and
// then the time Alive, if there is one. Of a brief job (Report.Brief) it has Events and Version, too, which
// the record does not tell then: after most checkpoints the record, with its specification, is
// what it was.
func (j *Job) liveValue() []byte {
	var at uint64
	if !j.Alive.IsZero() {
		at = uint64(j.Alive.UnixNano())
	}
	switch {
	case j.brief:
		out := binary.BigEndian.AppendUint64([]byte{2}, at)
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(out, j.Events), j.Version)
	case j.Alive.IsZero():
		return []byte{1}
	}
	return binary.BigEndian.AppendUint64([]byte{1}, at)
}

// live reads what is kept apart from the record.
func (j *Job) live(tx *bbolt.Tx) {
	value := tx.Bucket(activeBucket).Get([]byte(j.ID))
	if len(value) < 9 {
		return
	}
	if at := binary.BigEndian.Uint64(value[1:]); at != 0 {
		j.Alive = time.Unix(0, int64(at)).UTC()
	}
	if len(value) == 25 {
		j.brief, j.Events, j.Version = true, binary.BigEndian.Uint64(value[9:]), binary.BigEndian.Uint64(value[17:])
	}
}

func putLive(tx *bbolt.Tx, j *Job) error {
	return tx.Bucket(activeBucket).Put([]byte(j.ID), j.liveValue())
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
		err = errors.Join(putLive(tx, j), addUsage(tx, j.NamespaceName(), one))
	case was && !bytes.Equal(value, j.liveValue()):
		err = putLive(tx, j)
	}
	if err != nil {
		return err
	}
	if err := putEntry(tx, j); err != nil {
		return err
	}
	if !j.brief || j.Phase.Ended() {
		return putJSON(tx, jobsBucket, j.ID, j)
	}
	record := *j
	record.Events, record.Version = 0, 0
	text, err := json.Marshal(&record)
	if err != nil || bytes.Equal(text, tx.Bucket(jobsBucket).Get([]byte(j.ID))) {
		return err
	}
	return tx.Bucket(jobsBucket).Put([]byte(j.ID), text)
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
func Jobs(tx *bbolt.Tx, f func(*Job) bool) error {
	return each(tx, jobsBucket, func(j *Job) bool { j.live(tx); return f(j) })
}

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
