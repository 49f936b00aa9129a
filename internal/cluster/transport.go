package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// transport is raft's network transport with one change: an AppendEntries whose
// preceding entry is the last of our newest snapshot is not checked against the
// log, which may hold an entry of another history there (see snapshotStore).
type transport struct {
	*raft.NetworkTransport
	holds func(index, term uint64) bool
	rpcs  chan raft.RPC
	stop  func()
}

func newTransport(inner *raft.NetworkTransport, holds func(index, term uint64) bool) *transport {
	done, ended := make(chan struct{}), make(chan struct{})
	t := &transport{NetworkTransport: inner, holds: holds, rpcs: make(chan raft.RPC)}
	t.stop = sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	go func() {
		defer close(ended)
		t.forward(done)
	}()
	return t
}

// Consumer returns the requests for raft.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// Close closes the transport with all its connections.
func (t *transport) Close() error {
	t.stop()
	return t.NetworkTransport.Close()
}

func (t *transport) forward(done <-chan struct{}) {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && t.holds(a.PrevLogEntry, a.PrevLogTerm) {
				a.PrevLogEntry, a.PrevLogTerm = 0, 0 // none: nothing to check
			}
			select {
			case t.rpcs <- rpc:
			case <-done:
				return
			}
		case <-done:
			return
		}
	}
}
