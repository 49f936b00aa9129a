// Package clienttest is a cluster in the process of a test, for tests of clients:
// a coordinator whose state is not replicated, its data sets, and workers. Its port
// for clients can be closed, and calls of clients can be made to fail.
package clienttest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/worker"
)

// Cluster is a cluster. It ends with its test.
type Cluster struct {
	Group *coordinatortest.Group // its coordinators, as clients see them

	t      testing.TB
	faults faults
	node   *coordinatortest.Node
	coord  *coordinator.Coordinator
	store  *blob.Store
	data   *blobnet.Service
	// latents is the service of what no chain here has.
	latents *blobnet.Service

	addr    string // of the port for clients
	inner   string // of the port for workers, which stays open
	workers pb.WorkersClient
	close   func() // of the port for clients
}

// New starts a cluster without workers.
func New(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{Group: coordinatortest.NewGroup("c1", "c2", "c3"), t: t, faults: newFaults(), node: coordinatortest.NewNode(t), addr: "127.0.0.1:0"}
	dial := rpc.Dialer(nil)
	var err error
	if c.coord, err = coordinator.New(coordinator.Config{Node: c.node, Machine: c.node.Machine(), Dir: t.TempDir(), Dial: dial}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.coord.Close)
	if c.store, err = blob.Open(t.TempDir(), blob.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	self := func() []blobnet.Peer { return []blobnet.Peer{{ID: c.node.ID()}} }
	alone := func(blobnet.Peer) (pb.DataClient, error) { return nil, errors.New("there is no other coordinator") }
	c.data, err = blobnet.New(blobnet.Config{Store: c.store, Self: c.node.ID(), Registry: c.coord.Registry(self), Access: c.coord.Access(),
		Dial: alone})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.data.Close)
	if c.latents, err = blobnet.New(blobnet.Config{Store: c.store, Self: c.node.ID(), Registry: c.coord.Latents(self, time.Minute), Dial: alone}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.latents.Close)
	var end func()
	c.inner, end = c.serve("127.0.0.1:0", grpc.UnaryInterceptor(c.coord.Forward), grpc.StreamInterceptor(c.coord.ForwardStream))
	t.Cleanup(end)
	conn, err := dial(c.inner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c.workers = pb.NewWorkersClient(conn)
	c.background(func(ctx context.Context) error { c.coord.Lead(ctx); return nil })
	c.Start()
	t.Cleanup(c.Stop)
	return c
}

// background runs f until stop is called, or the test ends.
func (c *Cluster) background(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// serve listens at an address, and returns it and what ends that.
func (c *Cluster) serve(addr string, opts ...grpc.ServerOption) (string, func()) {
	c.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	s, _ := rpc.NewServer(nil, func(s *grpc.Server) {
		c.coord.Register(s)
		pb.RegisterDataServer(s, c.data)
		pb.RegisterLatentsServer(s, c.latents.Latents())
		coordinator.RegisterCluster(s, c.Group)
	}, opts...)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return l.Addr().String(), sync.OnceFunc(func() { s.Stop(); <-done })
}

// Addr returns the address for clients, which stays the same over restarts.
func (c *Cluster) Addr() string { return c.addr }

// Start opens the port for clients again after Stop.
func (c *Cluster) Start() {
	c.addr, c.close = c.serve(c.addr, grpc.ChainUnaryInterceptor(c.faults.unary, c.coord.Forward), grpc.ChainStreamInterceptor(c.faults.stream, c.coord.ForwardStream))
}

// Stop closes the port for clients and breaks their connections. Jobs go on.
func (c *Cluster) Stop() { c.close() }

// Work starts a worker, which ends with the test or when stop is called.
func (c *Cluster) Work(id string) (stop func()) {
	c.t.Helper()
	w, err := worker.New(worker.Config{ID: id, Coordinators: []string{c.inner}, Budget: parallel.NewBudget(1), Dial: rpc.Dialer(nil), Open: c.open})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.background(w.Run)
}

// open opens a table where the coordinator keeps it.
func (c *Cluster) open(_ context.Context, address, path string) (io.ReadCloser, error) {
	if address == "" {
		return os.Open(path)
	}
	return c.store.Open(address)
}

// Connect begins the session of a worker that does nothing. It ends with the test
// or when leave is called, which returns when the worker is lost.
func (c *Cluster) Connect(h *pb.Hello) (send func(*pb.Beat), leave func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := c.workers.Connect(ctx)
	if err == nil {
		err = s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: h}})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.await(h.Id, true)
	leave = sync.OnceFunc(func() {
		cancel()
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
		}
		c.await(h.Id, false)
	})
	c.t.Cleanup(leave)
	return func(b *pb.Beat) {
		if err := s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Beat{Beat: b}}); err != nil {
			c.t.Error(err)
		}
	}, leave
}

// await waits until a worker is connected, or is not.
func (c *Cluster) await(id string, connected bool) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r, err := c.workers.List(context.Background(), &pb.ListWorkersRequest{})
		if err != nil {
			c.t.Error(err)
			return
		}
		for _, w := range r.Workers {
			if w.Id == id && w.Connected == connected {
				return
			}
		}
	}
	c.t.Errorf("after a minute the worker %s is not connected, or still is", id)
}

// Log hands in lines of a job's log as the leader copies those of a worker.
func (c *Cluster) Log(job string, chain int, worker string, lines ...string) {
	c.t.Helper()
	if _, err := c.workers.Log(rpc.Mark(context.Background(), rpc.Forwarded), &pb.LogRequest{Job: job, Chain: int32(chain), Worker: worker, Lines: lines}); err != nil {
		c.t.Error(err)
	}
}

// Apply changes the state by a command that is given at a time.
func (c *Cluster) Apply(at time.Time, cmd state.Command) {
	c.t.Helper()
	text, err := state.Encode(at, cmd)
	if err == nil {
		_, err = c.node.Apply(context.Background(), text)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Job returns a job as it is.
func (c *Cluster) Job(id string) *pb.Job {
	c.t.Helper()
	j, err := c.coord.Jobs().Get(context.Background(), &pb.GetJobRequest{Id: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return j
}

// Newest returns the id of the job that was submitted last.
func (c *Cluster) Newest() string {
	c.t.Helper()
	r, err := c.coord.Jobs().List(context.Background(), &pb.ListJobsRequest{PageSize: 1})
	if err != nil || len(r.Jobs) == 0 {
		c.t.Fatal(r, err)
	}
	return r.Jobs[0].Id
}
