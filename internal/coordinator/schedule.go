package coordinator

import (
	"cmp"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// candidate is a worker as the schedule sees it.
type candidate struct {
	id        string
	cores     int
	isa       string
	anyISA    bool // not known yet
	connected bool // else it may come back soon
	draining  bool
	speed     float64
}

// wish is a job as the schedule sees it.
type wish struct {
	job    *state.Job
	rows   int   // 0 if not known yet
	chains []int // that have, or will have, something to do; 0 is the preparation
}

// schedule is where chains should be, and who should get ready to give some up.
type schedule struct {
	// places are changes: a worker for a chain that has none, another group.
	places map[string][]state.Moved
	// keep are the placements that stay; all others are to be revoked.
	keep map[chainKey]bool
	// preempt are jobs that go back to the queue once nobody drives them.
	preempt []string
}

// plan decides where chains should be. It is a function of its arguments alone:
// the jobs, the workers, and the rows from which products are shared.
//
// Jobs are admitted whole, in the order of their priority, those at work first,
// then by the share that their namespace has, then by age; the first always,
// further ones while each chain finds a core. Chains come before rows: each
// chain gets the least loaded worker; workers that drive nothing join groups.
func plan(jobs []wish, workers []candidate, splitRows int) schedule {
	s := schedule{places: map[string][]state.Moved{}, keep: map[chainKey]bool{}}
	slots := 0
	load := map[string]int{} // chains by worker
	by := map[string]*candidate{}
	for i := range workers {
		w := &workers[i]
		by[w.id] = w
		if !w.draining {
			slots += w.cores
		}
	}
	admitted := admit(jobs, slots)
	for i := range jobs {
		j := &jobs[i]
		if !admitted[j.job.ID] {
			if j.job.Phase.AtWork() && !j.job.Placed() {
				s.preempt = append(s.preempt, j.job.ID)
			}
			continue
		}
		for _, c := range j.chains {
			if w := by[j.job.Placements[c].Worker]; w != nil {
				load[w.id]++
			}
		}
	}
	var driven []drivenChain
	for i := range jobs {
		j := &jobs[i]
		if !admitted[j.job.ID] {
			continue
		}
		for _, c := range j.chains {
			at := j.job.Placements[c]
			if w := by[at.Worker]; w != nil && !w.draining && fits(j, w) {
				if to := relief(j, w, workers, load); to != nil {
					load[w.id]-- // it is to let go, and then to be placed anew
					load[to.id]++
					continue
				}
				s.keep[chainKey{j.job.ID, c}] = true
				driven = append(driven, drivenChain{j, c, at.Worker})
				continue
			}
			if at.Worker != "" && by[at.Worker] != nil {
				continue // it is to let go first
			}
			w := least(j, workers, load)
			if w == nil {
				if at.Worker != "" { // its worker is lost
					s.places[j.job.ID] = append(s.places[j.job.ID], state.Moved{Chain: c})
				}
				continue
			}
			load[w.id]++
			driven = append(driven, drivenChain{j, c, w.id})
			s.keep[chainKey{j.job.ID, c}] = true
			s.places[j.job.ID] = append(s.places[j.job.ID], state.Moved{Chain: c, Worker: w.id})
		}
	}
	s.share(driven, workers, load, splitRows)
	return s
}

// drivenChain is a chain that has a driver.
type drivenChain struct {
	j      *wish
	chain  int
	worker string
}

// admit chooses the jobs that are to be at work.
func admit(jobs []wish, slots int) map[string]bool {
	order := make([]*wish, len(jobs))
	held := map[string]int{} // chains at work by namespace
	for i := range jobs {
		order[i] = &jobs[i]
		if jobs[i].job.Phase.AtWork() {
			held[jobs[i].job.Namespace] += jobs[i].job.Chains
		}
	}
	waits := func(w *wish) int {
		if w.job.Phase.AtWork() {
			return 0
		}
		return 1
	}
	slices.SortFunc(order, func(a, b *wish) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), cmp.Compare(waits(a), waits(b)),
			cmp.Compare(waits(a)*held[a.job.Namespace], waits(b)*held[b.job.Namespace]),
			a.job.Submitted.Compare(b.job.Submitted), cmp.Compare(a.job.ID, b.job.ID))
	})
	out := map[string]bool{}
	used := 0
	for _, w := range order {
		if slots > 0 && (used == 0 || used+w.job.Chains <= slots) {
			out[w.job.ID] = true
			used += w.job.Chains
		} else {
			break // nobody overtakes: a large job would wait for ever
		}
	}
	return out
}

// fits reports whether a worker computes the same bits as the job began with.
func fits(j *wish, w *candidate) bool {
	return w.anyISA || j.job.InstructionSet == "" || j.job.InstructionSet == w.isa
}

// least returns the connected worker with the fewest chains for its cores.
func least(j *wish, workers []candidate, load map[string]int) *candidate {
	var best *candidate
	for i := range workers {
		w := &workers[i]
		if !w.connected || w.draining || !fits(j, w) {
			continue
		}
		if best == nil || load[w.id]*best.cores < load[best.id]*w.cores {
			best = w
		}
	}
	return best
}

// relief returns a worker that should take one of w's chains: one with nothing
// to do, where w has two or more.
func relief(j *wish, w *candidate, workers []candidate, load map[string]int) *candidate {
	if load[w.id] < 2 {
		return nil
	}
	if to := least(j, workers, load); to != nil && load[to.id] == 0 {
		return to
	}
	return nil
}

// share puts workers that drive nothing into the groups of chains with many
// rows, the smallest groups first.
func (s *schedule) share(driven []drivenChain, workers []candidate, load map[string]int, splitRows int) {
	groups := map[chainKey][]string{}
	var wide []*drivenChain
	for i := range driven {
		if d := &driven[i]; splitRows >= 0 && d.j.rows >= max(1, splitRows) {
			wide = append(wide, d)
		}
	}
	for i := range workers {
		w := &workers[i]
		if load[w.id] > 0 || !w.connected || w.draining {
			continue
		}
		var to *drivenChain
		for _, d := range wide {
			if fits(d.j, w) && (to == nil || len(groups[d.key()]) < len(groups[to.key()])) {
				to = d
			}
		}
		if to != nil {
			groups[to.key()] = append(groups[to.key()], w.id)
		}
	}
	for _, d := range driven {
		k := d.key()
		moves := s.places[k.job]
		if i := slices.IndexFunc(moves, func(m state.Moved) bool { return m.Chain == k.chain }); i >= 0 {
			moves[i].Group = groups[k]
		} else if !slices.Equal(d.j.job.Placements[k.chain].Group, groups[k]) {
			s.places[k.job] = append(moves, state.Moved{Chain: k.chain, Worker: d.worker, Group: groups[k]})
		}
	}
}

func (d *drivenChain) key() chainKey { return chainKey{d.j.job.ID, d.chain} }
