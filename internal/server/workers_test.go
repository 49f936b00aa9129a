package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
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

// A worker tells when it has joined; one that is refused says why and what to do, in its
// log and at its private port.
func TestWorkersTellWhetherTheyAreIn(t *testing.T) {
	g := startGuarded(t, 1, nil)
	for id, c := range map[string]struct{ token, want string }{
		"none":   {"", `reason="no token was sent`},
		"viewer": {g.token("ann", "viewer").Secret, `reason="Connect is for the cluster's own nodes: workers" do="give the token of a worker with --token-file`},
		"right":  {g.token("w", "worker").Secret, `msg="joined the cluster" coordinator=` + g.grpc[0]},
	} {
		l, private := &logBuffer{}, unwired(t)
		start(t, Worker{ID: id, Dir: t.TempDir(), Coordinators: g.grpc, Token: c.token, Listen: "127.0.0.1:0", Cores: 1, Monitor: private,
			Logger: slog.New(slog.NewTextHandler(l, nil))}.Run)
		eventually(t, id, func() bool { return strings.Contains(l.String(), c.want) })
		if id == "right" {
			if strings.Contains(l.String(), "not in the cluster") {
				t.Errorf("a worker that is in: %s", l)
			}
			continue
		}
		eventually(t, id+": the reason at the private port", func() bool {
			code, text := probe(private, "/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(text, "no session with the leading coordinator: ")
		})
		if strings.Contains(l.String(), "joined") {
			t.Errorf("a worker that was refused: %s", l)
		}
	}
}
