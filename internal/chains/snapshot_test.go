package chains

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A snapshot stays what it is, whatever is applied to the run it was taken of;
// and events applied to it make of it what they make of the run, and leave the
// run alone.
func TestSnapshot(t *testing.T) {
	plan := Plan{Method: "fisher", Names: []string{"s", "l"}, Chains: 2, Checkpoint: 2, Windows: []int{4, 4}, Draws: 8, MaxDraws: 40, Seed: 1, Step: 0.8, MaxProbes: 8}
	one := []float64{1, 0, 0, 1}
	text := func(r *Run) string {
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	// next returns an event that the run may take, of those that a cluster makes.
	next := func(t *rapid.T, r *Run) Event {
		switch {
		case r.Phase == Preparing:
			return Event{Prepared: &Prepared{Psi: []float64{0, 0}, Cov: one, ProbeCov: one, Starts: [][]float64{{0, 0}, {1, 1}}}}
		case r.AtBarrier():
			w := r.nextWindow()
			return Event{Settings: &Settings{Window: w, C: one, ProbeCov: one, Step: 0.5, Probes: 4}}
		case r.Phase == Done || rapid.IntRange(0, 9).Draw(t, "extend") == 0:
			return Event{Extend: &Extend{Draws: 3}}
		case r.Phase == Sampling && rapid.IntRange(0, 9).Draw(t, "stop") == 0:
			return Event{Stop: &Stop{Reason: MaxTime, Draws: r.MinDraws()}}
		}
		task, ok := r.Task(rapid.IntRange(1, 2).Draw(t, "chain"))
		if !ok {
			return Event{Extend: &Extend{Draws: 1}}
		}
		k := &Checkpoint{Chain: task.Chain, FromIter: task.From.Iter, State: task.From.clone()}
		for range task.Iterations {
			k.State.Iter++
			k.State.Psi = []float64{float64(task.Chain), float64(k.State.Iter)}
			k.Draws = append(k.Draws, k.State.Psi)
		}
		k.Stats = Stats{Spreads: 1, ProbeCov: []float64{1, 2, 2, 5}}
		k.Cost = Cost{Gradients: task.Iterations, Seconds: 1}
		return Event{Checkpoint: k}
	}
	rapid.Check(t, func(t *rapid.T) {
		r := New(plan)
		for range rapid.IntRange(0, 40).Draw(t, "before") {
			if err := r.Apply(next(t, r)); err != nil {
				t.Fatal(err)
			}
		}
		s := r.Snapshot()
		was := text(s)
		if diff := cmp.Diff(text(r), was); diff != "" {
			t.Fatalf("a snapshot differs:\n%s", diff)
		}
		var events []Event
		for range rapid.IntRange(1, 20).Draw(t, "after") {
			e := next(t, r)
			if err := r.Apply(e); err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		if diff := cmp.Diff(was, text(s)); diff != "" {
			t.Fatalf("the snapshot has changed with the run:\n%s", diff)
		}
		end := text(r)
		for _, e := range events {
			if err := s.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(end, text(s)); diff != "" {
			t.Fatalf("the same events make of the snapshot:\n%s", diff)
		}
		if diff := cmp.Diff(end, text(r)); diff != "" {
			t.Fatalf("the run has changed with the snapshot:\n%s", diff)
		}
	})
}
