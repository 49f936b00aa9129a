package schedule

import (
	"math"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Demand is what a job could use.
type Demand struct {
	Chains int
	Rows   int           // 0 if not known yet
	Left   time.Duration // until max_time ends the job; 0: no limit
	Needed time.Duration // for the draws asked for, at the pace so far; 0: not known
}

// Of the number of wanted workers.
const (
	coreRows = 2_000 // below, a chain is content with a core
	maxGroup = 10    // workers of a chain
)

// Wanted returns the number of workers that the demands could use. cores is what
// a worker has, splitRows the rows from which a product is shared, as in Plan.
//
// Each chain wants a worker of its own, for that is the best use of machines;
// those of a few rows want a core. A job that would not make its draws before
// max_time and whose products can be shared wants that many times more workers as
// it would be late, up to ten a chain: from there a driver feeds no more.
func Wanted(demands []Demand, cores, splitRows int) int {
	workers, single := 0, 0
	for _, d := range demands {
		if d.Rows > 0 && d.Rows < coreRows {
			single += d.Chains
			continue
		}
		group := 1
		if splitRows >= 0 && d.Rows >= splitRows && d.Left > 0 && d.Needed > d.Left {
			group = int(min(math.Ceil(float64(d.Needed)/float64(d.Left)), maxGroup))
		}
		workers += d.Chains * group
	}
	cores = max(1, cores)
	return workers + (single+cores-1)/cores
}

// DemandOf returns what a job could use at a time; nothing if it is paused or has
// ended.
func DemandOf(f *state.Follower, now time.Time) (Demand, bool) {
	j := f.Job
	if j.Phase.Ended() || j.Phase == state.Paused {
		return Demand{}, false
	}
	d := Demand{Chains: j.Chains}
	if j.Info != nil {
		d.Rows = j.Info.Rows
	}
	r := f.Run
	if r != nil && r.Plan.Staged {
		d.Chains = max(j.Chains, len(r.Lanes()))
	}
	if r == nil || r.Plan.MaxTime == 0 || r.Phase == chains.Preparing {
		return d, true
	}
	elapsed := j.Elapsed(now)
	d.Left = max(time.Second, r.Plan.MaxTime-elapsed)
	d.Needed, _ = r.Remaining(elapsed)
	return d, true
}
