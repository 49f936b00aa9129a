package worker

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// logServer keeps the lines of every lane, in the order in which they came.
type logServer struct {
	pb.UnimplementedWorkersServer
	refuse atomic.Bool

	mu    sync.Mutex
	lines map[string][]string
}

func (s *logServer) Log(_ context.Context, r *pb.LogRequest) (*pb.LogResponse, error) {
	if len(r.Lines) > 10_000 { // as a coordinator would
		return nil, status.Error(codes.InvalidArgument, "too many lines at once")
	}
	if s.refuse.Load() {
		return nil, status.Error(codes.NotFound, "there is no such job")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := fmt.Sprint(r.Job, " ", r.Chain)
	s.lines[k] = append(s.lines[k], r.Lines...)
	return &pb.LogResponse{}, nil
}

// newLogs returns a buffer of lines and the server that they go to.
func newLogs(t *testing.T) (*logBuffer, *logServer) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &logServer{lines: map[string][]string{}}
	g, _ := rpc.NewServer(nil, func(s *grpc.Server) { pb.RegisterWorkersServer(s, srv) })
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(lis) }()
	b := &logBuffer{worker: "w", secret: func(laneKey) string { return "s" }, coords: &coordinators{pool: rpc.NewPool(dial), addresses: []string{lis.Addr().String()}}}
	t.Cleanup(func() {
		b.coords.pool.Close()
		g.Stop()
		<-done
	})
	return b, srv
}

// Lines arrive once each, those of a lane in order, whoever hands them in; what is
// left is handed in at the end.
func TestLogLinesInOrder(t *testing.T) {
	b, srv := newLogs(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.run(ctx) }()
	const lanes, lines = 3, 400
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for i := range lines {
				b.add(laneKey{"job", lane}, fmt.Sprint(i))
				if i%20 == 0 {
					b.handIn(t.Context(), laneKey{"job", lane})
				}
			}
		})
		wg.Go(func() {
			for range 10 {
				b.flush(t.Context())
			}
		})
	}
	wg.Wait()
	cancel()
	<-ended
	var want []string
	for i := range lines {
		want = append(want, fmt.Sprint(i))
	}
	for lane := range lanes {
		if got := srv.lines[fmt.Sprint("job ", lane)]; !slices.Equal(got, want) {
			t.Errorf("lane %d: %d lines, in the order %.100v", lane, len(got), got)
		}
	}
	if b.lost() != 0 || b.size != 0 {
		t.Errorf("%d lines lost, %d bytes left", b.lost(), b.size)
	}
}

// Lines that there is no room for, or that cannot be handed in, are dropped and
// counted; the next that arrive say how many they were.
func TestDroppedLines(t *testing.T) {
	b, srv := newLogs(t)
	k := laneKey{"job", 1}
	long := strings.Repeat("x", logMost/4)
	for range 6 {
		b.add(k, long)
	}
	if b.lost() != 2 {
		t.Errorf("%d of 6 lines are dropped, there is room for 4", b.lost())
	}
	b.handIn(t.Context(), k)
	got := srv.lines["job 1"]
	if len(got) != 5 || got[3] != long || got[4] != `{"msg":"lines dropped","count":2}` {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	srv.refuse.Store(true)
	b.add(k, "lost")
	b.add(k, "lost")
	b.handIn(t.Context(), k)
	srv.refuse.Store(false)
	b.handIn(t.Context(), k) // nothing
	b.add(k, "next")
	b.handIn(t.Context(), k)
	if got := srv.lines["job 1"][5:]; !slices.Equal(got, []string{"next", `{"msg":"lines dropped","count":2}`}) || b.lost() != 4 {
		t.Errorf("then %q, %d lines lost in all", got, b.lost())
	}
}

// However many lines have gathered, a coordinator takes them.
func TestManyLines(t *testing.T) {
	b, srv := newLogs(t)
	k := laneKey{"job", 1}
	for i := range 25_000 {
		b.add(k, fmt.Sprint(i))
	}
	b.handIn(t.Context(), k)
	if got := srv.lines["job 1"]; len(got) != 25_000 || got[24_999] != "24999" || b.lost() != 0 {
		t.Errorf("%d lines arrived, %d are lost", len(got), b.lost())
	}
}

// A coordinator that does not answer holds up a flush for a bounded time only.
func TestFlushEnds(t *testing.T) {
	b, _ := newLogs(t)
	b.coords.addresses = []string{"127.0.0.1:1"}
	b.add(laneKey{"job", 1}, "line")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.flush(ctx)
	if b.lost() != 1 {
		t.Errorf("%d lines lost", b.lost())
	}
}
