package server

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// Coordinators hold the same state, so their disks fill together, and a disk that is
// full ends all. So while there is room for what is under way there are no new jobs,
// then there are no more draws: drivers wait with them, and compute no further. What
// makes room (deleting, cancelling) is always taken. Uploads leave the reserve free,
// jobs half of it, draws and log lines a quarter.

// room is what a coordinator knows of the room on its disk.
type room struct {
	node    *replica
	free    func() (int64, error) // bytes of the disk
	reserve int64
	log     *slog.Logger

	bytes atomic.Int64 // that the disk and the files of the state have for more
	short atomic.Bool  // too few for jobs
}

func newRoom(node *replica, free func() (int64, error), reserve int64, log *slog.Logger) *room {
	r := &room{node: node, free: free, reserve: reserve, log: log}
	r.bytes.Store(math.MaxInt64)
	return r
}

// roomEvery is how often the disk is asked.
const roomEvery = time.Second

// run asks the disk until ctx is done: a call does not, for it may hang.
func (r *room) run(ctx context.Context) {
	for tick := time.NewTicker(roomEvery); ; {
		if free, err := r.free(); err != nil {
			r.log.Warn("asking for the room on the disk", "error", err)
		} else {
			r.bytes.Store(free + r.node.FreeInFiles())
		}
		short := r.lacks(pb.Rule_JOBS) != nil
		if r.short.Swap(short) != short {
			if short {
				r.log.Error("there is no room for more jobs", "bytes", r.bytes.Load(), "reserve", r.reserve)
			} else {
				r.log.Info("there is room for jobs again", "bytes", r.bytes.Load())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// lacks says that there is no room for what grows, nil if there is. The leader knows
// of the disks of all.
func (r *room) lacks(growth pb.Rule_Growth) error {
	need := map[pb.Rule_Growth]int64{pb.Rule_JOBS: r.reserve / 2, pb.Rule_DRAWS: r.reserve / 4}[growth]
	have := r.node.Room()
	if need == 0 || have >= need {
		return nil
	}
	what := map[pb.Rule_Growth]string{pb.Rule_JOBS: "more jobs", pb.Rule_DRAWS: "more draws"}[growth]
	return status.Errorf(codes.ResourceExhausted, "the coordinators' disks have no room for %s: %.1f MiB are left, and %.1f MiB are kept free; delete jobs (ulisse delete), or make room on the disks",
		what, float64(have)/(1<<20), float64(need)/(1<<20))
}

// admit is the interceptor that refuses what there is no room for.
func (r *room) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := r.lacks(rpc.RuleOf(info.FullMethod).GetGrowth()); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}
