package coordinator

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// driven makes job "a", of which a worker drives chain 1.
var driven = []state.Command{&state.Submit{ID: "a", Chains: 2}, &state.Place{Job: "a", Places: []state.Move{{Chain: 1, Worker: "w", Secret: "s"}}}}

// say hands in lines of job "a".
func (s *served) say(chain int32, lines ...string) {
	s.t.Helper()
	if _, err := s.workers.Log(s.t.Context(), &pb.LogRequest{Job: "a", Chain: chain, Worker: "w", Lines: lines, Secret: "s"}); err != nil {
		s.t.Fatal(err)
	}
}

// lines returns the log of job "a".
func (s *served) lines(r *pb.LogsRequest) (out []string) {
	s.t.Helper()
	r.Id = "a"
	lines, err := s.jobs.Logs(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	for {
		l, err := lines.Recv()
		if err == io.EOF {
			return out
		}
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, l.Text)
	}
}

// What a coordinator did not hear, because it was away or another led, it gets
// from those that did, in order and each line once.
func TestLogsOfAllCoordinators(t *testing.T) {
	var addresses []string
	b := serve(t, Config{})
	keep(t, b.Coordinator, driven...)
	a := serve(t, Config{Peers: func() []string { return addresses }})
	keep(t, a.Coordinator, driven...)
	b.say(1, "first", "first") // while a is away; a line that is said twice stays twice
	addresses = []string{b.address}
	a.say(2, "second") // a leads, and hands it on to b
	within(t, "the line is handed on", func() bool { return len(b.lines(&pb.LogsRequest{})) == 3 })
	want := []string{"first", "first", "second"}
	if got := a.lines(&pb.LogsRequest{}); !slices.Equal(got, want) {
		t.Errorf("a: %q, want %q", got, want)
	}
	if got := b.lines(&pb.LogsRequest{}); !slices.Equal(got, want) {
		t.Errorf("b: %q, want %q", got, want)
	}
	if got := a.lines(&pb.LogsRequest{Chain: 1, Tail: 1}); !slices.Equal(got, []string{"first"}) {
		t.Errorf("the last line of chain 1: %q", got)
	}
	addresses = []string{"127.0.0.1:1"} // nobody there
	if got := a.lines(&pb.LogsRequest{}); !slices.Equal(got, []string{"second"}) {
		t.Errorf("a alone: %q", got)
	}
}

// All lines arrive at the other coordinators in the order in which they were
// said.
func TestLogsAreHandedOnInOrder(t *testing.T) {
	b := serve(t, Config{})
	keep(t, b.Coordinator, driven...)
	a := serve(t, Config{Peers: func() []string { return []string{b.address, "127.0.0.1:1"} }})
	keep(t, a.Coordinator, driven...)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint("line ", i))
		a.say(1, want[i])
	}
	within(t, "all lines", func() bool { return len(b.lines(&pb.LogsRequest{})) == len(want) })
	if got := b.lines(&pb.LogsRequest{}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A log is followed while the job runs, and to its last line.
func TestLogsAreFollowed(t *testing.T) {
	c := serve(t, Config{})
	keep(t, c.Coordinator, driven...)
	c.say(1, "one")
	lines, err := c.jobs.Logs(t.Context(), &pb.LogsRequest{Id: "a", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		if l, err := lines.Recv(); err != nil || l.Text != want {
			t.Fatalf("%v %v, want %q", l, err, want)
		}
	}
	next("one")
	c.say(1, "two", "three")
	next("two")
	next("three")
	c.say(2, "last")
	keep(t, c.Coordinator, &state.Act{Job: "a", Action: state.Cancel})
	next("last")
	if _, err := lines.Recv(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// What is no job's line is refused.
func TestLogIsChecked(t *testing.T) {
	c := serve(t, Config{})
	keep(t, c.Coordinator, driven...)
	for _, bad := range []struct {
		r    *pb.LogRequest
		code codes.Code
	}{
		{&pb.LogRequest{Job: "../a", Lines: []string{"x"}}, codes.InvalidArgument},
		{&pb.LogRequest{Job: "", Lines: []string{"x"}}, codes.InvalidArgument},
		{&pb.LogRequest{Job: "b", Lines: []string{"x"}}, codes.NotFound},
		{&pb.LogRequest{Job: "a", Lines: []string{"x"}}, codes.FailedPrecondition},
		{&pb.LogRequest{Job: "a", Lines: []string{"x"}, Secret: "of another job"}, codes.FailedPrecondition},
		{&pb.LogRequest{Job: "a", Lines: make([]string, maxLogLines+1)}, codes.InvalidArgument},
	} {
		_, err := c.workers.Log(t.Context(), bad.r)
		wantCode(t, fmt.Sprintf("%q with %d lines", bad.r.Job, len(bad.r.Lines)), err, bad.code)
	}
	c.say(1) // nothing to say is no error
	if got := c.lines(&pb.LogsRequest{}); len(got) != 0 {
		t.Errorf("%q", got)
	}
	lines, err := c.jobs.Logs(t.Context(), &pb.LogsRequest{Id: "unknown"})
	if err == nil {
		_, err = lines.Recv()
	}
	wantCode(t, "the log of no job", err, codes.NotFound)
	if _, err := c.jobs.Delete(t.Context(), &pb.JobActionRequest{Id: "a"}); err == nil || !strings.Contains(err.Error(), "preparing") {
		t.Errorf("a job that has not ended is deleted: %v", err)
	}
}
