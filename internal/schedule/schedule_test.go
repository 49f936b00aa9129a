package schedule

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/state"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newJob(id string, chains, rows, priority int) Job {
	j := Job{Rows: rows, Job: &state.Job{ID: id, Chains: chains, Phase: state.Queued, Priority: priority, Submitted: epoch,
		Placements: make([]state.Placement, chains+1)}}
	for c := 1; c <= chains; c++ {
		j.Active = append(j.Active, c)
	}
	return j
}

func newWorkers(n, cores int) []Worker {
	out := make([]Worker, n)
	for i := range out {
		out[i] = Worker{ID: fmt.Sprintf("w%03d", i), Cores: cores, InstructionSet: "avx2", Connected: true}
	}
	return out
}

type fataler interface{ Fatalf(string, ...any) }

// carryOut does what a plan says, as the leader and the workers do, and returns
// whether there was anything to do. Chains that are not kept are released at once.
func carryOut(t fataler, jobs []Job, workers []Worker, s Schedule) (changed bool) {
	for i := range jobs {
		j := jobs[i].Job
		for _, m := range s.Places[j.ID] {
			p := &j.Placements[m.Chain]
			if m.Worker != "" && p.Worker != "" && m.Worker != p.Worker && slices.ContainsFunc(workers, func(w Worker) bool { return w.ID == p.Worker }) {
				t.Fatalf("%s/%d goes from %s to %s before it was released", j.ID, m.Chain, p.Worker, m.Worker)
			}
			changed = changed || p.Worker != m.Worker || !slices.Equal(p.Group, m.Group)
			p.Worker, p.Group = m.Worker, m.Group
			if m.Worker != "" {
				j.Phase = state.Sampling
			}
		}
		if slices.Contains(s.Preempt, j.ID) {
			j.Phase, changed = state.Queued, true
		}
	}
	for i := range workers {
		w := &workers[i]
		w.Holds = map[state.ChainKey]bool{}
		for _, j := range jobs {
			for c, p := range j.Placements {
				if key := (state.ChainKey{Job: j.ID, Chain: c}); p.Worker == w.ID && s.Keep[key] {
					w.Holds[key] = true
				} else if p.Worker == w.ID {
					changed = true // it is released, and the next plan clears its place
				}
			}
		}
	}
	return changed
}

// settle plans until nothing changes.
func settle(t fataler, jobs []Job, workers []Worker, splitRows int) {
	for range 30 {
		if !carryOut(t, jobs, workers, Plan(jobs, workers, splitRows)) {
			return
		}
	}
	t.Fatalf("the plan does not come to rest")
}

// places counts a job's chains by worker.
func places(j Job) map[string]int {
	out := map[string]int{}
	for _, p := range j.Placements {
		if p.Worker != "" {
			out[p.Worker]++
		}
	}
	return out
}

func TestChainsFirstThenRows(t *testing.T) {
	jobs := []Job{newJob("a", 4, 50_000, 0)}
	settle(t, jobs, newWorkers(2, 4), 20_000)
	if p := places(jobs[0]); p["w000"] != 2 || p["w001"] != 2 {
		t.Errorf("on two workers: %v", p)
	}
	settle(t, jobs, newWorkers(10, 4), 20_000) // eight have joined
	if p := places(jobs[0]); len(p) != 4 {
		t.Errorf("on ten workers: %v", p)
	}
	shared := 0
	for _, p := range jobs[0].Placements[1:] {
		if len(p.Group) < 1 || len(p.Group) > 2 {
			t.Errorf("a group of %d", len(p.Group))
		}
		shared += len(p.Group)
	}
	if shared != 6 {
		t.Errorf("%d workers share rows, want 6", shared)
	}
	settle(t, jobs, newWorkers(10, 4), 60_000) // too few rows to share
	for _, p := range jobs[0].Placements {
		if len(p.Group) > 0 {
			t.Errorf("group %v", p.Group)
		}
	}
}

