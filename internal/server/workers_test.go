package server

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
)

// hello says hello as a worker, and returns how the session ends: with an error, or
// at the end of the test, when it is nil.
func hello(t *testing.T, conn *grpc.ClientConn, id string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := pb.NewWorkersClient(conn).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: &pb.Hello{Id: id, Address: "127.0.0.1:1", Capacity: &pb.Capacity{Cores: 1}}}})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Recv()
		ended <- err
	}()
	select {
	case err := <-ended:
		cancel()
		return err
	case <-time.After(300 * time.Millisecond):
		t.Cleanup(func() { cancel(); <-ended })
		return nil
	}
}

// A worker has the name of its certificate, and while it is connected nobody who
// shows something else gets its name.
func TestWorkersAreWhoTheyShow(t *testing.T) {
	g := startGuarded(t, 1, nil)
	one, two := g.as(0, g.token("one", "worker").Secret), g.as(0, g.token("two", "worker").Secret)
	if err := hello(t, one, "w1"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "another token under the name of a worker", hello(t, two, "w1"), codes.AlreadyExists, "there is a worker w1 already")
	if err := hello(t, two, "w2"); err != nil {
		t.Error(err)
	}
	if err := hello(t, one, "w1"); err != nil { // it has lost its connection, and is back
		t.Error(err)
	}

	ca := certstest.New(t)
	ready := make(chan string, 1)
	start(t, Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1, Grace: time.Minute, DiskReserve: 1,
		Logger: slog.New(slog.DiscardHandler), Security: Security{Files: ca.Files("coordinator", "alone")}, Ready: func(grpc, _, _ string) { ready <- grpc }}.Run)
	at := <-ready
	as := func(name string) *grpc.ClientConn {
		return dialAs(t, ca.Source("worker", name), at, identity.Coordinator)
	}
	eventually(t, "a leader", func() bool { return hello(t, as("w1"), "w1") == nil })
	wantCode(t, "a worker under another name", hello(t, as("w1"), "w2"), codes.PermissionDenied, "that of the worker w1, not of w2")
	if err := hello(t, as(""), "w3"); err != nil { // one that several share
		t.Error(err)
	}
	wantCode(t, "a shared certificate under the name of a worker", hello(t, as(""), "w1"), codes.AlreadyExists, "there is a worker w1 already")
}
