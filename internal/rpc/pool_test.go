package rpc

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A connection that nobody has used for minutes is closed; one over which a call is under way is not,
// nor one that was asked for lately.
func TestPool(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := NewServer(nil, func(*grpc.Server) {})
	go s.Serve(l)
	defer s.Stop()
	p := NewPool(Dialer(nil))
	defer p.Close()
	now := time.Now()
	p.now = func() time.Time { return now }
	conn := func(address string) *grpc.ClientConn {
		t.Helper()
		c, err := p.Conn(address)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	busy, gone, late := conn(l.Addr().String()), conn("gone:1"), conn("late:1")
	stream, err := healthpb.NewHealthClient(busy).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(unused - time.Second)
	if conn("late:1") != late {
		t.Error("a connection that is used is replaced")
	}
	now = now.Add(2 * unused / 5)
	other := conn("other:1")
	if gone.GetState() != connectivity.Shutdown {
		t.Errorf("one that nobody uses is %v", gone.GetState())
	}
	if busy.GetState() != connectivity.Ready || conn(l.Addr().String()) != busy {
		t.Errorf("one with a call under way is %v", busy.GetState())
	}
	if conn("late:1") != late || late.GetState() == connectivity.Shutdown {
		t.Error("one that was asked for lately is closed")
	}
	if conn("gone:1") == gone {
		t.Error("a closed connection is handed out")
	}
	p.Close()
	if _, err := p.Conn("gone:1"); err == nil || other.GetState() != connectivity.Shutdown {
		t.Errorf("a closed pool: %v, a connection that is %v", err, other.GetState())
	}
}
