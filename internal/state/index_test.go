package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// ids walks the whole index in pages of a size and returns what it saw.
func ids(t fataler, r *replica, page int, since time.Time) (out []string) {
	t.Helper()
	var from []byte
	for {
		n := 0
		err := r.db.View(func(tx *bbolt.Tx) (err error) {
			from, err = Newest(tx, from, since, func(e Entry) bool {
				if n == page {
					return false
				}
				n++
				out = append(out, e.ID+" "+string(e.Phase)+" "+e.Name)
				return true
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if from == nil {
			return out
		}
	}
}

// Whatever happened to jobs, the index says of each what its record says, newest
// first, in pages of any size; and a state that had no index gets the same one.
func TestIndex(t *testing.T) {
	r := newReplica(t)
	rapid.Check(t, func(t *rapid.T) {
		r.clear(t)
		for step := range rapid.IntRange(0, 40).Draw(t, "steps") {
			id := fmt.Sprintf("j%d", rapid.IntRange(0, 9).Draw(t, "job"))
			at := epoch.Add(time.Duration(step/3) * time.Second) // some at the same time
			var c Command
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0, 1:
				c = &Submit{ID: id, Name: rapid.SampledFrom([]string{"", "a", "concrete"}).Draw(t, "name"), Chains: 1}
			case 2:
				c = &Act{Job: id, Action: rapid.SampledFrom([]Action{Pause, Resume, Cancel, Delete}).Draw(t, "action")}
			case 3:
				c = &Fail{Job: id, Message: "why"}
			}
			_, _ = r.apply(t, at, c) // some are refused
		}
		var jobs []*Job
		if err := r.db.View(func(tx *bbolt.Tx) error { return Jobs(tx, func(j *Job) bool { jobs = append(jobs, j); return true }) }); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(jobs, func(a, b *Job) int {
			if c := b.Submitted.Compare(a.Submitted); c != 0 {
				return c
			}
			return cmp.Compare(b.ID, a.ID)
		})
		since := epoch.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "since")) * time.Second)
		var want []string
		for _, j := range jobs {
			if !j.Submitted.Before(since) {
				want = append(want, j.ID+" "+string(j.Phase)+" "+j.Name)
			}
		}
		page := rapid.IntRange(1, 5).Draw(t, "page")
		if got := ids(t, r, page, since); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		before := r.dump(t)
		err := r.db.Update(func(tx *bbolt.Tx) error {
			if err := tx.DeleteBucket(orderBucket); err != nil {
				return err
			}
			return r.m.Init(tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		if after := r.dump(t); !maps.Equal(before, after) {
			t.Fatalf("an index made anew differs: %v, %v", before, after)
		}
	})
}

// Who uses a data set is known from the first job on, also in a state of a version that
// kept no such index, and until the last is deleted.
func TestUses(t *testing.T) {
	r := newReplica(t)
	do := func(c Command) {
		t.Helper()
		if _, err := r.apply(t, epoch, c); err != nil {
			t.Fatal(err)
		}
	}
	uses := func(address string) (out []string) {
		t.Helper()
		err := r.db.View(func(tx *bbolt.Tx) error {
			Uses(tx, address, func(job, namespace string) bool { out = append(out, job+" of "+namespace); return true })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := func(address string, jobs ...string) {
		t.Helper()
		if got := uses(address); !slices.Equal(got, jobs) {
			t.Errorf("%s is used by %v, not by %v", address, got, jobs)
		}
	}
	do(&SetNamespace{Name: "lab", Fresh: true})
	do(&Submit{ID: "a", Chains: 1, Data: "x"})
	do(&Submit{ID: "b", Chains: 1, Data: "x", Namespace: "lab"})
	do(&Submit{ID: "c", Chains: 1, Data: "xy"})
	do(&Submit{ID: "d", Chains: 1})
	check := func() {
		t.Helper()
		want("x", "a of default", "b of lab")
		want("xy", "c of default")
		want("")
	}
	check()
	err := r.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(usesBucket); err != nil {
			return err
		}
		return r.m.Init(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	check()
	if _, err := r.apply(t, epoch, &ForgetBlob{SHA256: "x"}); !errors.Is(err, ErrConflict) {
		t.Errorf("data that are used are forgotten: %v", err)
	}
	for _, id := range []string{"a", "b"} {
		do(&Act{Job: id, Action: Cancel})
		do(&Act{Job: id, Action: Delete})
	}
	want("x")
	do(&ForgetBlob{SHA256: "x"})
}
