// Package coordinatortest has a stand-in for replicated nodes, for tests: a state
// that one node leads and others follow, in one process.
package coordinatortest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// shared is a state in a bbolt database.
type shared struct {
	db      *bbolt.DB
	machine *state.Machine
	mu      sync.Mutex
	index   uint64
	changed chan struct{}
	leader  *Node  // nil for none
	address string // of its RPCs
}

// Node is a node of a shared state. The first one leads until told otherwise.
type Node struct {
	*shared
	id string
}

// NewNode returns a node that leads, with a state in a temporary folder.
func NewNode(t testing.TB) *Node {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "state.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	m := state.NewMachine()
	if err := db.Update(m.Init); err != nil {
		t.Fatal(err)
	}
	n := &Node{shared: &shared{db: db, machine: m, changed: make(chan struct{})}, id: "alone"}
	n.leader = n
	return n
}

// Follower returns a node of the same state that follows.
func (n *Node) Follower(id string) *Node { return &Node{shared: n.shared, id: id} }

// Lead makes the node the leader, whose RPCs are at an address.
func (n *Node) Lead(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leader, n.address = n, address
}

// Lose takes the leadership from whoever has it.
func (n *Node) Lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leader, n.address = nil, ""
}

// ID returns the node's id.
func (n *Node) ID() string { return n.id }

// Machine returns the machine that applies commands.
func (n *Node) Machine() *state.Machine { return n.machine }

// Apply applies a command.
func (n *Node) Apply(_ context.Context, command []byte) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leader != n {
		return nil, cluster.ErrNotLeader
	}
	var out any
	n.index++
	err := n.db.Update(func(tx *bbolt.Tx) error {
		out = n.machine.Apply(tx, n.index, command)
		if err, ok := out.(error); ok {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	close(n.changed)
	n.changed = make(chan struct{})
	return out, nil
}

// View reads the state.
func (n *Node) View(f func(*bbolt.Tx) error) error { return n.db.View(f) }

// Break changes the state beside all commands, as a disk may do.
func (n *Node) Break(f func(*bbolt.Tx) error) error { return n.db.Update(f) }

// Changed returns a channel that is closed when the state next changes.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// ReadIndex returns the index of the last command. Only the leader can.
func (n *Node) ReadIndex(context.Context) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leader != n {
		return 0, cluster.ErrNotLeader
	}
	return n.index, nil
}

// WaitApplied returns at once.
func (n *Node) WaitApplied(context.Context, uint64) error { return nil }

// IsLeader reports whether the node leads.
func (n *Node) IsLeader() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader == n
}

// Leader returns the leader's id and address, empty if there is none.
func (n *Node) Leader() (id, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leader == nil {
		return "", ""
	}
	return n.leader.id, n.address
}

// Age returns 0.
func (n *Node) Age() time.Duration { return 0 }
