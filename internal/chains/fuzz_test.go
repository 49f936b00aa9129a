package chains_test

import (
	"encoding/json"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// fuzzRun returns a run of two chains and three parameters that stands at the
// beginning (0), in the warm-up (1) or in sampling (2).
func fuzzRun(t testing.TB, phase int) *chains.Run {
	r := chains.New(chains.Plan{Method: "fisher", Names: []string{"a", "b", "c"}, Chains: 2, Windows: []int{2, 4, 4}, Checkpoint: 5, Draws: 20, MaxDraws: 40,
		Step: 0.8, MaxProbes: 64, Solver: "auto", RHat: 1.1, ESS: 100})
	apply := func(e chains.Event) {
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if phase == 0 {
		return r
	}
	psi := []float64{0, 0, 0}
	apply(chains.Event{Prepared: &chains.Prepared{Psi: psi, Starts: [][]float64{psi, psi}, Cov: []float64{1, 0, 0, 0, 1, 0, 0, 0, 1},
		ProbeCov: []float64{0.1, 0, 0, 0, 0.1, 0, 0, 0, 0.1}, SolverCov: make([]float64, 9)}})
	for {
		if r.AtBarrier() {
			e, err := sampler.Adapt(r)
			if err != nil {
				t.Fatal(err)
			}
			apply(*e)
		}
		for c := range r.Chains {
			if phase == 1 && c == 1 && r.Settings.Window == 1 || phase == 2 && r.Phase == chains.Sampling && len(r.Chains[c].Draws) > 0 {
				return r
			}
			task, ok := r.Task(c + 1)
			if !ok {
				continue
			}
			k := &chains.Checkpoint{Chain: c + 1, FromIter: task.From.Iter, State: chains.State{Iter: task.From.Iter + task.Iterations, Psi: psi}}
			for i := range task.Iterations {
				x := float64(i%3+c) / 10
				k.Draws = append(k.Draws, []float64{x, -x, x * x})
			}
			apply(chains.Event{Checkpoint: k})
		}
	}
}

// No event of a driver, however it looks, stops those who read it: it is refused,
// or the run goes on with it, can be written, and adapts or says why not.
func FuzzEvent(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"prepared":{"psi":[0,0,0],"starts":[[0,0,0],[0,0,0]],"cov":[1,0,0,0,1,0,0,0,1]}}`,
		`{"prepared":{"psi":[0,0,0],"starts":[[0,0,0],[0,0,0]],"cov":[-1,0,0,0,1e308,0,0,0,1],"probe_cov":[1e308,0,0,0,1,0,0,0,1]}}`,
		`{"checkpoint":{"chain":1,"from_iter":2,"state":{"iter":6,"psi":[0,0,0]},"draws":[[0,0,0],[1,1,1],[0,0,0],[1,0,0]],"stats":{"spreads":4,"probe_cov":[1]}}}`,
		`{"checkpoint":{"chain":2,"from_iter":2,"state":{"iter":6,"psi":[0,0,0],"memory":[1]},"draws":[[0,0,0],[1,1,1],[0,0,0],[1,0,0]],"stats":{"spreads":4,"probe_cov":[1e308,0,0,0,1e308,0,0,0,1e308]}}}`,
		`{"checkpoint":{"chain":2,"from_iter":2,"state":{"iter":6,"psi":[0,0,0]},"draws":[[0,0,0],[1,1,1],[0,0,0],[1,0,0]],"stats":{"spreads":4,"probe_cov":[1e308,0,0,0,1e308,0,0,0,1e308]}}}`,
		`{"checkpoint":{"chain":2,"from_iter":10,"state":{"iter":15,"psi":[0,0,0]},"draws":[[0,0,0],[1,1,1],[0,0,0],[1,0,0],[700,-700,3]],"discard":1}}`,
		`{"settings":{"window":1,"c":[]},"checkpoint":{}}`, `{"stop":{"draws":-1}}`, `{"stop":{"draws":1}}`, `{"extend":{"draws":9223372036854775807}}`,
	} {
		for phase := range 3 {
			f.Add([]byte(text), phase)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, phase int) {
		var e chains.Event
		if json.Unmarshal(text, &e) != nil || phase < 0 || phase > 2 {
			return
		}
		r := fuzzRun(t, phase)
		before, _ := json.Marshal(r)
		if r.Apply(e) != nil {
			if after, _ := json.Marshal(r); string(after) != string(before) {
				t.Fatal("an event that was refused has changed the run")
			}
			return
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatalf("the run cannot be written: %v", err)
		}
		for c := range r.Chains { // the others do what is theirs
			for task, ok := r.Task(c + 1); ok && task.Warmup; task, ok = r.Task(c + 1) {
				k := &chains.Checkpoint{Chain: c + 1, FromIter: task.From.Iter, State: chains.State{Iter: task.From.Iter + task.Iterations, Psi: []float64{0, 0, 0}}}
				for range task.Iterations {
					k.Draws = append(k.Draws, []float64{0, 0, 0})
				}
				if err := r.Apply(chains.Event{Checkpoint: k}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r.AtBarrier() {
			if e, err := sampler.Adapt(r); err == nil {
				if _, err := json.Marshal(e); err != nil {
					t.Fatalf("settings cannot be written: %v", err)
				}
				if err := r.Apply(*e); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := r.MinDraws(); n > 0 {
			r.Diagnose(n)
		}
	})
}
