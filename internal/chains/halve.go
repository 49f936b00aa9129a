package chains

import (
	"fmt"
	"math"
)

// A chain that diverges on the way to a checkpoint begins that way again, with half the step
// that it took. How often the step was halved is part of its state, so that whoever drives the
// chain takes the same steps. The settings of the next window take the step of the chain whose
// was halved most often: in warm-up one chain shows what is too much for all. Once the settings
// are frozen each chain keeps to its own.

// MaxHalvings is how often a step is halved before a chain that diverges fails its run.
const MaxHalvings = 4

// Divergence is what became of a chain that diverged.
type Divergence struct {
	Iter int     `json:"iter"` // at which it did
	From int     `json:"from"` // the iteration after which it began again
	Step float64 `json:"step"` // with this step
}

// Text says it of a chain (from 1).
func (d Divergence) Text(chain int) string {
	return fmt.Sprintf("chain %d diverged at iteration %d: from iteration %d on its step is half of what it was, %.3g", chain, d.Iter, d.From+1, d.Step)
}

// Halvings is how often the step that the task takes was halved.
func (t *Task) Halvings() int { return max(t.Settings.Halvings, t.From.Halvings) }

// Step is the step that the task takes, where the method has one.
func (t *Task) Step() float64 {
	return math.Ldexp(t.Settings.Step, t.Settings.Halvings-t.Halvings())
}

// Halve has the task take half the step. It reports false if there is no step to halve, or it
// has been halved as often as may be.
func (t *Task) Halve() bool {
	h := t.Halvings() + 1
	if t.Settings.Step == 0 || h > MaxHalvings {
		return false
	}
	t.From.Halvings = h
	return true
}

// Halvings returns how often the step of the chain was halved that diverged most often.
func (r *Run) Halvings() int {
	h := 0
	for _, c := range r.Chains {
		h = max(h, c.State.Halvings)
	}
	return h
}

// halved reports whether a checkpoint of a task halves the step once for each time that it
// diverged, and not otherwise.
func (k *Checkpoint) halved(t *Task) bool {
	want := t.From.Halvings
	if n := len(k.Diverged); n > 0 {
		want = t.Halvings() + n
	}
	for _, iter := range k.Diverged {
		if iter <= k.FromIter || iter > k.FromIter+t.Iterations {
			return false
		}
	}
	return k.State.Halvings == want && want <= MaxHalvings
}

// Divergences returns what a checkpoint of a task tells of divergences.
func (k *Checkpoint) Divergences(t Task) []Divergence {
	var out []Divergence
	for _, iter := range k.Diverged {
		if !t.Halve() {
			break
		}
		out = append(out, Divergence{Iter: iter, From: k.FromIter, Step: t.Step()})
	}
	return out
}