// Which of waiting jobs is placed, on two workers of two cores.
func TestAdmission(t *testing.T) {
	at := func(j Job, phase state.Phase, namespace string, age time.Duration) Job {
		j.Phase, j.Namespace, j.Submitted = phase, namespace, epoch.Add(-age)
		return j
	}
	for _, c := range []struct {
		name string
		jobs []Job
		want []string
	}{
		{"nothing to do", nil, nil},
		{"the older one", []Job{newJob("a", 3, 0, 0), at(newJob("b", 3, 0, 0), state.Queued, "", time.Hour)}, []string{"b"}},
		{"both where both fit", []Job{newJob("a", 2, 0, 0), newJob("b", 2, 0, 0)}, []string{"a", "b"}},
		{"priority before age", []Job{at(newJob("a", 3, 0, 0), state.Queued, "", time.Hour), newJob("b", 3, 0, 1)}, []string{"b"}},
		{"at work before age", []Job{at(newJob("a", 3, 0, 0), state.Queued, "", time.Hour), at(newJob("b", 3, 0, 0), state.Sampling, "", 0)}, []string{"b"}},
		{"priority before at work", []Job{newJob("a", 3, 0, 1), at(newJob("b", 3, 0, 0), state.Sampling, "", 0)}, []string{"a"}},
		{"the namespace that has least", []Job{at(newJob("a", 2, 0, 0), state.Sampling, "x", 0), at(newJob("b", 2, 0, 0), state.Queued, "x", time.Hour), at(newJob("c", 2, 0, 0), state.Queued, "y", 0)}, []string{"a", "c"}},
		{"a large job alone", []Job{newJob("a", 9, 0, 0)}, []string{"a"}},
		{"nobody overtakes a large job", []Job{newJob("a", 2, 0, 1), newJob("b", 9, 0, 0), newJob("c", 1, 0, 0)}, []string{"a"}},
		{"a paused job is in nobody's way", []Job{at(newJob("a", 9, 0, 5), state.Paused, "", 0), newJob("b", 1, 0, 0)}, []string{"b"}},
	} {
		s := Plan(c.jobs, newWorkers(2, 2), -1)
		if got := slices.Sorted(maps.Keys(s.Places)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v is placed, want %v", c.name, got, c.want)
		}
	}
	if s := Plan([]Job{newJob("a", 1, 0, 0)}, nil, -1); len(s.Places) != 0 {
		t.Errorf("placed without a worker: %v", s.Places)
	}
}

func TestPriorityPreempts(t *testing.T) {
	jobs := []Job{newJob("a", 4, 100, 0)}
	workers := newWorkers(2, 2)
	settle(t, jobs, workers, -1)
	jobs = append(jobs, newJob("b", 4, 100, 0))
	settle(t, jobs, workers, -1)
	if jobs[1].Placed() {
		t.Error("a job of the same priority overtook")
	}
	jobs = append(jobs, newJob("c", 4, 100, 5))
	settle(t, jobs, workers, -1)
	if jobs[0].Placed() || jobs[0].Phase != state.Queued || !jobs[2].Placed() {
		t.Errorf("a: %v %s, c: %v", places(jobs[0]), jobs[0].Phase, places(jobs[2]))
	}
}

// A chain stays with a worker that may come back, is placed anew when it may not,
// and loses its place when nobody can take it.
func TestWorkerIsLost(t *testing.T) {
	jobs, workers := []Job{newJob("a", 1, 100, 0)}, newWorkers(2, 1)
	settle(t, jobs, workers, -1)
	at := jobs[0].Placements[1].Worker
	i := slices.IndexFunc(workers, func(w Worker) bool { return w.ID == at })
	workers[i].Connected, workers[i].Holds = false, nil
	if s := Plan(jobs, workers, -1); len(s.Places) != 0 || !s.Keep[state.ChainKey{Job: "a", Chain: 1}] {
		t.Errorf("while the worker is away: %+v", s)
	}
	left := []Worker{workers[1-i]}
	if s := Plan(jobs, left, -1); len(s.Places["a"]) != 1 || s.Places["a"][0].Worker != left[0].ID {
		t.Errorf("when it is lost: %+v", s)
	}
	left[0].Draining = true
	if s := Plan(jobs, left, -1); len(s.Places["a"]) != 1 || s.Places["a"][0].Worker != "" {
		t.Errorf("when nobody is left: %+v", s)
	}
}

// A worker of which only a placement tells keeps its chains, of any instruction
// set, and gets none.
func TestUnheardWorker(t *testing.T) {
	jobs := []Job{newJob("a", 2, 100, 0)}
	jobs[0].Phase, jobs[0].InstructionSet = state.Sampling, "avx512"
	jobs[0].Placements[1].Worker = "w"
	s := Plan(jobs, []Worker{{ID: "w", Cores: 1, Unheard: true}}, -1)
	if len(s.Places) != 0 || len(s.Keep) != 1 || !s.Keep[state.ChainKey{Job: "a", Chain: 1}] {
		t.Errorf("%+v", s)
	}
}

