package state

import (
	"bytes"

	"go.etcd.io/bbolt"
)

// usesBucket is an index: address of a data set, 0, id of a job that refers to it →
// the job's namespace. What is asked of a data set does not grow with the number of
// jobs.
var usesBucket = []byte("uses")

func useKey(address, job string) []byte { return []byte(address + "\x00" + job) }

// Uses calls f with each job that refers to a data set, and its namespace, until f
// returns false.
func Uses(tx *bbolt.Tx, address string, f func(job, namespace string) bool) {
	prefix := useKey(address, "")
	c := tx.Bucket(usesBucket).Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if !f(string(k[len(prefix):]), string(v)) {
			return
		}
	}
}

// addUse notes to which data set a new job refers.
func addUse(tx *bbolt.Tx, j *Job) error {
	if j.Data == "" {
		return nil
	}
	return tx.Bucket(usesBucket).Put(useKey(j.Data, j.ID), []byte(j.NamespaceName()))
}

func removeUse(tx *bbolt.Tx, j *Job) error { return tx.Bucket(usesBucket).Delete(useKey(j.Data, j.ID)) }

// initUses makes the index of a state that has none: it is a function of the jobs.
func initUses(tx *bbolt.Tx) error {
	if tx.Bucket(usesBucket) != nil {
		return nil
	}
	if _, err := tx.CreateBucket(usesBucket); err != nil {
		return err
	}
	var failed error
	err := Jobs(tx, func(j *Job) bool {
		failed = addUse(tx, j)
		return failed == nil
	})
	if err != nil {
		return err
	}
	return failed
}
