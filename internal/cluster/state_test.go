package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

func tempState(t *testing.T, m Machine) *state {
	t.Helper()
	s, err := openState(filepath.Join(t.TempDir(), "state.db"), m, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

// entries makes user commands with indices from first on.
func entries(first uint64, cmds ...string) (out []*raft.Log) {
	for i, c := range cmds {
		out = append(out, &raft.Log{Index: first + uint64(i), Term: 2, Data: append([]byte{cmdUser}, c...)})
	}
	return out
}

func stateSum(t *testing.T, s *state) (hash string, count uint64) {
	t.Helper()
	if err := s.view(func(tx *bbolt.Tx) error { hash, count = sum(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	return hash, count
}

func TestFailedCommandChangesNothing(t *testing.T) {
	// Failures first, last, and in a row.
	for _, cmds := range [][]string{{"a", "!x", "b"}, {"!x", "a"}, {"a", "!x"}, {"!x", "!y"}, {"a", "!x", "!y", "b", "!z"}} {
		s, clean := tempState(t, &chain{}), tempState(t, &chain{})
		results := s.apply(entries(5, cmds...))
		n := uint64(0)
		for i, c := range cmds {
			if strings.HasPrefix(c, "!") {
				if results[i] != errRefused {
					t.Errorf("%v: %s returned %v", cmds, c, results[i])
				}
				continue
			}
			n++
			if results[i] != n {
				t.Errorf("%v: %s returned %v, want %d", cmds, c, results[i], n)
			}
			clean.apply(entries(5+uint64(i), c))
		}
		got, gotN := stateSum(t, s)
		want, wantN := stateSum(t, clean)
		if got != want || gotN != wantN {
			t.Errorf("%v left other state than without its failures", cmds)
		}
		if pos, _ := s.applied(); pos != (position{5 + uint64(len(cmds)) - 1, 2}) {
			t.Errorf("%v: applied %v", cmds, pos)
		}
	}
}

func TestNothingIsAppliedTwice(t *testing.T) {
	m := &chain{}
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := openState(path, m, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := entries(1, "a", "b", "c", "d", "e")
	s.apply(all[:3])
	s.close()
	if s, err = openState(path, m, 1); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.apply(all[:2]) // raft hands over everything since the snapshot
	s.apply(all[1:])
	if n := m.calls.Load(); n != 5 {
		t.Errorf("%d calls of Apply, want 5", n)
	}
	if _, n := stateSum(t, s); n != 5 {
		t.Errorf("%d commands, want 5", n)
	}
}

func TestPanicIsNotSwallowed(t *testing.T) {
	for _, data := range [][]byte{append([]byte{cmdUser}, "panic"...), {77}} {
		s := tempState(t, &chain{})
		batch := append(entries(1, "a"), &raft.Log{Index: 2, Term: 2, Data: data})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("command %v did not stop the process", data)
				}
			}()
			s.apply(batch)
		}()
		if _, n := stateSum(t, s); n != 0 {
			t.Error("half a batch was committed")
		}
	}
}

func TestIgnorableAndEmptyCommands(t *testing.T) {
	s := tempState(t, &chain{})
	r := s.apply([]*raft.Log{{Index: 1, Term: 1, Data: []byte{mayIgnore | 9, 1, 2}}, {Index: 2, Term: 1}, {Index: 3, Term: 1, Type: raft.LogConfiguration, Data: []byte("x")}})
	if r[0] != nil || r[1] != errEmptyCommand || r[2] != nil {
		t.Errorf("results %v", r)
	}
	if pos, _ := s.applied(); pos.index != 3 {
		t.Errorf("applied %d, want 3", pos.index)
	}
}

// memorySink is a snapshot in memory.
type memorySink struct{ bytes.Buffer }

func (*memorySink) ID() string    { return "memory" }
func (*memorySink) Close() error  { return nil }
func (*memorySink) Cancel() error { return nil }

func TestSnapshotWhileApplying(t *testing.T) {
	s := tempState(t, &chain{})
	s.apply(entries(1, "a", "b"))
	want, _ := stateSum(t, s)
	snap, err := fsm{state: s}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	// The file grows by several of bbolt's steps under the open transaction.
	for i := range uint64(8) {
		s.apply(entries(3+i, fmt.Sprint(i, strings.Repeat("x", 16000)))) // a key of 16 kB
	}
	var sink memorySink
	if err := snap.Persist(&sink); err != nil {
		t.Fatal(err)
	}
	snap.Release()
	other := tempState(t, &chain{})
	if err := other.restore(&sink, position{2, 2}); err != nil {
		t.Fatal(err)
	}
	if got, n := stateSum(t, other); got != want || n != 2 {
		t.Errorf("the snapshot holds %d commands, want the 2 from when it was taken", n)
	}
}

func TestRestoreUnderReaders(t *testing.T) {
	s, from := tempState(t, &chain{}), tempState(t, &chain{})
	s.apply(entries(1, "a"))
	from.apply(entries(1, "a", "b", "c"))
	old, _ := stateSum(t, s)
	snap, err := fsm{state: from}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sink memorySink
	if err := snap.Persist(&sink); err != nil {
		t.Fatal(err)
	}
	snap.Release()

	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.view(func(tx *bbolt.Tx) error {
						if _, n := sum(tx); n != 1 && n != 3 {
							t.Errorf("a reader saw %d commands", n)
						}
						return nil
					})
				}
			}
		})
	}
	// A reader that stays does not hold up the restore, and keeps its view.
	err = s.view(func(tx *bbolt.Tx) error {
		_, changed := s.applied()
		if err := s.restore(&sink, position{9, 4}); err != nil {
			return err
		}
		<-changed
		if got, _ := sum(tx); got != old {
			t.Error("the view changed under its reader")
		}
		return nil
	})
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if _, n := stateSum(t, s); n != 3 {
		t.Errorf("%d commands after the restore, want 3", n)
	}
	// The label is remembered: entry 9 was in it, 10 was not.
	s.apply(entries(9, "d", "e"))
	if _, n := stateSum(t, s); n != 4 {
		t.Errorf("%d commands, want 4", n)
	}
	if _, err := os.Stat(s.path + ".restore"); err == nil {
		t.Error("the temporary file stayed")
	}
}