// A worker that drains, or of another instruction set, gives its chains up: they
// are not kept, and have no other place before they are released.
func TestChainsAreReleasedFirst(t *testing.T) {
	for name, change := range map[string]func(*Worker){
		"draining":                func(w *Worker) { w.Draining = true },
		"another instruction set": func(w *Worker) { w.InstructionSet = "portable" },
	} {
		jobs, workers := []Job{newJob("a", 1, 100, 0)}, newWorkers(1, 1)
		jobs[0].InstructionSet = "avx2"
		settle(t, jobs, workers, -1)
		workers = append(workers, Worker{ID: "z", Cores: 1, InstructionSet: "avx2", Connected: true})
		change(&workers[0])
		if s := Plan(jobs, workers, -1); len(s.Keep) != 0 || len(s.Places) != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		workers[0].Holds = nil // it has let go
		if s := Plan(jobs, workers, -1); len(s.Places["a"]) != 1 || s.Places["a"][0].Worker != "" {
			t.Errorf("%s, released: %+v", name, s)
		}
		settle(t, jobs, workers, -1)
		if at := jobs[0].Placements[1].Worker; at != "z" {
			t.Errorf("%s: it is at %q in the end", name, at)
		}
	}
}

// Further lanes of a staged run take the cores that are left over, and give them up
// when chains need them.
func TestFurtherLanes(t *testing.T) {
	staged := newJob("s", 2, 100, 0)
	staged.Placements = make([]state.Placement, 12)
	staged.Active = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	jobs, workers := []Job{staged}, newWorkers(2, 3)
	settle(t, jobs, workers, 1)
	if p := places(jobs[0]); p["w000"] != 3 || p["w001"] != 3 {
		t.Errorf("alone on six cores: %v", p)
	}
	for lane, p := range jobs[0].Placements {
		if lane <= 2 && lane > 0 && p.Worker == "" {
			t.Errorf("chain %d has no place", lane)
		}
	}
	jobs = append(jobs, newJob("b", 4, 100, 0))
	settle(t, jobs, workers, 1)
	for _, j := range jobs {
		for lane := 1; lane <= j.Chains; lane++ {
			if j.Placements[lane].Worker == "" {
				t.Errorf("%s/%d has no place", j.ID, lane)
			}
		}
	}
	a, b := places(jobs[0]), places(jobs[1])
	for _, w := range workers {
		if a[w.ID]+b[w.ID] > 3 {
			t.Errorf("%s drives %d and %d on three cores", w.ID, a[w.ID], b[w.ID])
		}
	}
	jobs[1].Phase = state.Paused
	settle(t, jobs, append(workers, newWorkers(3, 3)[2]), 1)
	if p := places(jobs[0]); p["w000"]+p["w001"]+p["w002"] != 9 {
		t.Errorf("alone on nine cores: %v", p)
	}
	workers[0].Draining = true
	settle(t, jobs, workers, 1)
	if p := places(jobs[0]); p["w000"] != 0 || p["w001"] != 3 {
		t.Errorf("on three cores, with one that drains: %v", p)
	}
}

func TestOtherInstructionSetsAreLeftAlone(t *testing.T) {
	jobs := []Job{newJob("a", 2, 100, 0)}
	jobs[0].InstructionSet = "avx512"
	settle(t, jobs, newWorkers(3, 2), -1)
	if jobs[0].Placed() {
		t.Errorf("placed: %v", places(jobs[0]))
	}
}

