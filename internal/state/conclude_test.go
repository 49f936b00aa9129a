package state

import (
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// A job of a model with a mean is at work until its coefficients are there, for which lane 0 needs a driver; then
// it has ended, and no lane has one.
func TestJobWithCoefficients(t *testing.T) {
	r := newReplica(t)
	plan := *testPlan()
	plan.Mean = true
	at := epoch
	do := func(c Command) *Job {
		t.Helper()
		at = at.Add(time.Second)
		j, err := r.apply(t, at, c)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	do(&Submit{ID: "a", Name: "n", Spec: "s", Chains: plan.Chains, ClientID: "c"})
	do(&Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w"}, {Chain: 1, Worker: "w"}, {Chain: 2, Worker: "w"}}})
	do(&Loaded{Job: "a", Attempt: 1, Info: &dataset.Info{Rows: 10, SHA256: "x"}, Plan: &plan, InstructionSet: "portable"})
	var f Follower
	r.follow(t, &f, "a")
	for f.Run.Stopped == nil {
		if f.Run.AtBarrier() {
			e, err := sampler.Adapt(f.Run)
			if err != nil {
				t.Fatal(err)
			}
			do(&Decide{Job: "a", Event: encoded(t, *e)[0]})
		} else if f.Run.MinDraws() >= plan.Draws {
			do(&Decide{Job: "a", DrawsSHA256: "h", Event: encoded(t, chains.Event{Stop: &chains.Stop{Reason: chains.Converged, Draws: plan.Draws}})[0]})
		} else {
			for _, lane := range f.Run.Lanes() {
				if w, ok := f.Run.Work(lane); ok {
					do(&Report{Job: "a", Chain: lane, Attempt: 1, Events: encoded(t, chainstest.Event(plan, w, 0))})
				}
			}
		}
		r.follow(t, &f, "a")
	}
	if f.Job.Phase != Sampling || f.Job.Reason != chains.Converged || f.Job.DrawsSHA256 != "h" {
		t.Fatalf("after the sampling the job is %s, %s, with draws %q", f.Job.Phase, f.Job.Reason, f.Job.DrawsSHA256)
	}
	w, ok := f.Run.Work(0)
	if !ok || w.Conclude == nil {
		t.Fatalf("lane 0 has %+v to do", w)
	}
	j := do(&Report{Job: "a", Chain: 0, Attempt: 1, Events: encoded(t, chainstest.Event(plan, w, 0))})
	if j.Phase != Converged || j.Placed() || j.Ended != at || len(r.active(t)) != 0 {
		t.Errorf("then it is %s since %v, placed %v", j.Phase, j.Ended, j.Placed())
	}
}
