package state

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// sampling brings job "a" of two chains into the sampling phase.
func sampling(t fataler, r *replica) {
	t.Helper()
	do := func(c Command) {
		t.Helper()
		if _, err := r.apply(t, epoch, c); err != nil {
			t.Fatal(err)
		}
	}
	do(&Submit{ID: "a", Chains: 2})
	do(&Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w"}, {Chain: 1, Worker: "w"}, {Chain: 2, Worker: "w"}}})
	do(&Loaded{Job: "a", Attempt: 1, Info: &dataset.Info{Rows: 10, SHA256: "x"}, Plan: testPlan()})
	do(&Report{Job: "a", Attempt: 1, Events: encoded(t, chains.Event{Prepared: prepared()})})
	var f Follower
	for r.follow(t, &f, "a"); f.Run.Phase != chains.Sampling; r.follow(t, &f, "a") {
		if f.Run.AtBarrier() {
			e, err := sampler.Adapt(f.Run)
			if err != nil {
				t.Fatal(err)
			}
			do(&Decide{Job: "a", Event: encoded(t, *e)[0]})
			continue
		}
		for c := 1; c <= 2; c++ {
			report(t, r, &f, c)
		}
	}
}

// report hands in a chain's next checkpoint, if it has one.
func report(t fataler, r *replica, f *Follower, chain int) {
	t.Helper()
	r.follow(t, f, "a")
	task, ok := f.Run.Task(chain)
	if !ok {
		return
	}
	_, err := r.apply(t, epoch, &Report{Job: "a", Chain: chain, Attempt: 1, Events: encoded(t, chains.Event{Checkpoint: checkpoint(task)})})
	if err != nil {
		t.Fatal(err)
	}
}

// The draws that a follower sees are the machine's, not copies, as long as the
// machine has the run; and they stay what they are when more are reported.
func TestOneRun(t *testing.T) {
	r := newReplica(t)
	sampling(t, r)
	var f Follower
	report(t, r, &f, 1)
	one := Follower{Machine: r.m}
	r.follow(t, &one, "a")
	kept := r.m.runs["a"].run.Chains[0].Draws
	if seen := one.Run.Chains[0].Draws; len(seen) != 5 || &seen[0] != &kept[0] {
		t.Fatalf("%d draws, which are not the machine's", len(seen))
	}
	before, was := one.Run, text(t, one.Run)
	for range 2 {
		report(t, r, &f, 1)
		report(t, r, &f, 2)
	}
	if now := text(t, before); now != was {
		t.Errorf("a run that was looked at has changed:\n%s", cmp.Diff(was, now))
	}
}

// Many read a job's run while its events are applied (run with -race).
func TestReadersBesideApply(t *testing.T) {
	r := newReplica(t)
	sampling(t, r)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			f := Follower{Machine: r.m}
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := r.db.View(func(tx *bbolt.Tx) error { return f.Update(tx, "a") }); err != nil {
					t.Error(err)
					return
				}
				text(t, f.Run)
			}
		})
	}
	var f Follower
	for range 6 {
		report(t, r, &f, 1)
		report(t, r, &f, 2)
	}
	close(done)
	wg.Wait()
}

// After a restore, which brings another database with another history of the same
// job, machine and follower tell what that one says.
func TestRestoredState(t *testing.T) {
	r := newReplica(t)
	sampling(t, r)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := r.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(backup, 0o600) }); err != nil {
		t.Fatal(err)
	}
	one, alone := Follower{Machine: r.m}, Follower{}
	report(t, r, &alone, 1)
	report(t, r, &alone, 2)
	r.follow(t, &one, "a")
	r.follow(t, &alone, "a")
	lost := text(t, one.Run)

	db, err := bbolt.Open(backup, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	restored := &replica{db: db, m: r.m, n: r.n}
	if err := db.Update(r.m.Init); err != nil {
		t.Fatal(err)
	}
	var f Follower
	report(t, restored, &f, 2) // as many events as before, but others
	report(t, restored, &f, 2)
	for name, f := range map[string]*Follower{"with the machine": &one, "alone": &alone} {
		restored.follow(t, f, "a")
		var fresh Follower
		restored.follow(t, &fresh, "a")
		if diff := cmp.Diff(text(t, fresh.Run), text(t, f.Run)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if text(t, f.Run) == lost {
			t.Errorf("%s: the run is that of before the restore", name)
		}
	}
	if err := db.View(func(tx *bbolt.Tx) error { return one.Update(tx, "b") }); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("an unknown job: %v", err)
	}
}
