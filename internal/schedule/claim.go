package schedule

import (
	"cmp"
	"math"
	"slices"
)

// mostMembers is up to how many members a group is considered to have: in a larger one nobody has less to hold.
const mostMembers = 64

// need is what memory a job needs.
type need struct {
	members        int   // of each chain's group, at the least
	driver, member int64 // bytes that who drives a chain has, and every other member
}

// need returns the smallest groups in which the workers have the memory for a job; false if there are none. A worker that has it alone is a
// group.
func (j *Job) need(workers []*Worker) (need, bool) {
	size := make([]int64, len(workers)) // the largest first
	for i, w := range workers {
		size[i] = w.size()
	}
	slices.SortFunc(size, func(a, b int64) int { return cmp.Compare(b, a) })
	if len(size) > 0 && j.Memory <= size[0] {
		return need{1, j.Memory, 0}, true
	}
	for k := 2; j.Within != nil && k <= min(mostMembers, len(workers)/j.Chains); k++ {
		driver, member := j.Within(k)
		if driver <= size[j.Chains-1] && member <= size[j.Chains*k-1] {
			return need{k, driver, member}, true
		}
	}
	return need{}, false
}

// size returns the memory of a worker, which is as large as may be if it is not known.
func (w *Worker) size() int64 {
	if w.Memory == 0 || w.Unheard {
		return math.MaxInt64
	}
	return w.Memory
}

// Short reports whether no worker, and no group that some workers make, has the memory for a job, and what a driver would need in the largest one.
func (j *Job) Short(workers []Worker) (members int, bytes int64, short bool) {
	var able []*Worker
	for i := range workers {
		if w := &workers[i]; w.Connected && !w.Draining && (j.InstructionSet == "" || j.InstructionSet == w.InstructionSet) {
			able = append(able, w)
		}
	}
	_, ok := j.need(able)
	members, bytes = 1, j.Memory
	if k := min(mostMembers, len(able)/j.Chains); j.Within != nil && k > 1 {
		driver, member := j.Within(k)
		members, bytes = k, max(driver, member)
	}
	return members, bytes, !ok && len(able) > 0
}

// claim is the workers that a job has to itself, since its chains need groups to have the memory.
type claim struct {
	need
	workers map[string]bool
}

// claim returns what a job gets of the workers whose cores are all free: those that it has already, then those with nothing to do, the largest first. It
// returns nil if these are too few. possible says whether it could have them, had it all.
func (j *Job) claim(workers []Worker, free map[string]int, busy map[string]bool) (c *claim, possible bool) {
	var all, open []*Worker
	for i := range workers {
		if w := &workers[i]; !w.Draining && j.can(w) {
			if all = append(all, w); free[w.ID] == w.Cores {
				open = append(open, w)
			}
		}
	}
	if _, ok := j.need(all); !ok {
		return nil, false
	}
	n, ok := j.need(open)
	if !ok || n.members == 1 {
		return nil, true
	}
	rank := func(w *Worker) int {
		switch {
		case j.has(w.ID):
			return 0
		case !busy[w.ID]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(open, func(a, b *Worker) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.size(), a.size()))
	})
	c = &claim{n, map[string]bool{}}
	take := func(k int, bytes int64) {
		for _, w := range open {
			if k > 0 && !c.workers[w.ID] && w.size() >= bytes {
				c.workers[w.ID] = true
				k--
			}
		}
	}
	take(j.Chains, n.driver)
	take(j.Chains*(n.members-1), n.member)
	return c, true
}

// has reports whether a worker drives a chain of the job, or is in the group of one.
func (j *Job) has(worker string) bool {
	for _, at := range j.Placements {
		if at.Worker == worker || slices.Contains(at.Group, worker) {
			return true
		}
	}
	return false
}
