package server

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

const leakSpec = `
name: test
data: {synthetic: {n: 40, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: fisher, chains: 2, warmup: 40, draws: %d, checkpoint: 5}
solver: {tolerance: 1e-3, preconditioner: {kind: rpcholesky, rank: 10}}
stop: {rhat: 1.05, ess: 1e9, max_draws: %d, max_time: 10m}
`

// running is a process of a cluster, in this one.
type running struct {
	address string
	conn    *grpc.ClientConn
}

// start runs f until the test ends.
func start(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func connect(t *testing.T, address string) running {
	t.Helper()
	conn, err := rpc.Dialer(nil)(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return running{address, conn}
}

// startCoordinator runs a coordinator alone.
func startCoordinator(t *testing.T) running {
	t.Helper()
	ready := make(chan string, 1)
	c := Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		Grace: time.Minute, DiskReserve: 1, Logger: slog.New(slog.DiscardHandler), Ready: func(grpc, _, _ string) { ready <- grpc }}
	start(t, c.Run)
	r := connect(t, <-ready)
	eventually(t, "a leader", func() bool {
		_, err := pb.NewJobsClient(r.conn).List(t.Context(), &pb.ListJobsRequest{})
		return err == nil
	})
	return r
}

// startWorker runs a worker that talks with a coordinator.
func startWorker(t *testing.T, id, coordinator string) {
	t.Helper()
	w := Worker{ID: id, Dir: t.TempDir(), Coordinators: []string{coordinator}, Listen: "127.0.0.1:0", Cores: 1, Logger: slog.New(slog.DiscardHandler)}
	start(t, w.Run)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within ten minutes", what)
		}
	}
}

// fakeWorker is the worker's end of a session, which does nothing by itself.
type fakeWorker struct {
	t       *testing.T
	workers pb.WorkersClient
	drives  chan *pb.Placement
}

// newFakeWorker connects until the test ends.
func newFakeWorker(t *testing.T, r running, id, isa string) *fakeWorker {
	t.Helper()
	w := &fakeWorker{t: t, workers: pb.NewWorkersClient(r.conn), drives: make(chan *pb.Placement, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := w.workers.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hello := &pb.Hello{Id: id, Address: "127.0.0.1:1", Capacity: &pb.Capacity{Cores: 4, InstructionSet: isa}}
	if err := s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			if p := m.GetDrive().GetPlacement(); p != nil {
				select {
				case w.drives <- proto.CloneOf(p):
				case <-ctx.Done(): // nobody asks any more
					return
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// driven returns the placement of a chain, once the worker has been told.
func (w *fakeWorker) driven(job string, chain int32) *pb.Placement {
	w.t.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case p := <-w.drives:
			if p.Job == job && p.Chain == chain {
				return p
			}
		case <-end:
			w.t.Fatalf("chain %d of job %s is not placed", chain, job)
		}
	}
}

func submit(t *testing.T, r running, draws int) string {
	t.Helper()
	j, err := pb.NewJobsClient(r.conn).Submit(t.Context(), &pb.SubmitRequest{Spec: fmt.Sprintf(leakSpec, draws, draws)})
	if err != nil {
		t.Fatal(err)
	}
	return j.Id
}
