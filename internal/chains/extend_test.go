package chains

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// A run that ended and was extended has the draws of a run that was asked for
// as many from the start, whoever was ahead when it ended.
func TestExtend(t *testing.T) {
	long := testPlan("fisher")
	long.Draws, long.MaxDraws, long.ESS = 75, 75, 1e9
	want, _ := simulate(t, long, 0, func(int) int { return 0 })
	short := long
	short.Draws, short.MaxDraws = 45, 45
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "chain") }
		r, _ := simulate(rt, short, 0, pick)
		if len(r.Chains[0].Draws) != 45 {
			rt.Fatalf("%d draws", len(r.Chains[0].Draws))
		}
		if err := r.Apply(Event{Extend: &Extend{Draws: 30}}); err != nil {
			rt.Fatal(err)
		}
		if r.Phase != Sampling || r.Stopped != nil || r.Plan.Draws != 75 || r.Plan.MaxDraws != 75 {
			rt.Fatalf("%s, %+v", r.Phase, r.Plan)
		}
		var judge Judge
		for r.Phase != Done {
			if stop := judge.Decide(r, 0); stop != nil {
				if err := r.Apply(Event{Stop: stop}); err != nil {
					rt.Fatal(err)
				}
				continue
			}
			var ready []Task
			for c := 1; c <= short.Chains; c++ {
				if task, ok := r.Task(c); ok {
					ready = append(ready, task)
				}
			}
			if err := r.Apply(Event{Checkpoint: fake(ready[pick(len(ready))], 0)}); err != nil {
				rt.Fatal(err)
			}
		}
		if diff := cmp.Diff(kept(want), kept(r)); diff != "" {
			rt.Fatal(diff)
		}
	})
	r := New(long)
	if err := r.Apply(Event{Extend: &Extend{Draws: -1}}); err != ErrShape {
		t.Errorf("extended by a negative number: %v", err)
	}
}

// A driver that goes on by Task.Next does what the run would have told it.
func TestNextIsWhatTheRunSays(t *testing.T) {
	for _, method := range []string{"fisher", "sgld"} {
		p := testPlan(method)
		r := New(p)
		events := []Event{{Prepared: testPrepared(p)}}
		for len(events) > 0 {
			if err := r.Apply(events[0]); err != nil {
				t.Fatal(err)
			}
			events = events[1:]
			for r.AtBarrier() {
				s, err := Adapt(r)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Apply(Event{Settings: s}); err != nil {
					t.Fatal(err)
				}
			}
			for c := 1; c <= p.Chains; c++ {
				task, ok := r.Task(c)
				for ok {
					k := fake(task, 0)
					next, more := task.Next(&p, k)
					if err := r.Apply(Event{Checkpoint: k}); err != nil {
						t.Fatal(err)
					}
					said, goes := r.Task(c)
					if more && (!goes || cmp.Diff(said, next, cmpopts.IgnoreFields(Task{}, "Left")) != "") {
						t.Fatalf("%s: next %+v, the run says %+v (%v)", method, next, said, goes)
					}
					task, ok = next, more
				}
				if r.AtBarrier() {
					s, err := Adapt(r)
					if err != nil {
						t.Fatal(err)
					}
					events = append(events, Event{Settings: s})
				}
			}
		}
	}
}
