package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Close waits for the heartbeat that raft is handling, and lets none through afterwards: raft panics where it finds its store closed.
func TestNoHeartbeatAfterClose(t *testing.T) {
	layer, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tr := newTransport(layer, func(uint64, uint64) bool { return false })
	handling, goOn, handled := make(chan struct{}), make(chan struct{}), make(chan struct{})
	tr.SetHeartbeatHandler(func(rpc raft.RPC) {
		close(handling) // a second heartbeat would panic
		<-goOn
		close(handled)
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	})
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("a"), Addr: []byte("a")}
	beat := func() error {
		return client.AppendEntries("b", tr.LocalAddr(), &raft.AppendEntriesRequest{RPCHeader: header, Term: 1}, &raft.AppendEntriesResponse{})
	}
	go beat()
	<-handling
	closed := make(chan error)
	go func() { closed <- tr.Close() }()
	select {
	case <-closed:
		t.Fatal("closed while a heartbeat is handled")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	<-handled
	response := make(chan raft.RPCResponse, 1)
	tr.heartbeat(raft.RPC{RespChan: response}, func(raft.RPC) { t.Error("a heartbeat after the end") })
	if r := <-response; !errors.Is(r.Error, raft.ErrTransportShutdown) {
		t.Errorf("%v", r.Error)
	}
}
