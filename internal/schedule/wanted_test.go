package schedule

import (
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// How many workers the jobs could use.
func TestWanted(t *testing.T) {
	late := func(rows int, needed, left time.Duration) Demand {
		return Demand{Chains: 4, Rows: rows, Needed: needed, Left: left}
	}
	for _, c := range []struct {
		name    string
		demands []Demand
		cores   int
		want    int
	}{
		{"nothing to do", nil, 2, 0},
		{"a worker a chain", []Demand{{Chains: 4, Rows: 10_000}, {Chains: 2, Rows: 5_000}}, 8, 6},
		{"rows that are not known yet", []Demand{{Chains: 4}}, 8, 4},
		{"few rows: a core a chain", []Demand{{Chains: 4, Rows: 500}, {Chains: 3, Rows: 1_999}}, 4, 2},
		{"no worker to tell the cores by", []Demand{{Chains: 4, Rows: 500}}, 0, 4},
		{"in time", []Demand{late(50_000, time.Hour, time.Hour)}, 8, 4},
		{"late by half", []Demand{late(50_000, 3*time.Hour, 2*time.Hour)}, 8, 8},
		{"late by three times", []Demand{late(50_000, 3*time.Hour, time.Hour)}, 8, 12},
		{"hopelessly late: ten a chain at most", []Demand{late(50_000, 100*time.Hour, time.Hour)}, 8, 40},
		{"late, but its rows cannot be shared", []Demand{late(10_000, 3*time.Hour, time.Hour)}, 8, 4},
		{"no limit of time", []Demand{late(50_000, 3*time.Hour, 0)}, 8, 4},
	} {
		if got := Wanted(c.demands, c.cores, 20_000); got != c.want {
			t.Errorf("%s: %d workers, want %d", c.name, got, c.want)
		}
	}
	if got := Wanted([]Demand{late(50_000, 3*time.Hour, time.Hour)}, 8, -1); got != 4 {
		t.Errorf("rows are never shared: %d workers, want 4", got)
	}
}

// What a job asks for follows from its state: a quarter of the way in a quarter
// of the time that is left for the rest.
func TestDemand(t *testing.T) {
	plan := chains.Plan{Chains: 2, Windows: []int{10, 10}, Draws: 80, MaxTime: 10 * time.Minute}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	run := chains.New(plan)
	run.Phase = chains.Sampling
	for i := range run.Chains {
		run.Chains[i].Warmup, run.Chains[i].Draws = 20, make([][]float64, 5)
	}
	f := &state.Follower{Run: run, Job: &state.Job{Chains: 2, Phase: state.Sampling, Info: &dataset.Info{Rows: 30_000}, Plan: &plan, Active: 5 * time.Minute}}
	want := Demand{Chains: 2, Rows: 30_000, Left: 5 * time.Minute, Needed: 15 * time.Minute}
	if got, ok := DemandOf(f, now); !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	for _, p := range []state.Phase{state.Paused, state.Converged, state.Failed} {
		f.Job.Phase = p
		if _, ok := DemandOf(f, now); ok {
			t.Errorf("a job that is %s wants workers", p)
		}
	}
	queued := &state.Follower{Job: &state.Job{Chains: 3, Phase: state.Queued}}
	if got, ok := DemandOf(queued, now); !ok || got != (Demand{Chains: 3}) {
		t.Errorf("queued: %+v %v", got, ok)
	}
}
