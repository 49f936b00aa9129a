package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

// A state shrinks while it is read and entries are applied; a crash at any step leaves a state with all of
// them.
func TestStateShrinks(t *testing.T) {
	s := tempState(t, sealed{})
	index := uint64(0)
	apply := func(n int, text string) {
		t.Helper()
		var logs []*raft.Log
		for range n {
			index++
			logs = append(logs, entries(index, fmt.Sprintf("%d %s", index, text))...)
		}
		for _, r := range s.apply(logs) {
			if err, bad := r.(error); bad {
				t.Fatal(err)
			}
		}
	}
	contents := func(s *state) string {
		t.Helper()
		var b strings.Builder
		err := s.view(func(tx *bbolt.Tx) error {
			return tx.Bucket(sealedBucket).ForEach(func(k, v []byte) error {
				v, err := unseal(k, v)
				fmt.Fprintf(&b, "%s=%.20s;", k, v)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	apply(300, strings.Repeat("x", 10_000))
	apply(300, "small")
	want := contents(s)
	before, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	reading, read := make(chan struct{}), make(chan error)
	release := make(chan struct{})
	go func() {
		read <- s.view(func(tx *bbolt.Tx) error {
			close(reading)
			<-release
			if tx.Bucket(sealedBucket).Stats().KeyN != 300 {
				return fmt.Errorf("%d keys", tx.Bucket(sealedBucket).Stats().KeyN)
			}
			return nil
		})
	}()
	<-reading
	crashed := map[string]string{} // what a crash would leave, by its point
	failpoint.Hook = func(point string) {
		if strings.HasPrefix(point, "state shrink") || point == "folder sync" {
			crashed[point] = copyTree(t, filepath.Dir(s.path))
		}
	}
	err = s.shrink()
	failpoint.Hook = nil
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(s.path)
	if err != nil || after.Size() > before.Size()/4 {
		t.Errorf("%d bytes of %d (%v)", after.Size(), before.Size(), err)
	}
	if got := contents(s); got != want {
		t.Error("it holds something else")
	}
	close(release)
	if err := <-read; err != nil {
		t.Errorf("who was reading: %v", err)
	}
	apply(10, "after")
	if pos, _ := s.applied(); pos.index != 610 {
		t.Errorf("at %d", pos.index)
	}
	if left, _ := filepath.Glob(s.path + ".*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
	if len(crashed) != 3 {
		t.Errorf("%d points", len(crashed))
	}
	for point, dir := range crashed {
		s, err := openState(filepath.Join(dir, filepath.Base(s.path)), sealed{}, 1)
		if err != nil {
			t.Errorf("after a crash at %q: %v", point, err)
			continue
		}
		if pos, _ := s.applied(); pos.index != 600 || contents(s) != want {
			t.Errorf("after a crash at %q: at %d, or it holds something else", point, pos.index)
		}
		s.close()
	}
}

// A log shrinks while entries are read and written; a crash at any step leaves a log with all that
// were acknowledged, and the vote.
func TestLogShrinks(t *testing.T) {
	s := tempLog(t)
	large := make([]byte, 100_000)
	for i := uint64(1); i <= 300; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: large}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.DeleteRange(1, 290), s.SetUint64([]byte("term"), 3), s.Set([]byte("vote"), []byte("n1"))); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	holds := func(what string, s *logStore, last uint64) {
		t.Helper()
		first, err := s.FirstIndex()
		end, err2 := s.LastIndex()
		term, err3 := s.GetUint64([]byte("term"))
		vote, err4 := s.Get([]byte("vote"))
		if err := errors.Join(err, err2, err3, err4); err != nil || first != 291 || end < last || term != 3 || string(vote) != "n1" {
			t.Errorf("%s: entries %d to %d, want 291 to %d; term %d, vote %q (%v)", what, first, end, last, term, vote, err)
		}
		for i := first; i <= end; i++ {
			var l raft.Log
			if err := s.GetLog(i, &l); err != nil || len(l.Data) != len(large) {
				t.Errorf("%s: entry %d has %d bytes (%v)", what, i, len(l.Data), err)
			}
		}
	}
	type crash struct {
		dir  string
		last uint64
	}
	var written atomic.Uint64 // the last entry that was acknowledged
	written.Store(300)
	crashed := map[string]crash{}
	s.seam = func(point string) error {
		if strings.HasPrefix(point, "log shrink") {
			crashed[point] = crash{copyTree(t, filepath.Dir(s.path)), written.Load()}
		}
		return nil
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := uint64(301); ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := s.StoreLog(&raft.Log{Index: i, Term: 3, Data: large}); err != nil {
				stopped <- err
				return
			}
			written.Store(i)
		}
	}()
	err = s.shrink()
	close(stop)
	if err := errors.Join(err, <-stopped); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(s.path)
	if err != nil || after.Size() > before.Size()/2 {
		t.Errorf("%d bytes of %d (%v)", after.Size(), before.Size(), err)
	}
	last := written.Load()
	if err := s.StoreLog(&raft.Log{Index: last + 1, Term: 3, Data: large}); err != nil {
		t.Fatal(err)
	}
	holds("at once", s, last+1)
	if left, _ := filepath.Glob(s.path + ".*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	crashed["no crash"] = crash{filepath.Dir(s.path), last + 1}
	if len(crashed) != 3 {
		t.Errorf("%d points", len(crashed))
	}
	for point, c := range crashed {
		s, err := openLogStore(filepath.Join(c.dir, filepath.Base(s.path)), quiet)
		if err != nil {
			t.Errorf("after a crash at %q: %v", point, err)
			continue
		}
		holds(point, s, c.last)
		s.Close()
	}
}

// roomy is a chain that is told to take much room, and to free it.
type roomy struct{ *chain }

var roomyBucket = []byte("roomy")

func (r roomy) Init(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(roomyBucket)
	return errors.Join(err, r.chain.Init(tx))
}

func (r roomy) Apply(tx *bbolt.Tx, index uint64, cmd []byte) any {
	var err error
	switch {
	case bytes.HasPrefix(cmd, []byte("fill")):
		err = tx.Bucket(roomyBucket).Put([]byte("much"), make([]byte, 40<<20))
	case bytes.HasPrefix(cmd, []byte("free")):
		err = tx.Bucket(roomyBucket).Delete([]byte("much"))
	}
	if err != nil {
		return err
	}
	return r.chain.Apply(tx, index, cmd[:min(len(cmd), 100)])
}

// Members whose files of state and log are mostly free make them smaller, one after the other the leader too,
// while commands go on.
func TestMembersShrink(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) {
		c.Machine, c.CheckEvery, c.shrinkFrom = roomy{&chain{}}, 4*testHeartbeat, 32<<20
		c.TrailingLogs = 4
	})
	sizes := func() (least, most int64) {
		least = 1 << 40
		for _, m := range tc.live() {
			for _, path := range []string{m.state.path, m.store.path} {
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				least, most = min(least, st.Size()), max(most, st.Size())
			}
		}
		return least, most
	}
	tc.commands("fill", 1)
	tc.commands(strings.Repeat("x", 1<<20), 44)
	eventually(t, "large files", func() bool { least, _ := sizes(); return least > 40<<20 })
	tc.commands("free", 1)
	for _, m := range tc.live() {
		if err := m.raft.Snapshot().Error(); err != nil { // and its log keeps four entries
			t.Fatal(err)
		}
	}
	eventually(t, "small files", func() bool {
		tc.commands("meanwhile", 1)
		_, most := sizes()
		return most < 32<<20 // bbolt grows a file by 16 MiB at once
	})
	tc.commands("after", 5)
	tc.agree()
}
