package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// While a member is of an older version a command of a newer format waits; the
// others go on. When all are upgraded it is applied everywhere, and from then on
// no older version is taken in or opens the state.
func TestFormats(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) {
		if c.ID != "n3" {
			c.Format = 2
		}
	})
	n3 := tc.m["n3"]
	l := tc.leader()
	if l == n3 { // an old leader proposes nothing new, but is not the one to ask here
		if err := l.Transfer(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		l = tc.leader("n1", "n2")
	}
	l.write(t, "old", 5)
	newer := func(cmd string) error {
		_, _, err := tc.leader("n1", "n2").ApplyFormat(t.Context(), 2, []byte(cmd))
		return err
	}
	eventually(t, "the members' formats to be known", func() bool {
		err := newer("too early")
		return errors.Is(err, ErrMixedVersions) && strings.HasSuffix(err.Error(), "upgrade n3")
	})
	l.write(t, "meanwhile", 5)
	if n := tc.agree(); n != 10 {
		t.Fatalf("%d commands, want 10", n)
	}

	tc.stop(n3)
	n3.cfg.Format = 2
	tc.start(n3)
	eventually(t, "the command to be taken after the upgrade", func() bool { return newer("new") == nil })
	tc.leader().write(t, "after", 2)
	if n := tc.agree(); n != 13 {
		t.Fatalf("%d commands, want 13", n)
	}

	// Back to the old version: the state is not for it.
	tc.stop(n3)
	old := n3.cfg
	old.Format, old.Listener = 1, listen(t, n3.address)
	if n, err := Open(old); !errors.Is(err, errTooNew) {
		if err == nil {
			n.Close()
		}
		t.Errorf("an old version opens the state of a newer one: %v", err)
	}
	tc.start(n3)
	fresh := tc.add("n4", nil, func(c *Config) { c.Peers, c.Format = []string{l.address}, 1 })
	eventually(t, "an old newcomer to be refused", func() bool { return fresh.log.count("cannot join") > 0 })
	tc.stop(fresh)
	delete(tc.m, "n4")
	tc.agree()
}

// A node that meets an entry that it does not know stops rather than have
// another state than the others.
func TestUnknownFormatStopsTheNode(t *testing.T) {
	s, err := openState(filepath.Join(t.TempDir(), "state.db"), &chain{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.apply([]*raft.Log{{Index: 5, Term: 2, Data: append([]byte{cmdFormat, 2}, "known"...)}})
	if s.format() != 2 {
		t.Errorf("the state is of format %d, want 2", s.format())
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "upgrade this node") {
			t.Errorf("an entry of format 3: %v", r)
		}
		if _, n := stateSum(t, s); n != 1 {
			t.Errorf("%d commands in the state, want 1", n)
		}
	}()
	s.apply([]*raft.Log{{Index: 6, Term: 2, Data: append([]byte{cmdFormat, 3}, "unknown"...)}})
}
