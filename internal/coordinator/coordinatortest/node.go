// Package coordinatortest has a stand-in for a replicated node, for tests.
package coordinatortest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Node is a state of its own in a bbolt database, which always leads.
type Node struct {
	db      *bbolt.DB
	machine *state.Machine
	mu      sync.Mutex
	index   uint64
	changed chan struct{}
}

// NewNode returns a node that keeps its state in a temporary folder.
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
	return &Node{db: db, machine: m, changed: make(chan struct{})}
}

// ID returns the node's id.
func (n *Node) ID() string { return "alone" }

// Apply applies a command.
func (n *Node) Apply(_ context.Context, command []byte) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
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

// Changed returns a channel that is closed when the state next changes.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// ReadIndex returns the index of the last command.
func (n *Node) ReadIndex(context.Context) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.index, nil
}

// WaitApplied returns at once.
func (n *Node) WaitApplied(context.Context, uint64) error { return nil }

// IsLeader returns true.
func (n *Node) IsLeader() bool { return true }

// Leader returns the node.
func (n *Node) Leader() (id, address string) { return n.ID(), "" }

// Age returns 0.
func (n *Node) Age() time.Duration { return 0 }
