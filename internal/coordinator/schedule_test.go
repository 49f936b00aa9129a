package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/state"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWish(id string, chains, rows, priority int) wish {
	w := wish{rows: rows, job: &state.Job{ID: id, Chains: chains, Phase: state.Queued, Priority: priority, Submitted: epoch,
		Placements: make([]state.Placement, chains+1)}}
	for c := 1; c <= chains; c++ {
		w.chains = append(w.chains, c)
	}
	return w
}

func newWorkers(n, cores int) []candidate {
	out := make([]candidate, n)
	for i := range out {
		out[i] = candidate{id: fmt.Sprintf("w%03d", i), cores: cores, isa: "avx2", connected: true}
	}
	return out
}

// settle applies plans until nothing changes, as the leader does, and returns
// the number of rounds. Chains that are not kept are released at once.
func settle(t interface{ Fatal(...any) }, jobs []wish, workers []candidate, splitRows int) {
	for range 20 {
		s := plan(jobs, workers, splitRows)
		changed := false
		for i := range jobs {
			j := jobs[i].job
			moved := map[int]bool{}
			for _, m := range s.places[j.ID] {
				p := &j.Placements[m.Chain]
				changed = changed || p.Worker != m.Worker || !slices.Equal(p.Group, m.Group)
				p.Worker, p.Group = m.Worker, m.Group
				moved[m.Chain] = true
				if m.Worker != "" {
					j.Phase = state.Sampling
				}
			}
			for c := range j.Placements {
				if p := &j.Placements[c]; p.Worker != "" && !s.keep[chainKey{j.ID, c}] && !moved[c] {
					*p, changed = state.Placement{}, true
				}
			}
			if slices.Contains(s.preempt, j.ID) {
				j.Phase, changed = state.Queued, true
			}
		}
		if !changed {
			return
		}
	}
	t.Fatal("the plan does not come to rest")
}

func places(j *state.Job) map[string]int {
	out := map[string]int{}
	for _, p := range j.Placements {
		if p.Worker != "" {
			out[p.Worker]++
		}
	}
	return out
}

func TestChainsFirstThenRows(t *testing.T) {
	jobs := []wish{newWish("a", 4, 50_000, 0)}
	settle(t, jobs, newWorkers(2, 4), 20_000)
	if p := places(jobs[0].job); p["w000"] != 2 || p["w001"] != 2 {
		t.Errorf("on two workers: %v", p)
	}
	settle(t, jobs, newWorkers(10, 4), 20_000) // eight have joined
	if p := places(jobs[0].job); len(p) != 4 {
		t.Errorf("on ten workers: %v", p)
	}
	shared := 0
	for _, p := range jobs[0].job.Placements[1:] {
		if len(p.Group) < 1 || len(p.Group) > 2 {
			t.Errorf("a group of %d", len(p.Group))
		}
		shared += len(p.Group)
	}
	if shared != 6 {
		t.Errorf("%d workers share rows, want 6", shared)
	}
	settle(t, jobs, newWorkers(10, 4), 60_000) // too few rows to share
	for _, p := range jobs[0].job.Placements {
		if len(p.Group) > 0 {
			t.Errorf("group %v", p.Group)
		}
	}
}

func TestPriorityPreempts(t *testing.T) {
	jobs := []wish{newWish("a", 4, 100, 0)}
	workers := newWorkers(2, 2)
	settle(t, jobs, workers, -1)
	jobs = append(jobs, newWish("b", 4, 100, 0))
	settle(t, jobs, workers, -1)
	if jobs[1].job.Placed() {
		t.Error("a job of the same priority overtook")
	}
	jobs = append(jobs, newWish("c", 4, 100, 5))
	settle(t, jobs, workers, -1)
	if jobs[0].job.Placed() || jobs[0].job.Phase != state.Queued || !jobs[2].job.Placed() {
		t.Errorf("a: %v %s, c: %v", places(jobs[0].job), jobs[0].job.Phase, places(jobs[2].job))
	}
}

func TestFairShare(t *testing.T) {
	jobs := []wish{newWish("a", 2, 100, 0), newWish("b", 2, 100, 0), newWish("c", 2, 100, 0)}
	jobs[0].job.Namespace, jobs[1].job.Namespace, jobs[2].job.Namespace = "x", "x", "y"
	jobs[2].job.Submitted = epoch.Add(time.Hour)
	workers := newWorkers(2, 2)
	one := jobs[:1]
	settle(t, one, workers, -1)
	settle(t, jobs, workers, -1)
	if !jobs[2].job.Placed() || jobs[1].job.Placed() {
		t.Errorf("b: %v, c: %v: the namespace that has nothing comes first", places(jobs[1].job), places(jobs[2].job))
	}
}

func TestOtherInstructionSetsAreLeftAlone(t *testing.T) {
	jobs := []wish{newWish("a", 2, 100, 0)}
	jobs[0].job.InstructionSet = "avx512"
	settle(t, jobs, newWorkers(3, 2), -1)
	if jobs[0].job.Placed() {
		t.Errorf("placed: %v", places(jobs[0].job))
	}
}

// Whatever the jobs and the workers are, and however they come and go, the plan
// comes to rest; then every admitted job has all its chains on workers that are
// there, none of which drains, and work is spread.
func TestPlanComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []wish
		for i := range rapid.IntRange(1, 5).Draw(t, "jobs") {
			jobs = append(jobs, newWish(fmt.Sprintf("j%d", i), rapid.IntRange(1, 6).Draw(t, "chains"), 1000, rapid.IntRange(0, 2).Draw(t, "priority")))
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			workers := newWorkers(rapid.IntRange(1, 8).Draw(t, "workers"), rapid.IntRange(1, 4).Draw(t, "cores"))
			for i := range workers {
				workers[i].draining = rapid.IntRange(0, 5).Draw(t, "draining") == 0
			}
			settle(t, jobs, workers, rapid.SampledFrom([]int{-1, 1}).Draw(t, "split"))
			alive := 0
			for _, w := range workers {
				if !w.draining {
					alive++
				}
			}
			placed := 0
			for _, j := range jobs {
				for c, p := range j.job.Placements {
					if c == 0 || p.Worker == "" {
						continue
					}
					placed++
					i := slices.IndexFunc(workers, func(w candidate) bool { return w.id == p.Worker })
					if i < 0 || workers[i].draining {
						t.Fatalf("%s/%d is on %s", j.job.ID, c, p.Worker)
					}
				}
				if n := len(j.chains); j.job.Placed() && func() int {
					sum := 0
					for _, k := range places(j.job) {
						sum += k
					}
					return sum
				}() != n {
					t.Fatalf("%s has places %v for %d chains", j.job.ID, places(j.job), n)
				}
			}
			if alive > 0 && placed == 0 {
				t.Fatal("nothing is at work")
			}
		}
	})
}