// A state that runs ahead of what raft has handed over since the start must
// not be labelled with less than it holds.
func TestNoSnapshotBeforeCaughtUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := openState(path, &chain{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := entries(1, "a", "b", "c")
	s.apply(all)
	s.close()
	if s, err = openState(path, &chain{}, 1); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.apply(all[:2])
	if _, err := (fsm{state: s}).Snapshot(); err != raft.ErrNothingNewToSnapshot {
		t.Errorf("a snapshot in the middle of the replay: %v", err)
	}
	s.apply(all[2:])
	snap, err := fsm{state: s}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	snap.Release()
}

// A full disk holds up what is committed, and no more: with room it is applied, once.
func TestStateWaitsForRoom(t *testing.T) {
	s := tempState(t, &chain{})
	s.log, s.writes = quiet, &writes{slowFrom: time.Minute}
	var full atomic.Bool
	var tries atomic.Int64
	s.seam = func(string) error {
		if !full.Load() {
			return nil
		}
		tries.Add(1)
		return fmt.Errorf("a write: %w", syscall.ENOSPC)
	}
	s.apply(entries(1, "a", "b"))
	full.Store(true)
	done := make(chan []any)
	go func() { done <- s.apply(entries(3, "c", "d")) }()
	eventually(t, "another attempt", func() bool { return tries.Load() > 1 })
	if s.writes.oldest() == 0 {
		t.Error("a state that waits for room has no write under way")
	}
	if _, n := stateSum(t, s); n != 2 {
		t.Errorf("%d commands in the state while there is no room, not 2", n)
	}
	full.Store(false)
	for _, r := range <-done {
		if err, bad := r.(error); bad {
			t.Error(err)
		}
	}
	if _, n := stateSum(t, s); n != 4 || s.writes.oldest() != 0 {
		t.Errorf("with room: %d commands, not 4; a write for %v", n, s.writes.oldest())
	}

	full.Store(true)
	stop := make(chan struct{})
	s.stop = stop
	go func() { done <- s.apply(entries(5, "e")) }()
	eventually(t, "an attempt", func() bool { return s.writes.oldest() > 0 })
	close(stop)
	if r := <-done; r[0] != error(ErrUnknownOutcome) {
		t.Errorf("a node that ends without room answers %v", r)
	}
}

// A file that is mostly free is made small when it is opened, with all that is in it.
func TestFilesShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := openBolt(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1<<20)
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range 80 {
			err = errors.Join(err, b.Put([]byte{byte(i)}, piece))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) (err error) {
		for i := range 70 {
			err = errors.Join(err, tx.Bucket([]byte("b")).Delete([]byte{byte(i)}))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	before, _, err := looked(path)
	if err != nil {
		t.Fatal(err)
	}
	is, err := lookThrough(path, func([][]byte, []byte, []byte) error { return nil })
	if err != nil || is.used < 10<<20 || is.used > 11<<20 {
		t.Fatalf("%d bytes in use, not 10 MiB (%v)", is.used, err)
	}
	crashed := map[string]string{} // what a crash would leave, by its point
	failpoint.Hook = func(point string) { crashed[point] = copyTree(t, filepath.Dir(path)) }
	err = shrink(path, is.used, quiet)
	failpoint.Hook = nil
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"shrink", "shrink rename", "folder sync"} {
		left := filepath.Join(crashed[point], filepath.Base(path))
		if err := shrink(left, is.used, quiet); err != nil {
			t.Errorf("after a crash at %q: %v", point, err)
		}
		if got, _, err := looked(left); err != nil || !slices.Equal(before, got) {
			t.Errorf("after a crash at %q: %d entries, not %d (%v)", point, len(got), len(before), err)
		}
	}
	after, _, err := looked(path)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("a file that shrank has %d entries, not the %d that it had (%v)", len(after), len(before), err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 20<<20 {
		t.Errorf("%d bytes (%v)", st.Size(), err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
}
