package chains_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// simulate brings a run of a plan to its end, and returns it with its events.
func simulate(t chainstest.Fataler, p chains.Plan, shift float64, pick func(n int) int) (*chains.Run, []chains.Event) {
	r := chains.New(p)
	return r, chainstest.Simulate(t, r, shift, pick)
}

// settled returns a run of a plan that has been prepared and has its first
// settings.
func settled(t *testing.T, p chains.Plan) *chains.Run {
	t.Helper()
	r := chains.New(p)
	if err := r.Apply(chains.Event{Prepared: chainstest.Prepared(p)}); err != nil {
		t.Fatal(err)
	}
	adapt(t, r)
	return r
}

// adapt gives a run at a barrier its next settings.
func adapt(t *testing.T, r *chains.Run) {
	t.Helper()
	e, err := sampler.Adapt(r)
	if err == nil {
		err = r.Apply(*e)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever the order in which chains are served, the result is the same; and
// the events, through JSON, rebuild it.
func TestResultDoesNotDependOnTiming(t *testing.T) {
	for _, method := range []string{"fisher", "cholesky", "sgld"} {
		for _, shift := range []float64{0, 3} {
			p := chainstest.Plan(method)
			want, _ := simulate(t, p, shift, func(int) int { return 0 })
			if reason := map[float64]chains.Reason{0: chains.Converged, 3: chains.MaxDraws}[shift]; want.Stopped.Reason != reason {
				t.Errorf("%s shift %v: ended by %s", method, shift, want.Stopped.Reason)
			}
			rapid.Check(t, func(rt *rapid.T) {
				got, events := simulate(rt, p, shift, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "chain") })
				if diff := cmp.Diff(kept(want), kept(got)); diff != "" {
					rt.Fatal(diff)
				}
				if diff := cmp.Diff(want.Settings, got.Settings); diff != "" {
					rt.Fatal(diff)
				}
				replayed := chains.New(p)
				for _, e := range events {
					text, err := json.Marshal(e)
					if err != nil {
						rt.Fatal(err)
					}
					var back chains.Event
					if err := json.Unmarshal(text, &back); err != nil {
						rt.Fatal(err)
					}
					if err := replayed.Apply(back); err != nil {
						rt.Fatal(err)
					}
				}
				if diff := cmp.Diff(got, replayed); diff != "" {
					rt.Fatal(diff)
				}
			})
		}
	}
}

func kept(r *chains.Run) [][][]float64 {
	var d [][][]float64
	for _, c := range r.Chains {
		d = append(d, c.Draws)
	}
	return d
}

func TestRefusedEventsChangeNothing(t *testing.T) {
	p := chainstest.Plan("fisher")
	r := chains.New(p)
	prep := chainstest.Prepared(p)
	refuse := func(what string, e chains.Event, want error) {
		t.Helper()
		before, _ := json.Marshal(r)
		if err := r.Apply(e); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
		if after, _ := json.Marshal(r); string(after) != string(before) {
			t.Errorf("%s changed the run", what)
		}
	}
	accept := func(e chains.Event) {
		t.Helper()
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	refuse("empty", chains.Event{}, chains.ErrShape)
	refuse("settings first", chains.Event{Settings: &chains.Settings{C: chainstest.Identity}}, chains.ErrPhase)
	refuse("checkpoint first", chains.Event{Checkpoint: &chains.Checkpoint{Chain: 1}}, chains.ErrStale)
	bad := *prep
	bad.Psi = []float64{1, 2}
	refuse("short mode", chains.Event{Prepared: &bad}, chains.ErrShape)
	bad = *prep
	bad.Starts = prep.Starts[:2]
	refuse("too few starts", chains.Event{Prepared: &bad}, chains.ErrShape)
	bad = *prep
	bad.Cov = append([]float64{math.NaN()}, chainstest.Identity[1:]...)
	refuse("NaN", chains.Event{Prepared: &bad}, chains.ErrShape)
	accept(chains.Event{Prepared: prep})
	refuse("prepared twice", chains.Event{Prepared: prep}, chains.ErrPhase)
	refuse("wrong window", chains.Event{Settings: &chains.Settings{Window: 1, C: chainstest.Identity}}, chains.ErrPhase)
	adapt(t, r)
	refuse("settings before the barrier", chains.Event{Settings: &chains.Settings{Window: 1, C: chainstest.Identity}}, chains.ErrPhase)

	task, ok := r.Task(2)
	if !ok || task.Iterations != 5 || !task.Warmup {
		t.Fatalf("%+v", task)
	}
	k := chainstest.Checkpoint(task, 0)
	for what, change := range map[string]func(k *chains.Checkpoint){
		"no such chain": func(k *chains.Checkpoint) { k.Chain = 9 },
		"one draw less": func(k *chains.Checkpoint) { k.Draws = k.Draws[1:] },
		"short draw":    func(k *chains.Checkpoint) { k.Draws[0] = k.Draws[0][:2] },
		"infinite draw": func(k *chains.Checkpoint) { k.Draws[0] = []float64{0, math.Inf(1), 0} },
		"wrong end":     func(k *chains.Checkpoint) { k.State.Iter++ },
		"discards more": func(k *chains.Checkpoint) { k.Discard = 99 },
	} {
		wrong := chainstest.Checkpoint(task, 0)
		change(wrong)
		refuse(what, chains.Event{Checkpoint: wrong}, chains.ErrShape)
	}
	accept(chains.Event{Checkpoint: k})
	refuse("the same again", chains.Event{Checkpoint: k}, chains.ErrStale)
	if _, ok := r.Task(2); ok {
		t.Error("a chain at the barrier has a task")
	}
	refuse("more draws than there are", chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime, Draws: 1}}, chains.ErrShape)
	accept(chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime}})
	refuse("stopped twice", chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime}}, chains.ErrPhase)
}

