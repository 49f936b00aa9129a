package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// The buckets.
var (
	jobsBucket    = []byte("jobs")    // id → Job
	clientsBucket = []byte("clients") // client id → id
	eventsBucket  = []byte("events")  // id → bucket of number → chains.Event
	activeBucket  = []byte("active")  // ids of the jobs that have not ended
	blobsBucket   = []byte("blobs")   // address → Blob
	noticesBucket = []byte("notices") // index of the command → Notice
	notesBucket   = []byte("notes")   // id → bucket of number → Note
	orderBucket   = []byte("order")   // time of submission and id → what is searched for
)

// get reads a value, or returns false.
func get(tx *bbolt.Tx, bucket []byte, key string, v any) (bool, error) {
	text := tx.Bucket(bucket).Get([]byte(key))
	if text == nil {
		return false, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("%s/%s: %w", bucket, key, err)
	}
	return true, nil
}

// put writes a value.
func put(tx *bbolt.Tx, bucket []byte, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put([]byte(key), text)
}

// remove deletes a key; it need not be there.
func remove(tx *bbolt.Tx, bucket []byte, key string) error {
	return tx.Bucket(bucket).Delete([]byte(key))
}

// GetJob returns a job, or ErrUnknown.
func GetJob(tx *bbolt.Tx, id string) (*Job, error) {
	var j Job
	ok, err := get(tx, jobsBucket, id, &j)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrUnknown
	}
	return &j, nil
}

// putJob writes a job, and whether it has ended, which its namespace's quota
// counts.
func putJob(tx *bbolt.Tx, j *Job) error {
	var err error
	was := tx.Bucket(activeBucket).Get([]byte(j.ID)) != nil
	one := Usage{Jobs: 1, Chains: int64(j.Chains)}
	switch {
	case was && j.Phase.Ended():
		err = errors.Join(remove(tx, activeBucket, j.ID), use(tx, j.Space(), Usage{Jobs: -one.Jobs, Chains: -one.Chains}))
	case !was && !j.Phase.Ended():
		err = errors.Join(tx.Bucket(activeBucket).Put([]byte(j.ID), []byte{1}), use(tx, j.Space(), one))
	}
	if err != nil {
		return err
	}
	if err := putEntry(tx, j); err != nil {
		return err
	}
	return put(tx, jobsBucket, j.ID, j)
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

// Blobs calls f with every data set, until it returns false.
func Blobs(tx *bbolt.Tx, f func(*Blob) bool) error { return each(tx, blobsBucket, f) }

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

// GetBlob returns a data set, or ErrUnknown.
func GetBlob(tx *bbolt.Tx, sha256 string) (*Blob, error) {
	var b Blob
	ok, err := get(tx, blobsBucket, sha256, &b)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrUnknown
	}
	return &b, nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// addEvent appends an event to a job's.
func addEvent(tx *bbolt.Tx, j *Job, e *chains.Event) error {
	b, err := tx.Bucket(eventsBucket).CreateBucketIfNotExists([]byte(j.ID))
	if err != nil {
		return err
	}
	b.FillPercent = 0.9 // keys only grow
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.Events++
	return b.Put(number(j.Events), text)
}

// replay applies a job's events after the first n to r.
func replay(tx *bbolt.Tx, id string, n uint64, r *chains.Run) (uint64, error) {
	b := tx.Bucket(eventsBucket).Bucket([]byte(id))
	if b == nil {
		return n, nil
	}
	c := b.Cursor()
	for k, text := c.Seek(number(n + 1)); k != nil; k, text = c.Next() {
		var e chains.Event
		if err := json.Unmarshal(text, &e); err != nil {
			return n, fmt.Errorf("event %d of job %s: %w", n+1, id, err)
		}
		if err := r.Apply(e); err != nil {
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

// Follower keeps up with a job and its run. It is not safe for concurrent use.
type Follower struct {
	Job *Job
	Run *chains.Run // nil until the data have been read
	// Convergence is what Run's draws say, and Due the end that they call for,
	// if any.
	Convergence chains.Convergence
	Due         *chains.Event

	judge chains.Judge
	seen  uint64
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
	f.Job = j
	if j.Plan == nil {
		return nil
	}
	if f.Run == nil || f.seen > j.Events { // the state may have been restored from a backup
		f.Run, f.seen, f.judge, f.Due = chains.New(*j.Plan), 0, chains.Judge{}, nil
	}
	if f.seen, err = replay(tx, id, f.seen, f.Run); err != nil {
		return err
	}
	if f.Due != nil && !f.Due.Certificate && f.Run.Stopped != nil {
		f.Due = nil // it has come; that of the certificate may follow
	}
	if f.Due == nil {
		f.Due = f.judge.Decide(f.Run, 0)
	}
	f.Convergence = f.judge.Last
	return nil
}
