package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
)

// spoil changes a value of a node's state as no command did.
func (m *member) spoil(t *testing.T, value string) {
	t.Helper()
	m.state.mu.RLock()
	db := m.state.cur.db
	m.state.mu.RUnlock()
	err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("chain")).Put([]byte("hash"), []byte(value))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkNow has the states compared.
func (tc *testCluster) checkNow() {
	tc.t.Helper()
	eventually(tc.t, "a check", func() bool {
		_, _, err := tc.leader().propose(tc.t.Context(), []byte{cmdCheck})
		return err == nil
	})
}

// A follower whose state differs says so, answers nothing, and gets the leader's,
// while commands go on; so does a leader, after it has handed over.
func TestDivergedIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprint("leader ", leads), func(t *testing.T) {
			t.Parallel()
			tc := newCluster(t, 3, func(c *Config) {
				c.CheckEvery = -1
				c.TrailingLogs, c.SnapshotThreshold = 50, 1<<40
				var mu sync.Mutex
				failed := map[string]bool{}
				c.seam = func(point string) error { // each step of making it anew fails once
					mu.Lock()
					defer mu.Unlock()
					if failed[point] || !slices.Contains([]string{"state take", "state replace", "state replace rename"}, point) {
						return nil
					}
					failed[point] = true
					return errors.New("a step fails")
				}
			})
			l := tc.leader()
			l.write(t, "a", 20)
			tc.checkNow()
			tc.agree()
			for _, m := range tc.live() {
				if m.Fault() != nil {
					t.Fatalf("%s: %v before anything was wrong", m.cfg.ID, m.Fault())
				}
			}
			bad := l
			if !leads {
				bad = tc.others(l)[0]
			}
			bad.spoil(t, strings.Repeat("x", 32))
			tc.checkNow()
			eventually(t, "the difference to be found", func() bool {
				return bad.log.count("this state differs from the others': it is made anew of the leader's") == 1
			})
			tc.commands("meanwhile", 20)
			eventually(t, "its end", func() bool { return bad.Fault() == nil })
			if n := tc.agree(); n < 40 {
				t.Errorf("%d commands", n)
			}
			if leads && bad.IsLeader() {
				t.Error("it did not hand over")
			}
			tc.checkNow()
			tc.commands("after", 5)
			tc.agree()
			for _, m := range tc.live() {
				if err := m.Fault(); err != nil || m.log.count("this state differs from the others': it is made anew of the leader's") > 1 {
					t.Errorf("%s: %v", m.cfg.ID, err)
				}
			}
			tc.stop(bad)
			tc.start(bad)
			tc.agree()
		})
	}
}

// Of two that differ nobody knows which is right: they say so.
func TestNobodyKnowsWhichIsRight(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 2, func(c *Config) { c.CheckEvery = -1 })
	l := tc.leader()
	l.write(t, "a", 5)
	tc.agree()
	tc.others(l)[0].spoil(t, strings.Repeat("y", 32))
	tc.checkNow()
	eventually(t, "somebody to say so", func() bool { return errors.Is(l.Fault(), errNoMajority) })
	if l.Ready() == nil {
		t.Error("a leader in doubt is ready")
	}
	tc.others(l)[0].spoil(t, func() string { // by a miracle
		var hash []byte
		l.state.view(func(tx *bbolt.Tx) error {
			hash = bytes.Clone(tx.Bucket([]byte("chain")).Get([]byte("hash")))
			return nil
		})
		return string(hash)
	}())
	tc.checkNow()
	eventually(t, "the doubt to be over", func() bool { return l.Fault() == nil })
}

// A state that is taken while commands go on is that of the leader, with all that
// came since.
func TestStateIsTakenUnderLoad(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) {
		c.CheckEvery = -1
		c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 64, 32, testHeartbeat
	})
	l := tc.leader()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, _, err := l.Apply(t.Context(), fmt.Appendf(nil, "load-%d", i)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	f := tc.others(l)[0]
	for range 5 {
		if err := f.takeState(t.Context()); err != nil && !strings.Contains(err.Error(), "what came after") { // compacted meanwhile: again
			t.Error(err)
		}
	}
	close(stop)
	<-done
	tc.agree()
}