func TestChainsDoNotRunFarAhead(t *testing.T) {
	p := chainstest.Plan("sgld")
	p.MaxDraws, p.ESS = 100000, 1e9
	r := settled(t, p)
	n := 0
	for {
		task, ok := r.Task(1)
		if !ok {
			break
		}
		if err := r.Apply(chains.Event{Checkpoint: chainstest.Checkpoint(task, 0)}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 10 {
		t.Errorf("%d checkpoints ahead", n)
	}
}

// SGLD's draws before its step is frozen are warm-up, chain by chain.
func TestDiscardedDrawsAreWarmup(t *testing.T) {
	p := chainstest.Plan("sgld")
	r := settled(t, p)
	if s := r.Settings; s.Probes != 4 || r.Phase != chains.Sampling { // N_r of Filippone and Engler (2015)
		t.Errorf("%d probes, %s", s.Probes, r.Phase)
	}
	task, _ := r.Task(1)
	k := chainstest.Checkpoint(task, 0)
	k.Discard = 4
	if err := r.Apply(chains.Event{Checkpoint: k}); err != nil {
		t.Fatal(err)
	}
	if c := r.Chains[0]; c.Warmup != 4 || len(c.Draws) != 6 {
		t.Errorf("%d warm-up, %d kept", c.Warmup, len(c.Draws))
	}
}

func TestJudge(t *testing.T) {
	p := chainstest.Plan("sgld")
	p.MaxTime = time.Minute
	var j chains.Judge
	if e := j.Decide(chains.New(p), time.Minute); e == nil || e.Stop.Reason != chains.MaxTime || e.Stop.Draws != 0 || e.Stop.Elapsed != 60 {
		t.Errorf("out of time while preparing: %+v", e)
	}
	r := settled(t, p)
	j = chains.Judge{}
	for round := 1; ; round++ {
		for c := 1; c <= p.Chains; c++ {
			task, _ := r.Task(c)
			r.Apply(chains.Event{Checkpoint: chainstest.Checkpoint(task, 0)})
		}
		e := j.Decide(r, 0)
		if e == nil {
			if j.Last.Draws != r.MinDraws() {
				t.Errorf("looked at %d of %d draws", j.Last.Draws, r.MinDraws())
			}
			continue
		}
		if s := e.Stop; s.Reason != chains.Converged || s.Draws < p.Draws || !p.Met(r.Diagnose(s.Draws)) {
			t.Errorf("%+v", s)
		}
		// The same decision for whoever looks at all draws at once.
		if again := (&chains.Judge{}).Decide(r, 0); *again.Stop != *e.Stop {
			t.Errorf("%+v, then %+v", e.Stop, again.Stop)
		}
		break
	}
	if p.Met(chains.Convergence{RHat: math.NaN(), ESS: 1000}) || p.Met(chains.Convergence{RHat: 1, ESS: math.NaN()}) {
		t.Error("NaN counts as converged")
	}
}
