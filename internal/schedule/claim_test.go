package schedule

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// spreads makes a job one whose preconditioner, of 40, a group keeps together: who drives has 4 beside its share, and others have 2.
func spreads(j Job) Job {
	j.Memory = 60
	j.Within = func(members int) (driver, member int64) {
		share := int64((40 + members - 1) / members)
		return 4 + share, 2 + share
	}
	return j
}

func sized(n, cores int, memory int64) []Worker {
	workers := newWorkers(n, cores)
	for i := range workers {
		workers[i].Memory = memory
	}
	return workers
}

// groupsOf returns the sizes of the groups of a job's chains that are placed, their drivers among them.
func groupsOf(j Job) (sizes []int) {
	for _, p := range j.Placements {
		if p.Worker != "" {
			sizes = append(sizes, 1+len(p.Group))
		}
	}
	return sizes
}

// Chains for which no worker has the memory alone are placed where groups have it: with 16 each, groups of four, 4+40/4 for the driver. Nobody else's
// chains come in between, whoever was first; and with a worker too few the job waits, and holds nothing.
func TestGroupsThatHaveTheMemoryTogether(t *testing.T) {
	large, small := spreads(newJob("large", 2, 50_000, 0)), newJob("small", 4, 100, 0)
	small.Memory = 1
	jobs, workers := []Job{large}, sized(10, 2, 16)
	settle(t, jobs, workers, 20_000)
	if g := groupsOf(jobs[0]); !slices.Equal(g, []int{5, 5}) {
		t.Errorf("alone: groups of %v", g)
	}
	check := func(when string) {
		t.Helper()
		if g := groupsOf(jobs[0]); len(g) != 2 || slices.Min(g) < 4 {
			t.Errorf("%s: groups of %v", when, g)
		}
		if !jobs[1].Placed() || len(places(jobs[1])) != 2 {
			t.Errorf("%s: the small job is at %v", when, places(jobs[1]))
		}
	}
	jobs = append(jobs, small)
	settle(t, jobs, workers, 20_000)
	check("a job that came later")
	jobs = []Job{spreads(newJob("large", 2, 50_000, 0)), newJob("small", 4, 100, 0)}
	settle(t, jobs[1:], workers, 20_000)
	if n := len(places(jobs[1])); n != 4 {
		t.Fatalf("the small job alone is at %d workers", n)
	}
	settle(t, jobs, workers, 20_000)
	check("a job that was there")
	settle(t, jobs, workers[:7], 20_000)
	if jobs[0].Placed() || !jobs[1].Placed() {
		t.Errorf("seven workers: %v, %v", places(jobs[0]), places(jobs[1]))
	}
	if members, bytes, short := jobs[0].Short(workers[:7]); !short || members != 3 || bytes != 18 {
		t.Errorf("short: %v, with %d members %d bytes", short, members, bytes)
	}
	settle(t, jobs, workers, 20_000)
	check("three more")
	if _, _, short := jobs[0].Short(workers); short {
		t.Error("ten workers are too few")
	}
	workers[9].Memory = 60 // one has all the memory: a job of its kind needs no group, and the rest share the products
	settle(t, jobs[:1], workers, 20_000)
	if p := places(jobs[0]); p["w009"] == 0 {
		t.Errorf("at %v", p)
	}
	if settle(t, jobs[:1], sized(10, 2, 16), -1); jobs[0].Placed() {
		t.Error("placed though nobody shares")
	}
}

// Whatever the jobs and the workers are, plans come to rest; chains are where there is memory, alone or in their groups, and nobody is in two groups or
// in one and at work.
func TestPlansWithGroups(t *testing.T) {
	const split = 20_000
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t)
		for i := range jobs {
			if rapid.Bool().Draw(t, "spread") {
				jobs[i] = spreads(jobs[i])
			}
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			workers := drawWorkers(t)
			for i := range workers {
				workers[i].Memory = rapid.SampledFrom([]int64{0, 10, 16, 24, 60}).Draw(t, "memory")
			}
			settle(t, jobs, workers, split)
			if again := Plan(jobs, workers, split); len(again.Places)+len(again.Preempt) != 0 {
				t.Fatalf("a plan that came to rest moves %+v", again)
			}
			checkMemory(t, jobs, workers)
		}
	})
}

func checkMemory(t *rapid.T, jobs []Job, workers []Worker) {
	memory, uses := map[string]int64{}, map[string]string{}
	for i := range workers {
		memory[workers[i].ID] = workers[i].size()
	}
	use := func(id, how string) {
		if was := uses[id]; was != "" && (was != "drives" || how != "drives") {
			t.Fatalf("%s %s and %s", id, was, how)
		}
		uses[id] = how
	}
	for _, j := range jobs {
		for c, p := range j.Placements {
			if p.Worker == "" {
				continue
			}
			use(p.Worker, "drives")
			driver, member := j.Memory, int64(0)
			if j.Within != nil && memory[p.Worker] < j.Memory {
				driver, member = j.Within(1 + len(p.Group))
			}
			if memory[p.Worker] < driver {
				t.Fatalf("%s/%d needs %d at %s, which has %d", j.ID, c, driver, p.Worker, memory[p.Worker])
			}
			for _, id := range p.Group {
				use(id, fmt.Sprintf("is in the group of %s/%d", j.ID, c))
				if memory[id] < member {
					t.Fatalf("%s/%d needs %d at %s of its group, which has %d", j.ID, c, member, id, memory[id])
				}
			}
		}
		if j.Phase == state.Paused && j.Placed() {
			t.Fatalf("%s is paused", j.ID)
		}
	}
}
