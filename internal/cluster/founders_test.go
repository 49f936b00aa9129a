package cluster

import (
	"errors"
	"net"
	"slices"
	"testing"
)

// TestFoundersAmongJoiners: nodes that were started too early to join, as a
// StatefulSet with more replicas than founders starts them, keep nobody from
// founding.
func TestFoundersAmongJoiners(t *testing.T) {
	t.Parallel()
	for _, founders := range []int{1, 3} {
		tc := &testCluster{t: t, net: newFabric(), m: map[string]*member{}}
		t.TempDir() // see newCluster
		t.Cleanup(func() {
			for _, m := range tc.m {
				tc.stop(m)
			}
		})
		ids := []string{"n1", "n2", "n3", "n4", "n5"}
		var listeners []net.Listener
		var all []string
		for range ids {
			l := listen(t, "127.0.0.1:0")
			listeners, all = append(listeners, l), append(all, l.Addr().String())
		}
		for i := len(ids) - 1; i >= 0; i-- { // joiners first
			tc.add(ids[i], listeners[i], func(c *Config) {
				c.Peers = all
				if i < founders {
					c.BootstrapExpect = founders
				}
			})
		}
		eventually(t, "one cluster of all", func() bool {
			for _, m := range tc.live() {
				if v := m.voterIDs(); !slices.Equal(v, ids) {
					return false
				}
			}
			return true
		})
	}
}

// TestLoneFounderJoins: a node that was told to found a cluster alone, but
// reaches one, joins it.
func TestLoneFounderJoins(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 1, nil)
	first := tc.leader()
	second := tc.add("n2", nil, func(c *Config) { c.BootstrapExpect, c.Peers = 1, []string{first.address} })
	eventually(t, "two voters", func() bool { return slices.Equal(second.voterIDs(), []string{"n1", "n2"}) })
}

// A founding that is cut short, between raft's two writes, is begun anew when the node is opened
// again.
func TestFoundingIsCutShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := alone(t, dir)
	tried := make(chan struct{}, 100)
	c.seam = func(point string) error {
		if point == "log store" {
			tried <- struct{}{}
			return errors.New("the power fails")
		}
		return nil
	}
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	<-tried
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err = Open(alone(t, dir)); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	eventually(t, "a leader", func() bool { _, err := n.ReadIndex(t.Context()); return err == nil })
}
