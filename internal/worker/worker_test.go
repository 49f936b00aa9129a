package worker

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const specText = `
name: test
data: {synthetic: {n: 150, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: fisher, chains: 3, warmup: 20, draws: %d, checkpoint: 10}
solver: {tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.05, ess: 1e9, max_draws: %d, max_time: 10m}
`

// undisturbed returns the hash of the draws of a specification run alone.
func undisturbed(t *testing.T, text string) string {
	t.Helper()
	s, err := job.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}
	budget := parallel.NewBudget(2)
	ds, err := s.Load(t.Context(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(ds)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Plan(p.Model.Names(), len(p.Y))
	d := driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
		Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})
	r, _, err := local.Run(t.Context(), local.Config{Plan: plan, Driver: d, Budget: budget, Journal: filepath.Join(t.TempDir(), "journal")})
	if err != nil {
		t.Fatal(err)
	}
	return report.DrawsSHA256(r)
}

// cluster is a coordinator with a state of its own, and workers that come and
// go.
type cluster struct {
	coord      *coordinator.Coordinator // the last that was started
	checkEvery int
	t          *testing.T
	node       *coordinatortest.Node
	address    string // of the coordinator
	stop       func() // stops it
	jobs       pb.JobsClient
	workers    pb.WorkersClient
	conn       *grpc.ClientConn
	// faulty, if set, makes calls of workers; it must be set before there are any.
	faulty func(ctx context.Context, method string, call func() (any, error)) (any, error)
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newChecking(t, -1)
}

// newChecking is newCluster where one in so many checkpoints is computed again.
func newChecking(t *testing.T, every int) *cluster {
	t.Helper()
	c := &cluster{t: t, node: coordinatortest.NewNode(t), checkEvery: every}
	c.address, c.stop = c.serve(c.node, "127.0.0.1:0", true)
	conn, err := dial(c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c.conn, c.jobs, c.workers = conn, pb.NewJobsClient(conn), pb.NewWorkersClient(conn)
	return c
}

// serve runs a coordinator at an address until the test ends, or stop is called.
func (c *cluster) serve(node *coordinatortest.Node, address string, leads bool) (at string, stop func()) {
	c.t.Helper()
	coord, err := coordinator.New(coordinator.Config{Node: node, Dir: c.t.TempDir(), Dial: dial, Grace: time.Second, CheckEvery: c.checkEvery})
	c.coord = coord
	if err != nil {
		c.t.Fatal(err)
	}
	lis, err := net.Listen("tcp", address)
	if err != nil {
		c.t.Fatal(err)
	}
	if at = lis.Addr().String(); leads {
		node.Lead(at)
	}
	faults := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		call := func() (any, error) { return h(ctx, req) }
		if c.faulty == nil || !strings.HasPrefix(info.FullMethod, "/ulisse.v1.Workers/") {
			return call()
		}
		return c.faulty(ctx, filepath.Base(info.FullMethod), call)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(faults, coord.Forward), grpc.StreamInterceptor(coord.ForwardStream))
	coord.Register(s)
	coordinator.RegisterCluster(s, coordinatortest.NewGroup("alone"))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(lis) })
	wg.Go(func() { lead(ctx, coord, node) })
	stop = sync.OnceFunc(func() {
		cancel()
		s.Stop()
		wg.Wait()
		coord.Close()
	})
	c.t.Cleanup(stop)
	return at, stop
}

// lead lets a coordinator decide whenever its node leads.
func lead(ctx context.Context, c *coordinator.Coordinator, node *coordinatortest.Node) {
	const look = 5 * time.Millisecond
	for ; ctx.Err() == nil; time.Sleep(look) {
		if !node.IsLeader() {
			continue
		}
		term, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); c.Lead(term) }()
		for ctx.Err() == nil && node.IsLeader() {
			time.Sleep(look)
		}
		end()
		<-done
	}
}

func (c *cluster) config(id string, coordinators ...string) Config {
	return Config{ID: id, Coordinators: append([]string{c.address}, coordinators...), Budget: parallel.NewBudget(1), Dial: dial}
}

// worker starts a worker and returns a function that ends it at once.
func (c *cluster) worker(id string, coordinators ...string) (w *Worker, kill func()) {
	c.t.Helper()
	return c.run(c.config(id, coordinators...))
}

// rowWorker returns a worker that computes products for others, and drives nothing.
func (c *cluster) rowWorker(id string) *Worker {
	c.t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := c.config(id)
	cfg.Address, cfg.Meter, cfg.MinRows = lis.Addr().String(), &shard.Meter{}, 1
	cfg.Peers = shard.NewPool(cfg.Meter, grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.t.Cleanup(func() { cfg.Peers.Close() })
	w, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { w.jobs.close(); w.coords.pool.Close() })
	s := grpc.NewServer(shard.ServerOptions()...)
	pb.RegisterTilesServer(s, shard.NewServer(shard.ServerConfig{Source: w, Budget: cfg.Budget, Meter: cfg.Meter, Peers: cfg.Peers}))
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(lis) }()
	c.t.Cleanup(func() { s.Stop(); <-done })
	return w
}

