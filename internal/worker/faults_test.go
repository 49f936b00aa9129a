package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// wantDraws waits for the end of a job of specText and checks the hash of its draws.
func (c *cluster) wantDraws(id, want string) {
	c.t.Helper()
	if j := c.end(id); j.State != pb.JobState_JOB_STATE_UNCONVERGED || j.StopReason != "max_draws" || j.DrawsSha256 != want {
		c.t.Errorf("%v by %q, draws %s, want %s", j.State, j.StopReason, j.DrawsSha256, want)
	}
}

// Calls that fail, and answers that are lost after the coordinator has done what it
// was asked for, do not change the draws.
func TestSameDrawsOverLostCalls(t *testing.T) {
	text := fmt.Sprintf(specText, 40, 40)
	want := undisturbed(t, text)
	c := newCluster(t)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 2))
	var lost [3]int // calls, answers, and calls whose time was over
	c.faulty = func(ctx context.Context, _ string, call func() (any, error)) (any, error) {
		mu.Lock()
		fault := r.IntN(10)
		if fault < len(lost) {
			lost[fault]++
		}
		mu.Unlock()
		switch fault {
		case 0:
			return nil, status.Error(codes.Unavailable, "the call was lost")
		case 1:
			if _, err := call(); err != nil {
				return nil, err
			}
			return nil, status.Error(codes.Unavailable, "the answer was lost")
		case 2:
			return nil, status.Error(codes.DeadlineExceeded, "it took too long")
		}
		return call()
	}
	c.worker("a")
	c.worker("b")
	c.wantDraws(c.submit(text), want)
	if lost[0] < 3 || lost[1] < 3 || lost[2] < 3 {
		t.Errorf("only %v calls were lost", lost)
	}
}

// A coordinator that is stopped and started again, with the state it had, is found
// again.
func TestSameDrawsOverRestarts(t *testing.T) {
	text := fmt.Sprintf(specText, 60, 60)
	want := undisturbed(t, text)
	c := newCluster(t)
	w, _ := c.worker("a")
	id := c.submit(text)
	for _, draws := range []int{10, 30} {
		c.wait("some draws", func() bool { return c.draws(id) >= draws })
		c.stop()
		_, c.stop = c.serve(c.node, c.address, true)
		c.wait("a session", w.Connected)
	}
	c.wantDraws(id, want)
}

// The leadership moves between coordinators; workers go where it is.
func TestSameDrawsUnderAnyLeader(t *testing.T) {
	text := fmt.Sprintf(specText, 60, 60)
	want := undisturbed(t, text)
	c := newCluster(t)
	other := c.node.Follower("other")
	address, _ := c.serve(other, "127.0.0.1:0", false)
	c.worker("a", address)
	c.worker("b", address)
	id := c.submit(text)
	for draws := 10; draws <= 40; draws += 10 {
		c.wait("some draws", func() bool { return c.draws(id) >= draws })
		if c.node.IsLeader() {
			other.Lead(address)
		} else {
			c.node.Lead(c.address)
		}
	}
	c.wantDraws(id, want)
}

// What is refused for good ends the job, with the reason; a driver that is told that
// it was replaced goes quietly.
func TestRefused(t *testing.T) {
	for _, method := range []string{"Await", "Report"} {
		t.Run(method, func(t *testing.T) {
			c := newCluster(t)
			var refused atomic.Bool
			c.faulty = func(_ context.Context, m string, call func() (any, error)) (any, error) {
				if m == method && refused.CompareAndSwap(false, true) {
					return nil, status.Error(codes.PermissionDenied, "this worker may not")
				}
				return call()
			}
			c.worker("a")
			id := c.submit(fmt.Sprintf(specText, 10, 10))
			c.wait("the failure", func() bool { return c.get(id).State == pb.JobState_JOB_STATE_FAILED })
			if m := c.get(id).Message; !strings.Contains(m, "this worker may not") {
				t.Errorf("the message is %q", m)
			}
		})
	}
	text := fmt.Sprintf(specText, 20, 20)
	want := undisturbed(t, text)
	c := newCluster(t)
	var fenced atomic.Int32
	c.faulty = func(_ context.Context, m string, call func() (any, error)) (any, error) {
		if m == "Report" && fenced.Add(1)%7 == 0 {
			return nil, status.Error(codes.FailedPrecondition, "another driver has taken over the chain")
		}
		return call()
	}
	c.worker("a")
	c.wantDraws(c.submit(text), want)
}

// A worker that is asked to drain gives its chains back at their checkpoints, and
// Run returns.
func TestDrain(t *testing.T) {
	text := fmt.Sprintf(specText, 60, 60)
	want := undisturbed(t, text)
	c := newCluster(t)
	w, err := New(c.config("a"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(context.Background()) }()
	id := c.submit(text)
	c.wait("some draws", func() bool { return c.draws(id) >= 10 })
	w.Drain()
	select {
	case err := <-done:
		if err != nil || w.Driving() != 0 || w.Connected() {
			t.Errorf("it ended by %v with %d chains", err, w.Driving())
		}
	case <-time.After(time.Minute):
		t.Fatal("it is not drained within a minute")
	}
	if n := c.draws(id); n >= 60 {
		t.Errorf("it went on to %d draws", n)
	}
	c.worker("b")
	c.wantDraws(id, want)
}

// Products that two workers share have the bits of those of one; who is in the group
// may change at any time.
func TestGroup(t *testing.T) {
	c := newCluster(t)
	id := c.submit(strings.Replace(fmt.Sprintf(specText, 10, 10), "n: 150", "n: 1500", 1))
	w, other := c.rowWorker("a"), c.rowWorker("b")
	j, err := w.jobs.load(t.Context(), id, &pb.Assignment{Spec: c.get(id).Spec})
	if err != nil {
		t.Fatal(err)
	}
	psi := make([]float64, j.problem.Model.NumParams())
	r := rand.New(rand.NewPCG(3, 4))
	v := make([][]float64, 16)
	for k := range v {
		v[k] = make([]float64, j.data.N())
		for i := range v[k] {
			v[k][i] = r.NormFloat64()
		}
	}
	product := func(op driver.Operator) [][]float64 {
		t.Helper()
		op.Set(j.problem.At(psi))
		out := make([][]float64, len(v))
		for k := range out {
			out[k] = make([]float64, len(v[k]))
		}
		if err := op.Mul(t.Context(), out, v); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := product(cmvp.New(j.problem.Inputs, j.problem.Covariance, parallel.NewBudget(1)))
	p := &placement{w: w, key: laneKey{id, 1}}
	p.setGroup([]*pb.Member{{Worker: "b", Address: other.Address}})
	op := p.operator(t.Context(), j)
	defer p.closeGroup()
	for end := time.Now().Add(time.Minute); other.Meter.Load().Tiles == 0; {
		if got := product(op); !reflect.DeepEqual(got, want) {
			t.Fatal("a product of the group has other bits")
		}
		if time.Now().After(end) {
			t.Fatal("the other worker computed nothing for a minute")
		}
	}
	p.setGroup(nil)
	if got := product(op); !reflect.DeepEqual(got, want) {
		t.Error("a product without the group has other bits")
	}
}
