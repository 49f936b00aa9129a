package cluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// commands proposes commands at whoever leads until so many went through.
func (tc *testCluster) commands(prefix string, n int) {
	tc.t.Helper()
	done := 0
	eventually(tc.t, fmt.Sprint(n, " commands"), func() bool {
		for _, m := range tc.live() {
			if !m.IsLeader() {
				continue
			}
			ctx, cancel := context.WithTimeout(tc.t.Context(), 2*testHeartbeat)
			if _, _, err := m.Apply(ctx, fmt.Appendf(nil, "%s-%d", prefix, done)); err == nil {
				done++
			}
			cancel()
		}
		return done >= n
	})
}

// A leader whose disk does not answer is told of, and ends; the others elect
// another, and nothing that was acknowledged is lost.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	var told atomic.Pointer[error]
	var cluster atomic.Pointer[testCluster] // nil before the fault: a machine under load may stall before
	stalled := func(err error) {
		tc := cluster.Load()
		if tc == nil {
			return
		}
		told.Store(&err)
		for _, m := range tc.live() {
			if m.Fault() != nil {
				tc.net.cut([]string{m.cfg.ID}) // as if the process had ended
			}
		}
	}
	tc := newCluster(t, 3, func(c *Config) { c.StallTimeout, c.Stalled = 4*testHeartbeat, stalled })
	l := tc.leader()
	l.write(t, "a", 3)
	cluster.Store(tc)
	tx, err := l.store.db.Begin(true) // whoever stores an entry waits, as for a disk that hangs
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	go func() {
		_, _, err := l.Apply(t.Context(), []byte("late"))
		late <- err
	}()
	var others []string
	for _, m := range tc.others(l) {
		others = append(others, m.cfg.ID)
	}
	next := tc.leader(others...)
	next.write(t, "b", 3)
	if err := told.Load(); err == nil || !strings.Contains((*err).Error(), "has not ended for") {
		t.Errorf("what is told: %v", err)
	}
	if l.WriteAge() < 4*testHeartbeat || l.ProposalAge() < 4*testHeartbeat || l.Ready() == nil {
		t.Errorf("the hanging one: write %v, command %v, ready: %v", l.WriteAge(), l.ProposalAge(), l.Ready())
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	tc.net.cut()
	if err := <-late; err == nil {
		t.Error("a command of a leader that hung went through")
	}
	tc.agree()
	eventually(t, "the fault to be over", func() bool { return l.Fault() == nil && l.Ready() == nil })
}

// A leader that holds an earlier transfer for unfinished, and so refuses all commands, is told of and ends;
// the others elect another one.
func TestLeaderWhoseTransferNeverEnds(t *testing.T) {
	t.Parallel()
	var told atomic.Pointer[error]
	var cluster atomic.Pointer[testCluster] // nil before the fault: a machine under load may stall before
	stalled := func(err error) {
		tc := cluster.Load()
		if tc == nil {
			return
		}
		told.Store(&err)
		for _, m := range tc.live() {
			if m.Fault() != nil {
				tc.net.cut([]string{m.cfg.ID}) // as if the process had ended
			}
		}
	}
	tc := newCluster(t, 3, func(c *Config) { c.StallTimeout, c.Stalled = 4*testHeartbeat, stalled })
	l := tc.leader()
	l.write(t, "a", 3)
	f := tc.others(l)[0]
	cluster.Store(tc)
	// What remains in the library of a transfer that was under way when its leader lost its place.
	flag := reflect.ValueOf(f.raft).Elem().FieldByName("leaderState").FieldByName("leadershipTransferInProgress")
	atomic.StoreInt32((*int32)(flag.Addr().UnsafePointer()), 1)
	eventually(t, "the transfer", func() bool { // which has one election timeout, too little on a machine under load
		return l.Transfer(t.Context(), f.cfg.ID) == nil || told.Load() != nil
	})
	eventually(t, "somebody who is told", func() bool { return told.Load() != nil })
	if err := *told.Load(); !strings.Contains(err.Error(), "an earlier transfer of leadership has not ended") || f.Ready() == nil {
		t.Errorf("what is told: %v; ready: %v", err, f.Ready())
	}
	var others []string
	for _, m := range tc.others(f) {
		others = append(others, m.cfg.ID)
	}
	tc.leader(others...).write(t, "b", 3)
}

// A follower's disk that hangs costs nothing but its health.
func TestFollowerWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) { c.StallTimeout = 2 * testHeartbeat })
	l := tc.leader()
	f := tc.others(l)[0]
	tx, err := f.store.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	l.write(t, "b", 50)
	health := func() (healthy bool, fault string) {
		all, err := l.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.ID == f.cfg.ID {
				return m.Healthy, m.Fault
			}
		}
		return false, ""
	}
	eventually(t, "the leader to know", func() bool { healthy, fault := health(); return !healthy && strings.Contains(fault, "has not ended") })
	if err := l.Remove(t.Context(), tc.others(l)[1].cfg.ID, false); !errors.Is(err, ErrMajority) {
		t.Errorf("removing the other one: %v", err)
	}
	tx.Rollback()
	tc.agree()
	eventually(t, "its health", func() bool { healthy, _ := health(); return healthy })
	if !l.IsLeader() {
		t.Error("the leader changed")
	}
}

