package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOneNode(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 1, nil)
	l := tc.leader()
	l.write(t, "a", 10)
	if _, index, err := l.Apply(t.Context(), []byte("!no")); !errors.Is(err, errRefused) || index == 0 {
		t.Errorf("a refused command: index %d, error %v", index, err)
	}
	hash, n := l.sum(t)
	if n != 10 {
		t.Errorf("%d commands, want 10", n)
	}
	calls := l.chain.calls.Load()
	for range 3 {
		tc.stop(l)
		tc.start(l)
		tc.leader()
	}
	if got, _ := l.sum(t); got != hash {
		t.Error("another state after restarts")
	}
	if l.chain.calls.Load() != calls {
		t.Errorf("a restart applied %d commands again", l.chain.calls.Load()-calls)
	}
}

// What a process that died left behind goes when the node is opened, and nothing else.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"backup-1", "restore-2", "state-3", "state.db.small", "raft.db.small", "state.db.restore", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, err := Open(alone(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var got []string
	for _, pattern := range []string{"backup-*", "restore-*", "state-*", "*.small", "*.restore", "notes", "*.db"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			got = append(got, filepath.Base(f))
		}
	}
	if want := []string{"notes", "raft.db", "state.db"}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, nil)
	l := tc.leader()
	index := l.write(t, "a", 20)
	if n := tc.agree(); n != 20 {
		t.Errorf("%d commands, want 20", n)
	}
	f := tc.others(l)[0]
	_, _, err := f.Apply(t.Context(), []byte("x"))
	var not *NotLeaderError
	if !errors.As(err, &not) || not.Leader.ID != l.cfg.ID || not.Leader.Address != l.address || !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower says %v", err)
	}
	if _, err := f.ReadIndex(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower reads: %v", err)
	}
	if err := f.WaitApplied(t.Context(), index); err != nil {
		t.Error(err)
	}
	eventually(t, "members known everywhere", func() bool {
		for _, m := range tc.live() {
			list, err := m.Members(t.Context())
			if err != nil || len(list) != 3 {
				return false
			}
			for _, e := range list {
				if !e.Voter || !e.Healthy || e.GRPC != e.ID+":9000" || e.Version != "v1" || e.Lag > 0 || e.Leader != (e.ID == l.cfg.ID) || e.Contact < 0 {
					return false
				}
			}
		}
		return true
	})
}

func TestLeadIsStoppedBeforeItStartsAgain(t *testing.T) {
	t.Parallel()
	type event struct {
		id    string
		start bool
	}
	events := make(chan event, 100)
	tc := newCluster(t, 3, func(c *Config) {
		id := c.ID
		c.Lead = func(ctx context.Context) {
			events <- event{id: id, start: true}
			<-ctx.Done()
			events <- event{id: id}
		}
	})
	for range 3 {
		l := tc.leader()
		if err := l.Transfer(t.Context(), ""); err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotLeader) {
			t.Fatal(err)
		}
		eventually(t, "another leader", func() bool { return !l.IsLeader() })
	}
	tc.leader()
	for _, m := range tc.live() {
		tc.stop(m)
	}
	close(events)
	running, starts := map[string]bool{}, 0
	for e := range events {
		if running[e.id] == e.start {
			t.Fatalf("%s: start %v while running is %v", e.id, e.start, running[e.id])
		}
		running[e.id] = e.start
		if e.start {
			starts++
		}
	}
	if starts < 4 {
		t.Errorf("led %d times, want at least 4", starts)
	}
	for id, r := range running {
		if r {
			t.Errorf("Lead on %s outlived Close", id)
		}
	}
}

func TestMinorityRefuses(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, nil)
	l := tc.leader()
	l.write(t, "a", 5)
	tc.agree()
	tc.net.cut([]string{l.cfg.ID})
	// It believes to lead for a moment: a read must find out, a write must not
	// be acknowledged.
	if _, err := l.ReadIndex(t.Context()); err == nil {
		t.Error("a leader without a majority read")
	}
	if _, _, err := l.Apply(t.Context(), []byte("lost")); !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("a leader without a majority wrote: %v", err)
	}
	var others []string
	for _, m := range tc.others(l) {
		others = append(others, m.cfg.ID)
	}
	now := tc.leader(others...)
	now.write(t, "b", 5)
	if _, err := l.ReadIndex(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("the old leader reads: %v", err)
	}
	tc.net.cut()
	if n := tc.agree(); n != 10 {
		t.Errorf("%d commands, want 10: an unacknowledged one may not count here, since its log was cut off", n)
	}
}

func TestSlowFollowerGetsASnapshot(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) { c.TrailingLogs = 4 })
	l := tc.leader()
	slow := tc.others(l)[0]
	tc.stop(slow)
	l.write(t, "a", 50)
	if err := l.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := slow.chain.calls.Load()
	tc.start(slow)
	l.write(t, "b", 5)
	if n := tc.agree(); n != 55 {
		t.Errorf("%d commands, want 55", n)
	}
	if got := slow.log.count("Installed remote snapshot"); got == 0 {
		t.Error("no snapshot was installed")
	}
	if slow.chain.calls.Load()-calls > 10 {
		t.Errorf("%d commands were applied beside the snapshot", slow.chain.calls.Load()-calls)
	}
}
