package chains_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// A run that ended and was extended has the draws of a run that was asked for
// as many from the start, whoever was ahead when it ended.
func TestExtend(t *testing.T) {
	long := chainstest.Plan("fisher")
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
		if err := r.Apply(chains.Event{Extend: &chains.Extend{Draws: 30}}); err != nil {
			rt.Fatal(err)
		}
		if r.Phase != chains.Sampling || r.Stopped != nil || r.Plan.Draws != 75 || r.Plan.MaxDraws != 75 {
			rt.Fatalf("%s, %+v", r.Phase, r.Plan)
		}
		chainstest.Simulate(rt, r, 0, pick)
		if diff := cmp.Diff(kept(want), kept(r)); diff != "" {
			rt.Fatal(diff)
		}
	})
	r := chains.New(long)
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Draws: -1}}); err != chains.ErrShape {
		t.Errorf("extended by a negative number: %v", err)
	}
}

// A driver that goes on by chains.Task.Next does what the run would have told it.
func TestNextIsWhatTheRunSays(t *testing.T) {
	for _, method := range []string{"fisher", "sgld"} {
		p := chainstest.Plan(method)
		r := chains.New(p)
		events := []chains.Event{{Prepared: chainstest.Prepared(p)}}
		for len(events) > 0 {
			if err := r.Apply(events[0]); err != nil {
				t.Fatal(err)
			}
			events = events[1:]
			for r.AtBarrier() {
				adapt(t, r)
			}
			for c := 1; c <= p.Chains; c++ {
				task, ok := r.Task(c)
				for ok {
					k := chainstest.Checkpoint(task, 0)
					next, more := task.Next(&p, k)
					if err := r.Apply(chains.Event{Checkpoint: k}); err != nil {
						t.Fatal(err)
					}
					said, goes := r.Task(c)
					if more && (!goes || cmp.Diff(said, next, cmpopts.IgnoreFields(chains.Task{}, "Left")) != "") {
						t.Fatalf("%s: next %+v, the run says %+v (%v)", method, next, said, goes)
					}
					task, ok = next, more
				}
				if r.AtBarrier() {
					e, err := sampler.Adapt(r)
					if err != nil {
						t.Fatal(err)
					}
					events = append(events, *e)
				}
			}
		}
	}
}

// A run that has ended and gets another goal has the draws of one that had it from the start; what
// has ended in its warm-up goes on with that.
func TestGoal(t *testing.T) {
	long := chainstest.Plan("fisher")
	long.Draws, long.MaxDraws, long.ESS, long.MaxTime = 75, 75, 1e9, 0
	want, _ := simulate(t, long, 0, func(int) int { return 0 })
	goal := long.Goal()
	rapid.Check(t, func(rt *rapid.T) {
		short := long
		short.Draws, short.MaxDraws, short.RHat, short.ESS = 45, 45, 100, 1
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "chain") }
		r, _ := simulate(rt, short, 0, pick)
		if r.Stopped == nil || len(r.Chains[0].Draws) != 45 {
			rt.Fatalf("%d draws", len(r.Chains[0].Draws))
		}
		if err := r.Apply(chains.Event{Extend: &chains.Extend{Goal: &goal}}); err != nil {
			rt.Fatal(err)
		}
		if r.Phase != chains.Sampling || r.Stopped != nil || r.Plan.Goal() != goal {
			rt.Fatalf("%s, %+v", r.Phase, r.Plan)
		}
		chainstest.Simulate(rt, r, 0, pick)
		if diff := cmp.Diff(kept(want), kept(r)); diff != "" {
			rt.Fatal(diff)
		}
		// Draws that are there are not given up.
		less := goal
		less.Draws, less.MaxDraws = 10, 10
		if err := r.Apply(chains.Event{Extend: &chains.Extend{Goal: &less}}); err != nil || r.Plan.MaxDraws < 75 {
			rt.Fatalf("%v, %+v", err, r.Plan)
		}
	})
	r := chains.New(long)
	for _, e := range []chains.Event{{Prepared: chainstest.Prepared(long)}, {Stop: &chains.Stop{Reason: chains.MaxTime, Elapsed: 1}}, {Extend: &chains.Extend{Goal: &goal}}} {
		text, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := chains.DecodeEvent(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(*back); err != nil {
			t.Fatal(err)
		}
	}
	if r.Phase != chains.Warmup || r.Stopped != nil {
		t.Errorf("%s", r.Phase)
	}
	for _, bad := range []chains.Extend{{Draws: 1, Goal: &goal}, {Goal: &chains.Goal{}}, {Goal: &chains.Goal{Draws: 2, MaxDraws: 1}}, {Goal: &chains.Goal{Draws: 1, MaxDraws: 1, MaxTime: -1}}} {
		if err := r.Apply(chains.Event{Extend: &bad}); err != chains.ErrShape {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
