package coordinator

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// served is a coordinator that answers calls.
type served struct {
	*Coordinator
	address string
	jobs    pb.JobsClient
	workers pb.WorkersClient
}

// serveCoordinator runs a coordinator with a job "a" until the test ends.
func serveCoordinator(t *testing.T, peers func() []string) *served {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := rpc.Dialer(nil)
	c, err := New(Config{Node: coordinatortest.NewNode(t), Dir: t.TempDir(), Dial: dial, Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := rpc.NewServer(nil, func(s *grpc.Server) { c.Register(s) }, grpc.UnaryInterceptor(c.Forward), grpc.StreamInterceptor(c.ForwardStream))
	conn, err := dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
		c.Close()
	})
	keep(t, c, state.Command{Time: searchEpoch, Submit: &state.Submit{ID: "a", Chains: 2}})
	return &served{c, lis.Addr().String(), pb.NewJobsClient(conn), pb.NewWorkersClient(conn)}
}

func (s *served) say(t *testing.T, chain int32, lines ...string) {
	t.Helper()
	if _, err := s.workers.Log(t.Context(), &pb.LogRequest{Job: "a", Chain: chain, Worker: "w", Lines: lines}); err != nil {
		t.Fatal(err)
	}
}

func (s *served) log(t *testing.T, r *pb.LogsRequest) (out []string) {
	t.Helper()
	r.Id = "a"
	lines, err := s.jobs.Logs(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for {
		l, err := lines.Recv()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l.Text)
	}
}

// What a coordinator did not hear, because it was away or another led, it gets
// from those that did, in order and each line once.
func TestLogsOfAllCoordinators(t *testing.T) {
	var addresses []string
	b := serveCoordinator(t, func() []string { return nil })
	a := serveCoordinator(t, func() []string { return addresses })
	b.say(t, 1, "first", "first") // while a is away; a line that is said twice stays twice
	addresses = []string{b.address}
	a.say(t, 2, "second") // a leads, and shares it with b
	for end := time.Now().Add(time.Minute); len(b.log(t, &pb.LogsRequest{})) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the line is not shared")
		}
	}
	want := []string{"first", "first", "second"}
	if got := a.log(t, &pb.LogsRequest{}); !slices.Equal(got, want) {
		t.Errorf("a: %q, want %q", got, want)
	}
	if got := b.log(t, &pb.LogsRequest{}); !slices.Equal(got, want) {
		t.Errorf("b: %q, want %q", got, want)
	}
	if got := a.log(t, &pb.LogsRequest{Chain: 1, Tail: 1}); !slices.Equal(got, []string{"first"}) {
		t.Errorf("the last line of chain 1: %q", got)
	}
	addresses = []string{"127.0.0.1:1"} // nobody there
	if got := a.log(t, &pb.LogsRequest{}); !slices.Equal(got, []string{"second"}) {
		t.Errorf("a alone: %q", got)
	}
}

// A log is followed while the job runs, and to its last line.
func TestLogsAreFollowed(t *testing.T) {
	c := serveCoordinator(t, nil)
	c.say(t, 1, "one")
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
	c.say(t, 1, "two", "three")
	next("two")
	next("three")
	c.say(t, 2, "last")
	keep(t, c.Coordinator, state.Command{Time: searchEpoch, Act: &state.Act{Job: "a", Action: state.Cancel}})
	next("last")
	if _, err := lines.Recv(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// The logs of all jobs together stay within their limit: what was written to
// longest ago goes, also after a restart.
func TestLogsMakeRoom(t *testing.T) {
	dir := t.TempDir()
	const limit = 10_000
	l, err := openLogs(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	size := func() (n int64) {
		files, err := l.files()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			n += f.size
		}
		return n
	}
	for i := range 30 {
		if i == 15 {
			if l, err = openLogs(dir, limit); err != nil {
				t.Fatal(err)
			}
		}
		job := fmt.Sprintf("j%02d", i)
		if err := l.add(job, []logEntry{{Text: strings.Repeat("x", 1000)}}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-100) * time.Minute)
		if err := os.Chtimes(l.path(job, ""), old, old); err != nil {
			t.Fatal(err)
		}
		if n := size(); n > limit || n != l.total {
			t.Fatalf("%d bytes after %d jobs, counted %d", n, i+1, l.total)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "logs", "*"))
	if err != nil || len(left) < 7 || filepath.Base(left[len(left)-1]) != "j29.jsonl" || filepath.Base(left[0]) != fmt.Sprintf("j%02d.jsonl", 30-len(left)) {
		t.Errorf("%v %v", left, err)
	}
	l.remove("j29")
	if size() != l.total {
		t.Errorf("%d bytes, counted %d", size(), l.total)
	}
}