// A job goes to a worker that has the memory for it beside the jobs that are there, though another one
// has fewer chains; where none has, it goes where there are fewest, as ever. Chains of one job count once.
func TestMemoryOfSeveralJobs(t *testing.T) {
	for _, c := range []struct {
		name           string
		large, several int64 // memory of a job of one chain at w000, and of one of three at w001
		want           string
	}{
		{"room at the fuller one", 3 << 30, 1 << 30, "w001"},
		{"room at both", 1 << 30, 1 << 30, "w000"},
		{"room at neither", 3 << 30, 3 << 30, "w000"},
		{"not known", 0, 0, "w000"},
	} {
		workers := newWorkers(2, 4)
		jobs := []Job{newJob("large", 1, 100, 0), newJob("several", 3, 100, 0), newJob("new", 1, 100, 0)}
		jobs[0].Memory, jobs[1].Memory, jobs[2].Memory = c.large, c.several, 2<<30
		for i := range workers {
			workers[i].Memory, workers[i].Holds = 4<<30, map[state.ChainKey]bool{}
			for chain := range jobs[i].Placements[1:] {
				jobs[i].Placements[chain+1].Worker = workers[i].ID
				workers[i].Holds[state.ChainKey{Job: jobs[i].ID, Chain: chain + 1}] = true
			}
			jobs[i].Phase = state.Sampling
		}
		if got := Plan(jobs, workers, -1).Places["new"]; len(got) != 1 || got[0].Worker != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// A job that no worker can do keeps no core from the others: it began with another
// instruction set, wants more memory than there is, or was tried everywhere.
func TestWhatNobodyCanDoHoldsNothing(t *testing.T) {
	for name, spoil := range map[string]func(j *Job, w []Worker){
		"instruction set": func(j *Job, _ []Worker) { j.InstructionSet = "avx512" },
		"memory":          func(j *Job, w []Worker) { j.Memory, w[0].Memory, w[1].Memory = 9, 8, 4 },
		"tried": func(_ *Job, w []Worker) {
			w[0].Aside, w[1].Aside = map[string]bool{"a": true}, map[string]bool{"a": true}
		},
	} {
		jobs, workers := []Job{newJob("a", 4, 100, 0), newJob("b", 4, 100, 0)}, newWorkers(2, 2)
		settle(t, jobs[:1], workers, -1)
		spoil(&jobs[0], workers)
		settle(t, jobs, workers, -1)
		if jobs[0].Placed() || jobs[0].Phase != state.Queued || !jobs[1].Placed() {
			t.Errorf("%s: a: %v %s, b: %v", name, places(jobs[0]), jobs[0].Phase, places(jobs[1]))
		}
	}
	jobs, workers := []Job{newJob("a", 2, 100, 0), newJob("b", 1, 100, 0)}, newWorkers(3, 1)
	workers[0].Aside = map[string]bool{"a": true}
	settle(t, jobs, workers, -1)
	if p := places(jobs[0]); p["w000"] != 0 || len(p) != 2 || places(jobs[1])["w000"] != 1 {
		t.Errorf("beside a worker that cannot: %v %v", p, places(jobs[1]))
	}
}

// draw returns jobs of any kind, and workers that have nothing to do with their
// placements.
func draw(t *rapid.T) []Job {
	var jobs []Job
	for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
		j := newJob(fmt.Sprintf("j%d", i), rapid.IntRange(1, 6).Draw(t, "chains"), rapid.SampledFrom([]int{0, 1000, 30_000}).Draw(t, "rows"), rapid.IntRange(0, 2).Draw(t, "priority"))
		j.Namespace = rapid.SampledFrom([]string{"", "x"}).Draw(t, "namespace")
		j.Submitted = epoch.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Hour)
		j.InstructionSet = rapid.SampledFrom([]string{"", "", "avx2", "portable"}).Draw(t, "instruction set")
		j.Memory = rapid.SampledFrom([]int64{0, 1, 3}).Draw(t, "memory")
		jobs = append(jobs, j)
	}
	return jobs
}

func drawWorkers(t *rapid.T) []Worker {
	workers := newWorkers(rapid.IntRange(0, 8).Draw(t, "workers"), rapid.IntRange(1, 4).Draw(t, "cores"))
	for i := range workers {
		workers[i].Draining = rapid.IntRange(0, 5).Draw(t, "draining") == 0
		workers[i].InstructionSet = rapid.SampledFrom([]string{"avx2", "avx2", "portable"}).Draw(t, "instruction set")
		workers[i].Memory = rapid.SampledFrom([]int64{0, 2, 4}).Draw(t, "memory")
		if j := rapid.IntRange(0, 11).Draw(t, "aside"); j < 6 {
			workers[i].Aside = map[string]bool{fmt.Sprintf("j%d", j): true}
		}
		workers[i].Wrong = rapid.IntRange(0, 7).Draw(t, "wrong") == 0
		if k := rapid.IntRange(0, 2*len(workers)).Draw(t, "apart"); k < len(workers) {
			workers[i].Apart = map[string]bool{workers[k].ID: true}
		}
	}
	return workers
}

// precedes reports whether a certainly comes before b.
func precedes(a, b Job) bool {
	switch {
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case a.Phase.AtWork() != b.Phase.AtWork():
		return a.Phase.AtWork()
	}
	return a.Namespace == b.Namespace && a.Submitted.Before(b.Submitted)
}

