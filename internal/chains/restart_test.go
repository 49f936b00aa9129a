package chains_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
)

func apply(t *testing.T, r *chains.Run, e chains.Event) {
	t.Helper()
	if err := r.Apply(e); err != nil {
		t.Fatal(err)
	}
}

// begun returns a run in its first window.
func begun(t *testing.T) *chains.Run {
	t.Helper()
	p := chainstest.Plan("fisher")
	r := chains.New(p)
	apply(t, r, chains.Event{Prepared: chainstest.Prepared(p)})
	adapt(t, r)
	return r
}

// work has a chain do its tasks until it has none, or some iterations are done.
func work(t *testing.T, r *chains.Run, chain, until int) {
	t.Helper()
	for r.Chains[chain-1].State.Iter < until {
		task, ok := r.Task(chain)
		if !ok {
			return
		}
		apply(t, r, chains.Event{Checkpoint: chainstest.Checkpoint(task, 0)})
	}
}

// diverge has a chain diverge in its next task.
func diverge(r *chains.Run, chain int) error {
	task, _ := r.Task(chain)
	return r.Apply(chains.Event{Diverged: &chains.Divergence{Chain: chain, FromIter: task.From.Iter, Iter: task.From.Iter + 3, Restarts: task.From.Restarts,
		Cost: chains.Cost{Gradients: 3, Seconds: 1}}})
}

// sampled returns a run that samples.
func sampled(t *testing.T) *chains.Run {
	t.Helper()
	r := begun(t)
	for r.Phase == chains.Warmup {
		for c := range r.Chains {
			work(t, r, c+1, 1000)
		}
		adapt(t, r)
	}
	return r
}

// A run whose chain diverges in warm-up is from then on the one that its plan would have made with the smaller step.
func TestRestart(t *testing.T) {
	r := begun(t)
	work(t, r, 1, 5)
	late, _ := r.Task(2)
	if err := diverge(r, 3); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Task(3); ok {
		t.Error("the chain that diverged goes on")
	}
	var judge chains.Judge
	e := judge.Decide(r, 0)
	if e == nil || e.Restart == nil {
		t.Fatalf("the judge says %+v", e)
	}
	apply(t, r, *e)
	if err := r.Apply(*e); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("twice: %v", err)
	}
	adapt(t, r)
	if err := r.Apply(chains.Event{Checkpoint: chainstest.Checkpoint(late, 0)}); !errors.Is(err, chains.ErrStale) {
		t.Errorf("a checkpoint of before: %v", err)
	}
	if got, want := r.Restarts, []chains.Restart{{Chain: 3, Iter: 3, Before: 0.8, Step: 0.2}}; !cmp.Equal(got, want) {
		t.Errorf("restarts %+v", got)
	}
	if r.Restarts[0].Text() != "chain 3 diverged at iteration 3 with a step of 0.8: all chains began again with a step of 0.2" {
		t.Error(r.Restarts[0].Text())
	}
	if r.Lost.Gradients != 3+5 || r.Cost().Gradients != 8 {
		t.Errorf("lost %+v", r.Lost)
	}
	p := chainstest.Plan("fisher")
	p.Step = 0.2
	other := chains.New(p)
	apply(t, other, chains.Event{Prepared: chainstest.Prepared(p)})
	adapt(t, other)
	r.Restarts, r.Lost = nil, chains.Cost{}
	for c := range r.Chains {
		r.Chains[c].State.Restarts = 0
	}
	if diff := cmp.Diff(other, r); diff != "" {
		t.Error(diff)
	}
}

// In sampling the chains that are ahead of the one that diverged are waited for: draws that suffice without it end the run.
func TestDivergenceWhileSampling(t *testing.T) {
	for _, enough := range []bool{false, true} {
		r := sampled(t)
		if enough {
			r.Plan.RHat, r.Plan.ESS = 100, 0
		}
		work(t, r, 2, 50+r.Plan.Draws)
		if err := diverge(r, 2); err != nil {
			t.Fatal(err)
		}
		var judge chains.Judge
		for _, c := range []int{1, 3} {
			work(t, r, c, 50+20)
			if e := judge.Decide(r, 0); e != nil {
				t.Fatalf("with %d draws the judge says %+v", r.MinDraws(), e)
			}
		}
		for _, c := range []int{1, 3} {
			work(t, r, c, 50+r.Plan.Draws+10)
		}
		e := judge.Decide(r, 0)
		if e == nil || (e.Stop != nil) != enough || (e.Restart != nil) == enough {
			t.Fatalf("with %d draws the judge says %+v", r.MinDraws(), e)
		}
		apply(t, r, *e)
		if enough {
			// Who asks for more draws gets those that are there, and no new beginning.
			apply(t, r, chains.Event{Extend: &chains.Extend{Draws: 50}})
			if err := diverge(r, 2); !errors.Is(err, chains.ErrStale) || r.MinDraws() != 40 {
				t.Errorf("after an extension: %v, %d draws", err, r.MinDraws())
			}
			continue
		}
		if r.Phase != chains.Warmup || r.MinDraws() != 0 {
			t.Errorf("%s with %d draws", r.Phase, r.MinDraws())
		}
		if judge.Decide(r, 0) != nil || judge.Last.Draws != 0 {
			t.Errorf("the judge remembers %+v", judge.Last)
		}
	}
}

// A run begins again a few times, then it is for its user to say what to do.
func TestRestartsAreBounded(t *testing.T) {
	r := begun(t)
	for i := range chains.MaxRestarts {
		if err := diverge(r, 1); err != nil {
			t.Fatal(i, err)
		}
		apply(t, r, chains.Event{Restart: &chains.Restart{}})
		adapt(t, r)
	}
	if task, ok := r.Task(1); !ok || task.Again || task.Settings.Step != 0.8/16 {
		t.Errorf("%+v", task)
	}
	if err := diverge(r, 1); !errors.Is(err, chains.ErrStale) {
		t.Error(err)
	}
	p := chainstest.Plan("cholesky") // has no step
	r = chains.New(p)
	apply(t, r, chains.Event{Prepared: chainstest.Prepared(p)})
	adapt(t, r)
	if task, ok := r.Task(1); !ok || task.Again {
		t.Errorf("%+v", task)
	}
}

func TestDivergencesAreChecked(t *testing.T) {
	for what, d := range map[string]chains.Divergence{
		"no chain":         {Chain: 0, Iter: 1},
		"a chain too many": {Chain: 4, Iter: 1},
		"elsewhere":        {Chain: 1, FromIter: 2, Iter: 3},
		"too early":        {Chain: 1},
		"too late":         {Chain: 1, Iter: 6},
		"another run":      {Chain: 1, Iter: 1, Restarts: 1},
		"a cost":           {Chain: 1, Iter: 1, Cost: chains.Cost{Gradients: -1}},
	} {
		if err := begun(t).Apply(chains.Event{Diverged: &d}); !errors.Is(err, chains.ErrShape) && !errors.Is(err, chains.ErrStale) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := begun(t).Apply(chains.Event{Restart: &chains.Restart{}}); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("a new beginning without a reason: %v", err)
	}
}
