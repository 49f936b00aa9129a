package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func (m *member) voterIDs() (out []string) {
	list, _ := m.Members(context.Background())
	for _, e := range list {
		if e.Voter {
			out = append(out, e.ID)
		}
	}
	return out
}

func TestJoinPromoteDemoteRemove(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 1, nil)
	l := tc.leader()
	l.write(t, "a", 10)
	n2 := tc.add("n2", nil, nil) // knows nobody: it is joined by hand
	n3 := tc.add("n3", nil, func(c *Config) { c.Peers = []string{l.address} })
	eventually(t, "n3 to join by itself and vote", func() bool { return slices.Contains(l.voterIDs(), "n3") })

	s2 := Server{"n2", n2.address}
	if err := n3.Join(t.Context(), s2, true); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower took a member in: %v", err)
	}
	for range 2 { // the second time it is a member already
		if err := l.Join(t.Context(), s2, true); err != nil {
			t.Fatal(err)
		}
	}
	tc.agree()
	if v := l.voterIDs(); !slices.Equal(v, []string{"n1", "n3"}) {
		t.Errorf("voters %v", v)
	}
	if err := l.Promote(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n2 to vote", func() bool { return slices.Contains(l.voterIDs(), "n2") })
	if err := l.Demote(t.Context(), "n2", false); err != nil {
		t.Fatal(err)
	}
	if v := l.voterIDs(); slices.Contains(v, "n2") {
		t.Errorf("voters %v after n2 was demoted", v)
	}
	// Another node with the id of one takes its place.
	tc.stop(n2)
	delete(tc.m, "n2")
	n2 = tc.add("n2", nil, nil)
	if err := l.Join(t.Context(), Server{"n2", n2.address}, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new n2 to vote", func() bool { return slices.Contains(l.voterIDs(), "n2") })
	l.write(t, "b", 3)
	if n := tc.agree(); n != 13 {
		t.Errorf("%d commands, want 13", n)
	}

	if err := l.Remove(t.Context(), "n3", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n3 to be refused", func() bool { return n3.log.count("cannot join") > 0 })
	if v := l.voterIDs(); slices.Contains(v, "n3") {
		t.Errorf("n3 came back by itself: %v", v)
	}
	if err := l.Remove(t.Context(), "nobody", false); !errors.Is(err, ErrNoMember) {
		t.Errorf("removing nobody: %v", err)
	}
	if err := l.Join(t.Context(), Server{"n3", n3.address}, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n3 to vote again", func() bool { return slices.Contains(l.voterIDs(), "n3") })
	tc.agree()
}

func TestLeave(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, nil)
	l := tc.leader()
	l.write(t, "a", 3)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	tc.stop(l)
	delete(tc.m, l.cfg.ID)
	now := tc.leader()
	eventually(t, "two voters", func() bool { return len(now.voterIDs()) == 2 && !slices.Contains(now.voterIDs(), l.cfg.ID) })
	now.write(t, "b", 3)
	if n := tc.agree(); n != 6 {
		t.Errorf("%d commands, want 6", n)
	}
}

func TestDeadMembersAreRemovedWhileQuorumStays(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) { c.GracePeriod = 4 * testHeartbeat })
	l := tc.leader()
	l.write(t, "a", 3)
	tc.agree()
	dead, last := tc.others(l)[0], tc.others(l)[1]
	tc.stop(dead)
	eventually(t, "the dead member's removal", func() bool {
		l = tc.leader()
		return len(l.voterIDs()) == 2
	})
	// Of two, one is no majority: nobody is removed.
	if l == last {
		last = tc.others(l)[0]
	}
	tc.stop(last)
	eventually(t, "the leader to step down", func() bool { return !l.IsLeader() })
	time.Sleep(6 * testHeartbeat)
	if v := l.servers(); len(v) != 2 {
		t.Errorf("members %v after the majority was lost", v)
	}
	tc.start(last)
	tc.start(dead) // it comes back by itself
	eventually(t, "three voters", func() bool { return len(tc.leader().voterIDs()) == 3 })
	tc.leader().write(t, "b", 3)
	if n := tc.agree(); n != 6 {
		t.Errorf("%d commands, want 6", n)
	}
}

func TestBootstrapByName(t *testing.T) {
	t.Parallel()
	// Three nodes behind one name; on loopback they need one port and three
	// addresses.
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skip("this system has one loopback address only")
	} else {
		l.Close()
	}
	tc := &testCluster{t: t, net: newFabric(), m: map[string]*member{}}
	t.TempDir()
	t.Cleanup(func() {
		for _, m := range tc.m {
			tc.stop(m)
		}
	})
	first := listen(t, "127.0.0.1:0")
	port := first.Addr().String()[strings.LastIndex(first.Addr().String(), ":"):]
	set := func(c *Config) {
		c.BootstrapExpect, c.Peers = 3, []string{"nodes.test" + port}
		c.Resolve = func(_ context.Context, host string) ([]string, error) {
			if host != "nodes.test" {
				return nil, errors.New("unknown host " + host)
			}
			return []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, nil
		}
	}
	n1 := tc.add("n1", first, set)
	n2 := tc.add("n2", listen(t, "127.0.0.2"+port), set)
	time.Sleep(2 * testHeartbeat)
	if len(n1.servers())+len(n2.servers()) > 0 {
		t.Error("two of three founded a cluster")
	}
	tc.add("n3", listen(t, "127.0.0.3"+port), set)
	l := tc.leader()
	if v := l.voterIDs(); !slices.Equal(v, []string{"n1", "n2", "n3"}) {
		t.Errorf("voters %v", v)
	}
	l.write(t, "a", 3)
	tc.agree()
}

func TestCandidatesWithOneID(t *testing.T) {
	var c candidates
	c.init(Server{"a", "x:1"})
	for _, s := range []struct {
		Server
		ok bool
	}{{Server{"b", "x:2"}, true}, {Server{"b", "x:2"}, true}, {Server{"b", "x:3"}, false}, {Server{"a", "x:9"}, false}} {
		if c.add(s.Server) != s.ok {
			t.Errorf("%v taken: %v, want %v: an id has one address", s.Server, !s.ok, s.ok)
		}
	}
	if got := c.list(); !slices.Equal(got, []Server{{"a", "x:1"}, {"b", "x:2"}}) {
		t.Errorf("%v", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := Open(Config{}); err == nil || !strings.Contains(err.Error(), "needs an ID") {
		t.Errorf("an empty configuration: %v", err)
	}
	l := listen(t, "127.0.0.1:0")
	_, err := Open(Config{ID: "a", Dir: t.TempDir(), Machine: &chain{}, Listener: l, Advertise: "nowhere", Peers: []string{"x"}})
	if err == nil || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("bad addresses: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener stayed open")
	}
}
