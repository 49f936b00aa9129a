package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// logBuffer collects log lines of jobs and hands them to the coordinators now
// and then, and before draws are reported. Lines are a convenience: if they cannot
// be handed in they are dropped, and counted.
type logBuffer struct {
	worker  string // its id
	coords  *coordinators
	secret  func(laneKey) string // of a lane, if the worker drives it
	sending sync.Mutex           // one request at a time, so that lines stay in order
	mu      sync.Mutex
	lines   map[laneKey][]string
	size    int
	dropped int // not told of yet
	missing int // dropped in all
}

// Bounds of the buffer.
const (
	logEvery    = time.Second
	logMost     = 4 << 20 // bytes
	linesAtOnce = 5000    // a coordinator takes 10,000
	logTimeout  = 5 * time.Second
)

func (b *logBuffer) add(k laneKey, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size+len(line) > logMost {
		b.dropped++
		b.missing++
		return
	}
	if b.lines == nil {
		b.lines = map[laneKey][]string{}
	}
	b.lines[k] = append(b.lines[k], line)
	b.size += len(line)
}

// run hands in lines until ctx is done, then what is left.
func (b *logBuffer) run(ctx context.Context) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			b.flush(last)
			cancel()
			return
		}
	}
}

// flush hands in the lines of all chains.
func (b *logBuffer) flush(ctx context.Context) {
	b.mu.Lock()
	keys := slices.Collect(maps.Keys(b.lines))
	b.mu.Unlock()
	for _, k := range keys {
		b.handIn(ctx, k)
	}
}

// handIn hands in the lines of a chain, after those that are under way.
func (b *logBuffer) handIn(ctx context.Context, k laneKey) {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.mu.Lock()
	l, dropped := b.lines[k], b.dropped
	delete(b.lines, k)
	for _, line := range l {
		b.size -= len(line)
	}
	if len(l) > 0 {
		b.dropped = 0
	}
	b.mu.Unlock()
	if len(l) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	if dropped > 0 {
		l = append(l, fmt.Sprintf(`{"msg":"lines dropped","count":%d}`, dropped))
	}
	var err error // of a batch: those that follow are dropped with it
	for batch := range slices.Chunk(l, linesAtOnce) {
		if err == nil {
			err = b.coords.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
				_, err := pb.NewWorkersClient(conn).Log(ctx, &pb.LogRequest{Job: k.job, Chain: int32(k.lane), Worker: b.worker, Secret: b.secret(k), Lines: batch})
				return err
			})
		}
		if status.Code(err) == codes.FailedPrecondition { // they are of work that was replaced, or is over
			return
		}
		if err != nil {
			b.mu.Lock()
			b.dropped += len(batch)
			b.missing += len(batch)
			b.mu.Unlock()
		}
	}
}

// lost returns the number of lines that were dropped.
func (b *logBuffer) lost() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.missing
}

// observe notes what a driver observed.
func (w *Worker) observe(job string, o runlog.Observation) {
	w.metrics.note(o)
	w.logs.add(laneKey{job, o.Chain}, o.Line())
}
