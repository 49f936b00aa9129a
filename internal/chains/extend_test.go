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
