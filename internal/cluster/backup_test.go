package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, nil)
	l := tc.leader()
	l.write(t, "a", 20)
	var b bytes.Buffer
	if err := tc.others(l)[0].WaitApplied(t.Context(), l.Applied()); err != nil {
		t.Fatal(err)
	}
	if err := tc.others(l)[0].Backup(&b); err != nil { // any node
		t.Fatal(err)
	}
	want, _ := l.sum(t)
	l.write(t, "b", 7)
	backup := b.Bytes()

	// Nothing that is not whole gets in.
	flipped := bytes.Clone(backup)
	flipped[len(flipped)/2] ^= 1
	short := backup[:len(backup)-1]
	wrongIndex := bytes.Clone(backup)
	wrongIndex[19]++
	for name, bad := range map[string][]byte{"empty": nil, "text": []byte(strings.Repeat("not a backup ", 10)), "flipped": flipped, "short": short, "index": wrongIndex} {
		if err := l.Restore(t.Context(), bytes.NewReader(bad)); !errors.Is(err, ErrBadBackup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := tc.agree(); n != 27 {
		t.Errorf("%d commands after bad backups, want 27", n)
	}
	if err := tc.others(l)[0].Restore(t.Context(), bytes.NewReader(backup)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower restored: %v", err)
	}

	if err := l.Restore(t.Context(), bytes.NewReader(backup)); err != nil {
		t.Fatal(err)
	}
	if n := tc.agree(); n != 20 {
		t.Errorf("%d commands after the restore, want 20", n)
	}
	if got, _ := l.sum(t); got != want {
		t.Error("another state than was backed up")
	}
	l.write(t, "c", 5)
	for _, m := range tc.live() { // all at once, and again
		tc.stop(m)
	}
	for _, id := range tc.ids {
		tc.start(tc.m[id])
	}
	if n := tc.agree(); n != 25 {
		t.Errorf("%d commands after restarts, want 25", n)
	}

	// Into another cluster, whose log is shorter than the backup's index.
	other := newCluster(t, 1, nil)
	if err := other.leader().Restore(t.Context(), bytes.NewReader(backup)); err != nil {
		t.Fatal(err)
	}
	o := other.leader()
	o.write(t, "d", 2)
	other.stop(o)
	other.start(o)
	if n := other.agree(); n != 22 {
		t.Errorf("%d commands in another cluster, want 22", n)
	}
	left, _ := filepath.Glob(filepath.Join(o.cfg.Dir, "*-*"))
	if len(left) > 0 {
		t.Errorf("temporary files stayed: %v", left)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, nil)
	l := tc.leader()
	l.write(t, "a", 10)
	if err := l.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write(t, "b", 10)
	tc.agree()
	var kept *member
	for i, m := range tc.live() {
		tc.stop(m)
		if i == 0 {
			kept = m
			continue
		}
		delete(tc.m, m.cfg.ID)
	}
	if err := Recover(kept.cfg, nil); err == nil {
		t.Error("recovered to nobody")
	}
	empty := kept.cfg
	empty.Dir = t.TempDir()
	if err := Recover(empty, []Server{{kept.cfg.ID, kept.address}}); err == nil {
		t.Error("recovered an empty directory")
	}
	if err := Recover(kept.cfg, []Server{{kept.cfg.ID, kept.address}}); err != nil {
		t.Fatal(err)
	}
	tc.start(kept)
	if n := tc.agree(); n != 20 {
		t.Errorf("%d commands after the recovery, want 20", n)
	}
	tc.leader().write(t, "c", 5)
	tc.add("fresh", nil, func(c *Config) { c.Peers = []string{kept.address} })
	eventually(t, "a fresh node to vote", func() bool { return len(tc.leader().voterIDs()) == 2 })
	if n := tc.agree(); n != 25 {
		t.Errorf("%d commands, want 25", n)
	}
}

func TestFilesThatDoNotBelongTogether(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 1, nil)
	l := tc.leader()
	l.write(t, "a", 10)
	tc.stop(l)
	if err := os.Remove(filepath.Join(l.cfg.Dir, "raft.db")); err != nil {
		t.Fatal(err)
	}
	l.cfg.Listener = listen(t, l.address)
	if n, err := Open(l.cfg); err == nil {
		n.Close()
		t.Error("opened a state without its log")
	}
	// The other way round the state is made anew from the log.
	tc = newCluster(t, 1, nil)
	l = tc.leader()
	l.write(t, "a", 10)
	tc.stop(l)
	if err := os.Remove(filepath.Join(l.cfg.Dir, "state.db")); err != nil {
		t.Fatal(err)
	}
	tc.start(l)
	if n := tc.agree(); n != 10 {
		t.Errorf("%d commands, want 10", n)
	}
}