// Whatever the jobs and the workers are, and however they come, go, pause and
// drain, plans come to rest, and then: every chain that has a place is at a worker
// that is there, does not drain and fits; jobs are placed whole, as far as their
// instruction set is there; no more chains are at work than there are cores, but
// for a job that is alone; nobody has overtaken; nobody has two chains where a
// worker that fits has none; groups are of idle workers, each in one, for chains
// of many rows.
func TestPlans(t *testing.T) {
	const split = 20_000
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			workers := drawWorkers(t)
			if i := rapid.IntRange(-1, len(jobs)-1).Draw(t, "pause"); i >= 0 {
				jobs[i].Phase = rapid.SampledFrom([]state.Phase{state.Paused, state.Queued}).Draw(t, "phase")
			}
			settle(t, jobs, workers, split)
			if again := Plan(jobs, workers, split); len(again.Places)+len(again.Preempt) != 0 {
				t.Fatalf("a plan that came to rest moves %+v", again)
			}
			checkPlaces(t, jobs, workers)
			checkAdmission(t, jobs, workers)
			checkGroups(t, jobs, workers, split)
		}
	})
}

// could reports whether a worker may have a job's chains.
func could(j Job, w Worker) bool {
	return !w.Wrong && !w.Draining && !w.Aside[j.ID] && (j.InstructionSet == "" || j.InstructionSet == w.InstructionSet) &&
		(j.Memory == 0 || w.Memory == 0 || j.Memory <= w.Memory)
}

func checkPlaces(t *rapid.T, jobs []Job, workers []Worker) {
	load := map[string]int{}
	for _, j := range jobs {
		for w, n := range places(j) {
			load[w] += n
		}
	}
	for _, j := range jobs {
		n := 0
		for c, p := range j.Placements {
			if p.Worker == "" {
				continue
			}
			n++
			i := slices.IndexFunc(workers, func(w Worker) bool { return w.ID == p.Worker })
			if i < 0 || !could(j, workers[i]) {
				t.Fatalf("%s/%d is on %s", j.ID, c, p.Worker)
			}
			for _, w := range workers {
				if load[p.Worker] > 1 && load[w.ID] == 0 && could(j, w) {
					t.Fatalf("%s/%d is one of %d chains on %s, and %s has none", j.ID, c, load[p.Worker], p.Worker, w.ID)
				}
			}
		}
		if n != 0 && n != j.Chains {
			t.Fatalf("%d of %d chains of %s have a place", n, j.Chains, j.ID)
		}
	}
}

func checkAdmission(t *rapid.T, jobs []Job, workers []Worker) {
	fitting := func(j Job) (cores int, ids map[string]bool) {
		ids = map[string]bool{}
		for _, w := range workers {
			if could(j, w) {
				cores, ids[w.ID] = cores+w.Cores, true
			}
		}
		return cores, ids
	}
	slots, used := 0, 0
	for _, w := range workers {
		if !w.Draining {
			slots += w.Cores
		}
	}
	for _, j := range jobs {
		if cores, _ := fitting(j); j.Placed() && j.Chains <= cores { // else it is alone where it is
			used += j.Chains
		}
	}
	if used > slots {
		t.Fatalf("%d chains on %d cores", used, slots)
	}
	for _, a := range jobs {
		cores, at := fitting(a)
		if a.Phase == state.Paused || a.Placed() || cores == 0 {
			continue
		}
		idle := cores >= a.Chains
		for _, b := range jobs {
			_, others := fitting(b)
			wants := false
			for w := range at {
				wants = wants || others[w]
			}
			idle = idle && !(wants && b.Placed())
			inside := true
			for w := range others {
				inside = inside && at[w]
			}
			if inside && b.Placed() && precedes(a, b) {
				t.Fatalf("%s has overtaken %s", b.ID, a.ID)
			}
		}
		if idle && !slices.ContainsFunc(jobs, func(b Job) bool { return b.ID != a.ID && b.Phase != state.Paused && !b.Placed() }) {
			t.Fatalf("%s waits before idle workers", a.ID)
		}
	}
}

func checkGroups(t *rapid.T, jobs []Job, workers []Worker, split int) {
	drives, in := map[string]bool{}, map[string]bool{}
	for _, j := range jobs {
		for w := range places(j) {
			drives[w] = true
		}
	}
	for _, j := range jobs {
		for c, p := range j.Placements {
			if len(p.Group) > 0 && (j.Rows < split || p.Worker == "") {
				t.Fatalf("%s/%d of %d rows at %q has the group %v", j.ID, c, j.Rows, p.Worker, p.Group)
			}
			for _, w := range p.Group {
				i := slices.IndexFunc(workers, func(o Worker) bool { return o.ID == w })
				if in[w] || drives[w] || i < 0 || !could(j, workers[i]) || workers[i].Apart[p.Worker] {
					t.Fatalf("%s is in the group of %s/%d", w, j.ID, c)
				}
				in[w] = true
			}
		}
	}
}
