package chains_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// begun returns a run in its first window.
func begun(t *testing.T) *chains.Run {
	t.Helper()
	p := chainstest.Plan("fisher")
	r := chains.New(p)
	apply(t, r, chains.Event{Prepared: chainstest.Prepared(p)})
	settle(t, r)
	return r
}

func apply(t *testing.T, r *chains.Run, e chains.Event) {
	t.Helper()
	if err := r.Apply(e); err != nil {
		t.Fatal(err)
	}
}

// settle takes the decision at a barrier, from what a driver is told of the run.
func settle(t *testing.T, r *chains.Run) {
	t.Helper()
	w, ok := r.Adapting()
	if !ok {
		t.Fatal("the run is at no barrier")
	}
	m := w.Wire()
	told, err := chains.WorkOf(m)
	if err != nil {
		t.Fatal(err)
	}
	e, err := sampler.Adapt(told.Adapt.Run())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, r, *e)
}

// window has all chains do a window. Chain 2 diverges, so many times, on the way to its first checkpoint.
func window(t *testing.T, r *chains.Run, times int) {
	t.Helper()
	for c := range r.Chains {
		for {
			task, ok := r.Task(c + 1)
			if !ok || !task.Warmup {
				break
			}
			from := task.From
			var diverged []int
			for ; c == 1 && times > 0; times-- {
				diverged = append(diverged, from.Iter+2)
				if !task.Halve() {
					t.Fatal("the step cannot be halved")
				}
			}
			k := chainstest.Checkpoint(task, 0)
			k.Diverged = diverged
			apply(t, r, chains.Event{Checkpoint: k})
		}
	}
}

// A chain keeps the step that was halved, the others keep theirs until the next window, which
// takes the smallest; after the warm-up each keeps its own.
func TestHalvedSteps(t *testing.T) {
	r := begun(t)
	window(t, r, 2)
	if got, want := r.Chains[1].Divergences, []chains.Divergence{{Iter: 2, From: 0, Step: 0.4}, {Iter: 2, From: 0, Step: 0.2}}; !cmp.Equal(got, want) {
		t.Errorf("divergences %+v", got)
	}
	settle(t, r)
	if s := r.Settings; s.Step != 0.2 || s.Halvings != 2 {
		t.Errorf("the next window has step %g after %d halvings", s.Step, s.Halvings)
	}
	window(t, r, 1)
	for c, want := range []float64{0.2, 0.1, 0.2} {
		task := chains.Task{From: r.Chains[c].State, Settings: *r.Settings}
		if task.Step() != want {
			t.Errorf("chain %d has step %g, want %g", c+1, task.Step(), want)
		}
	}
	settle(t, r)
	window(t, r, 0)
	settle(t, r)
	if r.Phase != chains.Sampling || r.Settings.Step != 0.1 {
		t.Fatalf("%s with step %g", r.Phase, r.Settings.Step)
	}

	task, _ := r.Task(1)
	if !task.Halve() || task.Step() != 0.05 || task.Halve() {
		t.Errorf("after %d halvings the step is %g", task.Halvings(), task.Step())
	}
	k := chainstest.Checkpoint(task, 0)
	k.Diverged = []int{k.State.Iter}
	next, _ := task.Next(&r.Plan, k)
	apply(t, r, chains.Event{Checkpoint: k})
	same, _ := r.Task(1)
	other, _ := r.Task(2)
	if next.Step() != 0.05 || same.Step() != 0.05 || other.Step() != 0.1 {
		t.Errorf("then the steps are %g, %g and of another chain %g", next.Step(), same.Step(), other.Step())
	}
	if d := r.Chains[0].Divergences; len(d) != 1 || d[0].Text(1) != "chain 1 diverged at iteration 60: from iteration 51 on its step is half of what it was, 0.05" {
		t.Errorf("%+v", d)
	}
}

// Checkpoints whose halvings are not those of their task are refused.
func TestHalvingsAreChecked(t *testing.T) {
	for name, spoil := range map[string]func(k *chains.Checkpoint){
		"more than it diverged":     func(k *chains.Checkpoint) { k.State.Halvings = 1 },
		"fewer":                     func(k *chains.Checkpoint) { k.Diverged = []int{3} },
		"negative":                  func(k *chains.Checkpoint) { k.State.Halvings = -1 },
		"too many":                  func(k *chains.Checkpoint) { k.Diverged, k.State.Halvings = []int{1, 1, 1, 1, 1}, 5 },
		"before the task":           func(k *chains.Checkpoint) { k.Diverged, k.State.Halvings = []int{0}, 1 },
		"after the end of the task": func(k *chains.Checkpoint) { k.Diverged, k.State.Halvings = []int{6}, 1 },
	} {
		r := begun(t)
		task, _ := r.Task(1)
		k := chainstest.Checkpoint(task, 0)
		spoil(k)
		if err := r.Apply(chains.Event{Checkpoint: k}); !errors.Is(err, chains.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A method without a step has none to halve.
func TestNoStepToHalve(t *testing.T) {
	if task := (chains.Task{}); task.Halve() {
		t.Error("nothing was halved")
	}
}
