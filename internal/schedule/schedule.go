package schedule

import (
	"cmp"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Worker is a worker that is connected, or may come back soon. One that may not is
// none.
type Worker struct {
	ID             string
	Cores          int
	InstructionSet string
	// Unheard says that only the placements tell of the worker: it may have any
	// instruction set.
	Unheard   bool
	Connected bool
	Draining  bool
	// Holds are the chains that a connected worker was told to drive, or says that
	// it drives, and has not released.
	Holds  map[state.ChainKey]bool
	Memory int64 // bytes; 0 if not known
	// Aside are the jobs that the worker could not do, and gets no chain of for now.
	Aside map[string]bool
	// Wrong says that it computes other bits than others do: it gets no work. Apart are the
	// workers that it is not put into one group with, since they do not agree.
	Wrong bool
	Apart map[string]bool
}

// Job is a job that has not ended.
type Job struct {
	*state.Job
	Rows   int   // 0 if not known yet
	Memory int64 // bytes that a worker needs at the least, who drives a chain alone; 0 if not known yet
	// Within, if it is set, returns the same of the driver, and of every other member, of a group that keeps the preconditioner
	// together. More members need no more.
	Within func(members int) (driver, member int64)
	// Active are the lanes that have, or will have, something to do: 0 is that of the
	// preparation, and those beyond the chains, of staged runs, are content with cores
	// that are left over.
	Active []int
}

// Schedule is where chains should be, and who should get ready to give some up.
type Schedule struct {
	// Places are changes, by job: a worker for a chain that has none, another
	// group, none where the worker is lost or has let go.
	Places map[string][]state.Move
	// Keep are the placements that stay; all others are to be revoked.
	Keep map[state.ChainKey]bool
	// Preempt are jobs that go back to the queue, since nobody drives them any
	// more.
	Preempt []string
}

// Plan says where the chains of the jobs should be. Idle workers share the
// products of chains with splitRows rows or more; with a negative number none. A job for which
// no worker has the memory alone, but groups have, gets workers of its own.
func Plan(jobs []Job, workers []Worker, splitRows int) Schedule {
	p := newPlanner(jobs, workers, splitRows)
	for i := range jobs {
		if j := &jobs[i]; !p.admitted[j.ID] && j.Phase.AtWork() && !j.Placed() {
			p.out.Preempt = append(p.out.Preempt, j.ID)
		}
	}
	for i := range jobs {
		if j := &jobs[i]; p.admitted[j.ID] {
			for _, chain := range j.Active {
				if chain <= j.Chains {
					p.place(j, chain)
				}
			}
		}
	}
	for i := range jobs {
		if j := &jobs[i]; p.admitted[j.ID] {
			for _, lane := range j.Active {
				if lane > j.Chains {
					p.placeFurther(j, lane)
				}
			}
		}
	}
	p.group(splitRows)
	for i := range jobs {
		p.clear(&jobs[i])
	}
	return p.out
}

// planner is a plan in the making.
type planner struct {
	jobs     []Job
	workers  []Worker
	byID     map[string]*Worker
	admitted map[string]bool
	claims   map[string]*claim       // by job, of those that have one
	owner    map[string]*Job         // by worker, of those that are claimed
	load     map[string]int          // chains by worker
	at       map[string]map[*Job]int // likewise, by job
	driven   []drivenChain
	out      Schedule
}

// drivenChain is a chain that has a driver, or gets one.
type drivenChain struct {
	job    *Job
	chain  int
	worker string
}

func newPlanner(jobs []Job, workers []Worker, splitRows int) *planner {
	p := &planner{jobs: jobs, workers: workers, byID: map[string]*Worker{}, owner: map[string]*Job{}, load: map[string]int{}, at: map[string]map[*Job]int{},
		out: Schedule{Places: map[string][]state.Move{}, Keep: map[state.ChainKey]bool{}}}
	for i := range workers {
		p.byID[workers[i].ID] = &workers[i]
	}
	p.admitted, p.claims = admit(jobs, workers, splitRows)
	for i := range jobs {
		if j := &jobs[i]; p.admitted[j.ID] {
			if c := p.claims[j.ID]; c != nil {
				for id := range c.workers {
					p.owner[id] = j
				}
			}
			for _, chain := range j.Active {
				if w := p.byID[j.Placements[chain].Worker]; w != nil {
					p.count(j, w, 1)
				}
			}
		}
	}
	return p
}

// admit returns the jobs that are to be at work on the workers that there are. A job
// has a core for each chain, of workers that fit; one that has to wait for cores keeps
// those that it waits for from the jobs behind it, and one that no worker fits keeps
// none. One whose chains need groups of workers to have the memory has these to itself: its claim.
func admit(jobs []Job, workers []Worker, splitRows int) (out map[string]bool, claims map[string]*claim) {
	out, claims = map[string]bool{}, map[string]*claim{}
	free, busy := map[string]int{}, map[string]bool{} // cores by worker; workers that drive a chain
	for i := range workers {
		if w := &workers[i]; !w.Draining {
			free[w.ID] = w.Cores
		}
	}
	for i := range jobs {
		for _, at := range jobs[i].Placements {
			busy[at.Worker] = true
		}
	}
	for _, j := range inOrder(jobs) {
		var fitting []*Worker
		cores, left := 0, 0
		for i := range workers {
			if w := &workers[i]; !w.Draining && fits(j, w) {
				fitting = append(fitting, w)
				cores, left = cores+w.Cores, left+free[w.ID]
			}
		}
		if cores == 0 && j.splits(splitRows) {
			var possible bool
			if claims[j.ID], possible = j.claim(workers, free, busy); claims[j.ID] != nil {
				out[j.ID] = true
				for id := range claims[j.ID].workers {
					free[id] = 0
				}
			} else if possible { // it waits for them
				for i := range workers {
					if j.can(&workers[i]) {
						free[workers[i].ID] = 0
					}
				}
			}
			continue
		}
		if cores == 0 {
			continue
		}
		out[j.ID] = j.Chains <= left || left == cores // the first always
		reserve(j, fitting, free, out[j.ID])
	}
	return out, claims
}

// inOrder returns the jobs that are not paused, those that go first first.
func inOrder(jobs []Job) (order []*Job) {
	held := map[string]int{} // chains at work by namespace
	for i := range jobs {
		j := &jobs[i]
		if j.Phase == state.Paused {
			continue
		}
		order = append(order, j)
		if j.Phase.AtWork() {
			held[j.Namespace] += j.Chains
		}
	}
	waits := func(j *Job) int {
		if j.Phase.AtWork() {
			return 0
		}
		return 1
	}
	slices.SortFunc(order, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(waits(a), waits(b)),
			cmp.Compare(waits(a)*held[a.Namespace], waits(b)*held[b.Namespace]),
			a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	return order
}

// reserve takes the cores of a job's chains from those that are free; all of them if
// the job waits, or is larger than they are. It goes by what fits, not by where the
// chains are: they move.
func reserve(j *Job, fitting []*Worker, free map[string]int, admitted bool) {
	left := j.Chains
	if !admitted {
		left = math.MaxInt
	}
	slices.SortStableFunc(fitting, func(a, b *Worker) int { return cmp.Compare(free[b.ID], free[a.ID]) })
	for _, w := range fitting {
		n := min(left, free[w.ID])
		free[w.ID] -= n
		left -= n
	}
}

// place finds a worker for a chain, or keeps the one that it has.
func (p *planner) place(j *Job, chain int) {
	key, at := state.ChainKey{Job: j.ID, Chain: chain}, j.Placements[chain].Worker
	if w := p.byID[at]; w != nil {
		if w.Draining || !p.fits(j, w) {
			return // it is to let go first
		}
		if to := p.idleWorker(j, w); to != nil {
			p.count(j, w, -1) // it is to let go, and then to be placed anew
			p.count(j, to, 1)
			return
		}
		p.out.Keep[key] = true
		p.driven = append(p.driven, drivenChain{j, chain, at})
		return
	}
	if w := p.least(j); w != nil {
		p.give(j, chain, w)
	}
}

// give places a chain that has no place.
func (p *planner) give(j *Job, chain int, w *Worker) {
	p.count(j, w, 1)
	p.driven = append(p.driven, drivenChain{j, chain, w.ID})
	p.out.Keep[state.ChainKey{Job: j.ID, Chain: chain}] = true
	p.out.Places[j.ID] = append(p.out.Places[j.ID], state.Move{Chain: chain, Worker: w.ID})
}

// placeFurther finds a core for a lane beyond the chains, or lets it keep the one that
// it has, as long as no chain needs it.
func (p *planner) placeFurther(j *Job, lane int) {
	if w := p.byID[j.Placements[lane].Worker]; w != nil {
		if !w.Draining && p.fits(j, w) && p.load[w.ID] <= w.Cores {
			p.out.Keep[state.ChainKey{Job: j.ID, Chain: lane}] = true
			p.driven = append(p.driven, drivenChain{j, lane, w.ID})
		} else {
			p.count(j, w, -1) // it is to let go
		}
		return
	}
	if w := p.least(j); w != nil && p.load[w.ID] < w.Cores {
		p.give(j, lane, w)
	}
}

// can reports whether a worker computes the same bits as the job began with, as far as is known, and has not shown that it
// cannot do the job.
func (j *Job) can(w *Worker) bool {
	return w.Unheard || (j.InstructionSet == "" || j.InstructionSet == w.InstructionSet) && !w.Aside[j.ID] && !w.Wrong
}

// fits reports whether a worker can do a job, and has the memory to drive a chain alone.
func fits(j *Job, w *Worker) bool { return j.can(w) && j.Memory <= w.size() }

// splits reports whether workers may share a job's products.
func (j *Job) splits(splitRows int) bool { return splitRows >= 0 && j.Rows >= max(1, splitRows) }

// fits reports whether a worker may drive a chain of a job.
func (p *planner) fits(j *Job, w *Worker) bool {
	if c := p.claims[j.ID]; c != nil {
		return c.workers[w.ID] && j.can(w) && c.driver <= w.size()
	}
	return p.owner[w.ID] == nil && fits(j, w)
}

// joins reports whether a worker that drives nothing may share the products of a job: one that somebody has claimed only that
// one's.
func (p *planner) joins(j *Job, w *Worker) bool {
	least := j.Memory
	if c := p.claims[j.ID]; c != nil {
		least = c.member
	} else if j.Within != nil {
		_, least = j.Within(math.MaxInt)
	}
	return (p.owner[w.ID] == nil || p.owner[w.ID] == j) && j.can(w) && least <= w.size()
}

// memory returns what a chain of a job needs at a worker that drives it.
func (p *planner) memory(j *Job) int64 {
	if c := p.claims[j.ID]; c != nil {
		return c.driver
	}
	return j.Memory
}

// count counts chains of a job at a worker.
func (p *planner) count(j *Job, w *Worker, n int) {
	p.load[w.ID] += n
	if p.at[w.ID] == nil {
		p.at[w.ID] = map[*Job]int{}
	}
	p.at[w.ID][j] += n
}

// crowded reports whether a worker has not the memory for a job beside those that it has: for a chain of
// each, since chains of one job share most.
func (p *planner) crowded(j *Job, w *Worker) bool {
	need := p.memory(j)
	for other, n := range p.at[w.ID] {
		if n > 0 && other != j {
			need += p.memory(other)
		}
	}
	return w.Memory > 0 && need > w.Memory
}

// least returns the connected worker with the fewest chains for its cores, of those that have the memory
// if any have.
func (p *planner) least(j *Job) (best *Worker) {
	roomy := false
	for i := range p.workers {
		w := &p.workers[i]
		if !w.Connected || w.Draining || !p.fits(j, w) {
			continue
		}
		room := !p.crowded(j, w)
		if best == nil || room && !roomy || room == roomy && p.load[w.ID]*best.Cores < p.load[best.ID]*w.Cores {
			best, roomy = w, room
		}
	}
	return best
}

// idleWorker returns a worker that should take one of w's chains: one with nothing
// to do, where w has two or more.
func (p *planner) idleWorker(j *Job, w *Worker) *Worker {
	if p.load[w.ID] < 2 {
		return nil
	}
	if to := p.least(j); to != nil && p.load[to.ID] == 0 {
		return to
	}
	return nil
}

// group puts workers that drive nothing into the groups of chains with many
// rows, the smallest groups first.
func (p *planner) group(splitRows int) {
	groups := map[state.ChainKey][]string{}
	var wide []*drivenChain
	for i := range p.driven {
		if d := &p.driven[i]; d.job.splits(splitRows) {
			wide = append(wide, d)
		}
	}
	for i := range p.workers {
		w := &p.workers[i]
		if p.load[w.ID] > 0 || !w.Connected || w.Draining {
			continue
		}
		var to *drivenChain
		for _, d := range wide {
			if p.joins(d.job, w) && !w.Apart[d.worker] && (to == nil || len(groups[d.key()]) < len(groups[to.key()])) {
				to = d
			}
		}
		if to != nil {
			groups[to.key()] = append(groups[to.key()], w.ID)
		}
	}
	for _, d := range p.driven {
		key := d.key()
		moves := p.out.Places[key.Job]
		if i := slices.IndexFunc(moves, func(m state.Move) bool { return m.Chain == key.Chain }); i >= 0 {
			moves[i].Group = groups[key]
		} else if !slices.Equal(d.job.Placements[key.Chain].Group, groups[key]) {
			p.out.Places[key.Job] = append(moves, state.Move{Chain: key.Chain, Worker: d.worker, Group: groups[key]})
		}
	}
}

func (d *drivenChain) key() state.ChainKey { return state.ChainKey{Job: d.job.ID, Chain: d.chain} }

// clear takes a job's chains from workers that are lost, and from those that have
// let go.
func (p *planner) clear(j *Job) {
	for chain, at := range j.Placements {
		key := state.ChainKey{Job: j.ID, Chain: chain}
		if at.Worker == "" || slices.ContainsFunc(p.out.Places[j.ID], func(m state.Move) bool { return m.Chain == chain }) {
			continue
		}
		w := p.byID[at.Worker]
		if w == nil || w.Connected && !w.Holds[key] && !p.out.Keep[key] {
			p.out.Places[j.ID] = append(p.out.Places[j.ID], state.Move{Chain: chain})
			delete(p.out.Keep, key)
		}
	}
}
