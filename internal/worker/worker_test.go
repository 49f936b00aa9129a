package worker

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
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
	t       *testing.T
	coord   *coordinator.Coordinator
	address string
	jobs    pb.JobsClient
	workers pb.WorkersClient
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := coordinator.New(coordinator.Config{Node: coordinatortest.NewNode(t), Dir: t.TempDir(), Dial: dial, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(c.Forward), grpc.StreamInterceptor(c.ForwardStream))
	c.Register(s)
	go s.Serve(lis)
	ctx, cancel := context.WithCancel(context.Background())
	led := make(chan struct{})
	go func() { c.Lead(ctx); close(led) }()
	conn, err := dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		<-led
		s.Stop()
		c.Close()
	})
	return &cluster{t: t, coord: c, address: lis.Addr().String(), jobs: pb.NewJobsClient(conn), workers: pb.NewWorkersClient(conn)}
}

// worker starts a worker and returns a function that ends it at once.
func (c *cluster) worker(id string) (w *Worker, kill func()) {
	c.t.Helper()
	w, err := New(Config{ID: id, Coordinators: []string{c.address}, Budget: parallel.NewBudget(1), Dial: dial})
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
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
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
		c := newCluster(t)
		c.worker("a")
		check(t, c, c.submit(text))
	})
	t.Run("three", func(t *testing.T) {
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
		id := c.submit(fmt.Sprintf(specText, 40, 40))
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
		check(t, c, id)
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
