package coordinator

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// demand is what a job could use, as the count of wanted workers sees it.
type demand struct {
	chains int
	rows   int           // 0 if not known yet
	left   time.Duration // until max_time ends the job; 0: no limit
	needed time.Duration // for the draws asked for, at the pace so far; 0: not known
}

// Of the count of wanted workers.
const (
	coreRows    = 2_000 // below, a chain is content with a core
	largestTeam = 10    // workers of a chain
)

// wanted returns the number of workers that the demands could use: a function
// of its arguments alone. cores is what a worker has, splitRows the rows from
// which a product is shared.
//
// Each chain wants a worker of its own, for that is the best use of machines;
// those of a few rows want a core. A job that would not make its draws before
// max_time and whose products can be shared wants so many times more workers as
// it would be late, up to ten a chain: from there a driver feeds no more.
func wanted(demands []demand, cores, splitRows int) int {
	workers, single := 0, 0
	for _, d := range demands {
		if d.rows > 0 && d.rows < coreRows {
			single += d.chains
			continue
		}
		team := 1
		if splitRows >= 0 && d.rows >= splitRows && d.left > 0 && d.needed > d.left {
			team = int(min(math.Ceil(float64(d.needed)/float64(d.left)), largestTeam))
		}
		workers += d.chains * team
	}
	cores = max(1, cores)
	return workers + (single+cores-1)/cores
}

// demandOf returns what a job could use; none if it is paused or has ended.
func demandOf(f *state.Follower, now time.Time) (demand, bool) {
	j := f.Job
	if j.Phase.Ended() || j.Phase == state.Paused {
		return demand{}, false
	}
	d := demand{chains: j.Chains}
	if j.Info != nil {
		d.rows = j.Info.Rows
	}
	r := f.Run
	if r == nil || r.Plan.MaxTime == 0 || r.Phase == chains.Preparing {
		return d, true
	}
	elapsed := j.Elapsed(now)
	d.left = max(time.Second, r.Plan.MaxTime-elapsed)
	done, warmup := 0, 0
	for _, w := range r.Plan.Windows {
		warmup += w
	}
	for i := range r.Chains {
		done += min(r.Chains[i].Warmup, warmup) + min(len(r.Chains[i].Draws), r.Plan.Draws)
	}
	if all := len(r.Chains) * (warmup + r.Plan.Draws); done > 0 && done < all {
		d.needed = time.Duration(float64(elapsed) * float64(all-done) / float64(done))
	}
	return d, true
}

// WorkersWanted returns the number of workers that the jobs could use.
func (c *Coordinator) WorkersWanted(ctx context.Context) (int, error) {
	workers, err := c.knownWorkers(ctx)
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
	if err := c.Node.View(func(tx *bbolt.Tx) error { active = state.Active(tx); return nil }); err != nil {
		return 0, err
	}
	now := time.Now()
	var demands []demand
	for _, id := range active {
		_ = c.views.with(id, func(f *state.Follower) error { // one that is gone wants nothing
			if d, ok := demandOf(f, now); ok {
				demands = append(demands, d)
			}
			return nil
		})
	}
	return wanted(demands, cores/max(1, connected), c.SplitRows), nil
}

// knownWorkers returns the workers that the leader knows, wherever it is.
func (c *Coordinator) knownWorkers(ctx context.Context) ([]*pb.Worker, error) {
	if c.Node.IsLeader() {
		return c.list(), nil
	}
	conn, err := c.leader()
	if err != nil {
		return nil, err
	}
	r, err := pb.NewWorkersClient(conn).List(forwarded(ctx), &pb.ListWorkersRequest{})
	if err != nil {
		return nil, err
	}
	return r.Workers, nil
}

// ServeWanted answers with the number of workers that the jobs could use, as
// JSON, on whichever coordinator is asked: for what scales the workers.
func (c *Coordinator) ServeWanted(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	n, err := c.WorkersWanted(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(n)
}
