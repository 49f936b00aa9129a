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

	beating sync.RWMutex // held, for reading, while raft handles a heartbeat
	closed  bool
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

// SetHeartbeatHandler has raft handle heartbeats on the routines of connections, as long as the transport is open: such a routine
// may outlive its connection, and raft panics where it finds its store closed.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) { t.heartbeat(rpc, handle) })
}

func (t *transport) heartbeat(rpc raft.RPC, handle func(raft.RPC)) {
	t.beating.RLock()
	defer t.beating.RUnlock()
	if t.closed {
		rpc.Respond(nil, raft.ErrTransportShutdown)
		return
	}
	handle(rpc)
}

// Close closes the transport with all its connections. No heartbeat is being handled afterwards.
func (t *transport) Close() error {
	t.stop()
	t.beating.Lock()
	t.closed = true
	t.beating.Unlock()
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