// A leader whose disk answers, but takes long for each write, hands over to one
// whose disk does not, and is not chosen again.
func TestLeaderWhoseDiskIsSlow(t *testing.T) {
	t.Parallel()
	var slow atomic.Value // id
	slow.Store("")
	tc := newCluster(t, 3, func(c *Config) {
		c.seam = func(point string) error {
			if point == "log store" && slow.Load() == c.ID {
				time.Sleep(2 * testHeartbeat)
			}
			return nil
		}
	})
	l := tc.leader()
	slow.Store(l.cfg.ID)
	go func() {
		for i := range 10 { // one after the other: each is a write
			ctx, cancel := context.WithTimeout(t.Context(), 10*testHeartbeat)
			l.Apply(ctx, fmt.Appendf(nil, "slow-%d", i))
			cancel()
		}
	}()
	eventually(t, "another leader", func() bool {
		for _, m := range tc.others(l) {
			if m.IsLeader() {
				return true
			}
		}
		return false
	})
	tc.commands("quick", 10)
	if l.IsLeader() {
		t.Error("the slow one leads again")
	}
	slow.Store("")
	tc.agree()
}

// Whoever takes the vote of a member that lives, while another one is down, is
// refused, unless they insist.
func TestMajorityIsSpared(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, nil)
	l := tc.leader()
	l.write(t, "a", 3)
	tc.agree()
	down, lives := tc.others(l)[0], tc.others(l)[1]
	for what, f := range map[string]func(context.Context, string, bool) error{"remove": l.Remove, "demote": l.Demote} {
		if err := f(t.Context(), "nobody", false); !errors.Is(err, ErrNoMember) {
			t.Errorf("%s nobody: %v", what, err)
		}
	}
	tc.stop(down)
	eventually(t, "the loss to be noticed", func() bool {
		all, err := l.Members(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(m Member) bool { return m.Healthy == (m.ID == down.cfg.ID) })
	})
	if err := l.Demote(t.Context(), lives.cfg.ID, false); !errors.Is(err, ErrMajority) {
		t.Errorf("demoting the one that lives: %v", err)
	}
	for _, id := range []string{lives.cfg.ID, l.cfg.ID} {
		if err := l.Remove(t.Context(), id, false); !errors.Is(err, ErrMajority) {
			t.Errorf("removing %s while another is down: %v", id, err)
		}
	}
	l.write(t, "b", 3)
	if err := l.Remove(t.Context(), down.cfg.ID, false); err != nil { // it is the dead one that goes
		t.Errorf("removing the dead one: %v", err)
	}
	l.write(t, "c", 3)
	if err := l.Demote(t.Context(), lives.cfg.ID, true); err != nil {
		t.Errorf("with force: %v", err)
	}
	l.write(t, "d", 3)
	if err := l.Remove(t.Context(), l.cfg.ID, false); !errors.Is(err, ErrMajority) {
		t.Errorf("removing the only voter: %v", err)
	}
}

// A node that is behind, or has not got its vote, is not ready; once it has caught
// up it is.
func TestReadyIsCaughtUp(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var held atomic.Bool
	tc := newCluster(t, 3, func(c *Config) {
		c.seam = func(point string) error {
			if point == "state apply" && c.ID == "n3" && held.Load() {
				<-gate
			}
			return nil
		}
	})
	eventually(t, "all to be ready", func() bool {
		for _, m := range tc.live() {
			if m.Ready() != nil {
				return false
			}
		}
		return true
	})
	if tc.leader() == tc.m["n3"] {
		if err := tc.m["n3"].Transfer(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	tc.stop(tc.m["n3"])
	tc.leader("n1", "n2").write(t, "a", 2*promoteLag)
	held.Store(true)
	tc.start(tc.m["n3"])
	eventually(t, "a leader to be known", func() bool { return tc.m["n3"].Leader().ID != "" })
	time.Sleep(2 * testHeartbeat)
	if err := tc.m["n3"].Ready(); err == nil || !strings.Contains(err.Error(), "caught up") {
		t.Errorf("a node that is far behind: %v", err)
	}
	held.Store(false)
	close(gate)
	eventually(t, "it to catch up", func() bool { return tc.m["n3"].Ready() == nil })
	for _, m := range tc.live() {
		m.IsLeader()
	}
	l := tc.leader()
	tc.net.cut([]string{"n3"})
	eventually(t, "no leader there", func() bool {
		err := tc.m["n3"].Ready()
		return l == tc.m["n3"] || err != nil && strings.Contains(err.Error(), "no leader")
	})
	tc.net.cut()
}