// run runs a worker until the test ends, or kill is called.
func (c *cluster) run(cfg Config) (w *Worker, kill func()) {
	c.t.Helper()
	w, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	kill = func() { cancel(); <-done }
	c.t.Cleanup(kill)
	return w, kill
}

func (c *cluster) submit(text string) string {
	c.t.Helper()
	j, err := c.jobs.Submit(c.t.Context(), &pb.SubmitRequest{Spec: text})
	if err != nil {
		c.t.Fatal(err)
	}
	return j.Id
}

// end waits for the end of a job.
func (c *cluster) end(id string) *pb.Job {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.jobs.Watch(ctx, &pb.WatchRequest{Id: id})
	if err != nil {
		c.t.Fatal(err)
	}
	var last *pb.Job
	for {
		j, err := s.Recv()
		if err != nil {
			if last == nil || last.DrawsSha256 == "" {
				c.t.Fatalf("watching: %v, last %v", err, last)
			}
			return last
		}
		last = j
	}
}

func (c *cluster) wait(what string, f func() bool) {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// The draws are those of a run alone, on one worker and on three, with workers
// that die, are drained, and join.
func TestSameDrawsOnAnyWorkers(t *testing.T) {
	text := fmt.Sprintf(specText, 60, 60)
	want := undisturbed(t, text)
	check := func(t *testing.T, c *cluster, id string) {
		t.Helper()
		j := c.end(id)
		if j.State != pb.JobState_JOB_STATE_UNCONVERGED || j.StopReason != "max_draws" || j.DrawsSha256 != want {
			t.Errorf("%v by %q, draws %s, want %s", j.State, j.StopReason, j.DrawsSha256, want)
		}
	}
	t.Run("one", func(t *testing.T) {
		if testing.Short() {
			t.Skip("slow under the race detector")
		}
		c := newCluster(t)
		c.worker("a")
		check(t, c, c.submit(text))
	})
	t.Run("three", func(t *testing.T) {
		if testing.Short() {
			t.Skip("slow under the race detector")
		}
		c := newCluster(t)
		for _, id := range []string{"a", "b", "c"} {
			c.worker(id)
		}
		check(t, c, c.submit(text))
	})
	t.Run("killed and joined", func(t *testing.T) {
		c := newCluster(t)
		_, kill := c.worker("a")
		id := c.submit(text)
		c.wait("some draws", func() bool { return c.draws(id) >= 10 })
		kill()
		c.worker("b")
		c.wait("more draws", func() bool { return c.draws(id) >= 30 })
		c.worker("c")
		check(t, c, id)
	})
	t.Run("drained", func(t *testing.T) {
		c := newCluster(t)
		a, _ := c.worker("a")
		id := c.submit(text)
		c.wait("some draws", func() bool { return c.draws(id) >= 10 })
		c.worker("b")
		if _, err := c.workers.Drain(t.Context(), &pb.DrainRequest{Id: "a"}); err != nil {
			t.Fatal(err)
		}
		check(t, c, id)
		if a.Driving() != 0 {
			t.Errorf("a drained worker drives %d chains", a.Driving())
		}
	})
	t.Run("paused and extended", func(t *testing.T) {
		c := newCluster(t)
		c.worker("a")
		id := c.submit(fmt.Sprintf(specText, 400, 400)) // not over before its pause
		c.wait("some draws", func() bool { return c.draws(id) >= 10 })
		if _, err := c.jobs.Pause(t.Context(), &pb.JobActionRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		c.wait("a pause", func() bool { return c.get(id).Progress.Chains[0].Worker == "" })
		if _, err := c.jobs.Resume(t.Context(), &pb.JobActionRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		c.end(id)
		if _, err := c.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id, Draws: 20}); err != nil {
			t.Fatal(err)
		}
		c.wantDraws(id, undisturbed(t, fmt.Sprintf(specText, 420, 420)))
	})
}

func (c *cluster) get(id string) *pb.Job {
	c.t.Helper()
	j, err := c.jobs.Get(c.t.Context(), &pb.GetJobRequest{Id: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return j
}

// draws returns the number of draws of the first chain.
func (c *cluster) draws(id string) int {
	return int(c.get(id).Progress.Chains[0].Draws)
}

// A job whose data cannot be read fails with the reason, as the user knows it.
func TestJobThatCannotGoOn(t *testing.T) {
	c := newCluster(t)
	c.worker("a")
	id := c.submit("name: bad\ndata: {path: /nowhere/table.csv, target: y}\n")
	c.wait("failure", func() bool { return c.get(id).State == pb.JobState_JOB_STATE_FAILED })
	if m := c.get(id).Message; !strings.Contains(m, "/nowhere/table.csv") {
		t.Errorf("the message is %q", m)
	}
}

func TestStaleReadsTellTheirAge(t *testing.T) {
	c := newCluster(t)
	id := c.submit(fmt.Sprintf(specText, 10, 10))
	for _, stale := range []bool{true, false} {
		var head metadata.MD
		if _, err := c.jobs.Get(t.Context(), &pb.GetJobRequest{Id: id, Stale: stale}, grpc.Header(&head)); err != nil {
			t.Fatal(err)
		}
		if got := len(head.Get("ulisse-state-age")) == 1; got != stale {
			t.Errorf("stale %v: header %v", stale, head)
		}
	}
}
