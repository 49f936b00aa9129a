package coordinator

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/schedule"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// WorkersWanted returns the number of workers that the jobs could use.
func (c *Coordinator) WorkersWanted(ctx context.Context) (int, error) {
	workers, err := c.knownWorkers(forwarded(ctx))
	if err != nil {
		return 0, err
	}
	connected, cores := 0, 0
	for _, w := range workers {
		if w.Connected {
			connected++
			cores += int(w.GetCapacity().GetCores())
		}
	}
	var active []string
	if err := c.node.View(func(tx *bbolt.Tx) error { active = state.Active(tx); return nil }); err != nil {
		return 0, err
	}
	now := time.Now()
	var demands []schedule.Demand
	for _, id := range active {
		_ = c.jobs.with(id, func(j *followed) error { // one that is gone wants nothing
			if d, ok := schedule.DemandOf(&j.Follower, now); ok {
				demands = append(demands, d)
			}
			return nil
		})
	}
	return schedule.Wanted(demands, cores/max(1, connected), c.cfg.SplitRows), nil
}

// knownWorkers returns the workers that the leader knows, wherever it is. asking
// is the context of a call to it.
func (c *Coordinator) knownWorkers(asking context.Context) ([]*pb.Worker, error) {
	if c.node.IsLeader() {
		return c.workers.list(), nil
	}
	conn, err := c.leader()
	if err != nil {
		return nil, err
	}
	r, err := pb.NewWorkersClient(conn).List(asking, &pb.ListWorkersRequest{})
	return r.GetWorkers(), err
}

// wantedTimeout bounds the answer to what scales the workers.
const wantedTimeout = 5 * time.Second

// ServeWanted answers with the number of workers that the jobs could use, as
// JSON, on whichever coordinator is asked: for what scales the workers.
func (c *Coordinator) ServeWanted(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), wantedTimeout)
	defer cancel()
	n, err := c.WorkersWanted(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(n)
}
