package chains

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/random"
)

func testPlan(method string) Plan {
	p := Plan{Method: method, Names: []string{"sigma", "tau", "lambda"}, Chains: 3, Checkpoint: 10, Draws: 40, MaxDraws: 95,
		RHat: 1.05, ESS: 100, Seed: 1, Step: 0.8, MaxProbes: 16}
	if method != "sgld" {
		p.Windows = []int{5, 15, 30}
	}
	return p
}

var identity = []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}

func testPrepared(p Plan) *Prepared {
	prep := &Prepared{Psi: []float64{0.1, 0.2, 0.3}, Cov: identity, ProbeCov: identity}
	starts, err := p.Starts(prep.Psi, symmetric(prep.Cov))
	if err != nil {
		panic(err)
	}
	prep.Starts = starts
	return prep
}

// fake carries out a task: draws are a function of chain and iteration alone.
// Those of chain 1 are off by shift.
func fake(t Task, shift float64) *Checkpoint {
	k := &Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: t.From, Cost: Cost{Gradients: t.Iterations, Seconds: 1}}
	for range t.Iterations {
		k.State.Iter++
		psi := make([]float64, 3)
		random.Normal(random.Key{Chain: t.Chain, Iter: k.State.Iter}.Stream(random.Noise, 0), psi)
		if t.Chain == 1 {
			psi[0] += shift
		}
		k.Draws = append(k.Draws, psi)
		k.State.Psi = psi
		if t.Warmup {
			k.Stats.Spreads++
			k.Stats.ProbeCov = addTo(k.Stats.ProbeCov, identity)
		}
	}
	return k
}

// simulate runs a plan with the chains taking turns as pick says, and returns
// the run with its events.
func simulate(t interface{ Fatal(...any) }, p Plan, shift float64, pick func(n int) int) (*Run, []Event) {
	r := New(p)
	var events []Event
	apply := func(e Event) {
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	apply(Event{Prepared: testPrepared(p)})
	var judge Judge
	for step := 0; r.Phase != Done; step++ {
		if step > 10000 {
			t.Fatal("the run does not end")
		}
		if r.AtBarrier() {
			s, err := Adapt(r)
			if err != nil {
				t.Fatal(err)
			}
			apply(Event{Settings: s})
			continue
		}
		if stop := judge.Decide(r, 0); stop != nil {
			apply(Event{Stop: stop})
			continue
		}
		var ready []Task
		for c := 1; c <= p.Chains; c++ {
			if task, ok := r.Task(c); ok {
				ready = append(ready, task)
			}
		}
		if len(ready) == 0 {
			t.Fatal("nothing to do, and not done")
		}
		apply(Event{Checkpoint: fake(ready[pick(len(ready))], shift)})
	}
	return r, events
}

// Whatever the order in which chains are served, the result is the same; and
// the events, through JSON, rebuild it.
func TestResultDoesNotDependOnTiming(t *testing.T) {
	for _, method := range []string{"fisher", "cholesky", "sgld"} {
		for _, shift := range []float64{0, 3} {
			p := testPlan(method)
			want, _ := simulate(t, p, shift, func(int) int { return 0 })
			if reason := map[float64]Reason{0: Converged, 3: MaxDraws}[shift]; want.Stopped.Reason != reason {
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
				replayed := New(p)
				for _, e := range events {
					text, err := json.Marshal(e)
					if err != nil {
						rt.Fatal(err)
					}
					var back Event
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

func kept(r *Run) [][][]float64 {
	var d [][][]float64
	for _, c := range r.Chains {
		d = append(d, c.Draws)
	}
	return d
}

func TestRefusedEventsChangeNothing(t *testing.T) {
	p := testPlan("fisher")
	r := New(p)
	prep := testPrepared(p)
	refuse := func(what string, e Event, want error) {
		t.Helper()
		before, _ := json.Marshal(r)
		if err := r.Apply(e); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
		if after, _ := json.Marshal(r); string(after) != string(before) {
			t.Errorf("%s changed the run", what)
		}
	}
	accept := func(e Event) {
		t.Helper()
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	refuse("empty", Event{}, ErrShape)
	refuse("settings first", Event{Settings: &Settings{C: identity}}, ErrPhase)
	refuse("checkpoint first", Event{Checkpoint: &Checkpoint{Chain: 1}}, ErrStale)
	bad := *prep
	bad.Psi = []float64{1, 2}
	refuse("short mode", Event{Prepared: &bad}, ErrShape)
	bad = *prep
	bad.Starts = prep.Starts[:2]
	refuse("too few starts", Event{Prepared: &bad}, ErrShape)
	bad = *prep
	bad.Cov = append([]float64{math.NaN()}, identity[1:]...)
	refuse("NaN", Event{Prepared: &bad}, ErrShape)
	accept(Event{Prepared: prep})
	refuse("prepared twice", Event{Prepared: prep}, ErrPhase)
	refuse("wrong window", Event{Settings: &Settings{Window: 1, C: identity}}, ErrPhase)
	s, err := Adapt(r)
	if err != nil {
		t.Fatal(err)
	}
	accept(Event{Settings: s})
	refuse("settings before the barrier", Event{Settings: &Settings{Window: 1, C: identity}}, ErrPhase)

	task, ok := r.Task(2)
	if !ok || task.Iterations != 5 || !task.Warmup {
		t.Fatalf("%+v", task)
	}
	k := fake(task, 0)
	for what, change := range map[string]func(k *Checkpoint){
		"no such chain": func(k *Checkpoint) { k.Chain = 9 },
		"one draw less": func(k *Checkpoint) { k.Draws = k.Draws[1:] },
		"short draw":    func(k *Checkpoint) { k.Draws[0] = k.Draws[0][:2] },
		"infinite draw": func(k *Checkpoint) { k.Draws[0] = []float64{0, math.Inf(1), 0} },
		"wrong end":     func(k *Checkpoint) { k.State.Iter++ },
		"discards more": func(k *Checkpoint) { k.Discard = 99 },
	} {
		wrong := fake(task, 0)
		change(wrong)
		refuse(what, Event{Checkpoint: wrong}, ErrShape)
	}
	accept(Event{Checkpoint: k})
	refuse("the same again", Event{Checkpoint: k}, ErrStale)
	if _, ok := r.Task(2); ok {
		t.Error("a chain at the barrier has a task")
	}
	refuse("more draws than there are", Event{Stop: &Stop{Reason: MaxTime, Draws: 1}}, ErrShape)
	accept(Event{Stop: &Stop{Reason: MaxTime}})
	refuse("stopped twice", Event{Stop: &Stop{Reason: MaxTime}}, ErrPhase)
}

func TestChainsDoNotRunFarAhead(t *testing.T) {
	p := testPlan("sgld")
	p.MaxDraws, p.ESS = 100000, 1e9
	r := New(p)
	r.Apply(Event{Prepared: testPrepared(p)})
	s, _ := Adapt(r)
	r.Apply(Event{Settings: s})
	n := 0
	for {
		task, ok := r.Task(1)
		if !ok {
			break
		}
		if err := r.Apply(Event{Checkpoint: fake(task, 0)}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != maxLead {
		t.Errorf("%d checkpoints ahead", n)
	}
}

// SGLD's draws before its step is frozen are warm-up, chain by chain.
func TestDiscardedDrawsAreWarmup(t *testing.T) {
	p := testPlan("sgld")
	r := New(p)
	r.Apply(Event{Prepared: testPrepared(p)})
	s, _ := Adapt(r)
	r.Apply(Event{Settings: s})
	if s.Probes != sgldProbes || r.Phase != Sampling {
		t.Errorf("%d probes, %s", s.Probes, r.Phase)
	}
	task, _ := r.Task(1)
	k := fake(task, 0)
	k.Discard = 4
	if err := r.Apply(Event{Checkpoint: k}); err != nil {
		t.Fatal(err)
	}
	if c := r.Chains[0]; c.Warmup != 4 || len(c.Draws) != 6 {
		t.Errorf("%d warm-up, %d kept", c.Warmup, len(c.Draws))
	}
}

func TestAdapt(t *testing.T) {
	p := testPlan("fisher")
	r, _ := simulate(t, p, 0, func(int) int { return 0 })
	s := r.Settings
	// The draws are standard normal, and so is the guess.
	if d := mat.Norm(diff(s.Metric(), symmetric(identity)), 2); d > 0.3 {
		t.Errorf("metric\n%v", mat.Formatted(s.Metric()))
	}
	if s.Window != 3 || s.Probes < minProbes || s.Step != 0.8 || s.Budget <= 0 {
		t.Errorf("%+v", s)
	}
	if f, err := s.Fisher(); err != nil || f.Budget != s.Budget {
		t.Errorf("%v %v", f, err)
	}
	p.Probes, p.MaxProbes = 1, 1
	noisy := testPrepared(p)
	noisy.ProbeCov = []float64{9, 0, 0, 0, 9, 0, 0, 0, 9}
	r = New(p)
	if err := r.Apply(Event{Prepared: noisy}); err != nil {
		t.Fatal(err)
	}
	if s, err := Adapt(r); err != nil || s.Probes != 1 || s.Step >= 0.8 || s.Budget < 0 {
		t.Errorf("too few probes: %+v, %v", s, err)
	}
}

func diff(a, b mat.Matrix) *mat.Dense {
	var d mat.Dense
	d.Sub(a, b)
	return &d
}

func TestJudge(t *testing.T) {
	p := testPlan("sgld")
	p.MaxTime = time.Minute
	r := New(p)
	var j Judge
	if s := j.Decide(r, time.Minute); s == nil || s.Reason != MaxTime || s.Draws != 0 {
		t.Errorf("out of time while preparing: %+v", s)
	}
	r.Apply(Event{Prepared: testPrepared(p)})
	s, _ := Adapt(r)
	r.Apply(Event{Settings: s})
	j = Judge{}
	for round := 1; ; round++ {
		for c := 1; c <= p.Chains; c++ {
			task, _ := r.Task(c)
			r.Apply(Event{Checkpoint: fake(task, 0)})
		}
		stop := j.Decide(r, 0)
		if stop == nil {
			if j.Last.Draws != r.MinDraws() {
				t.Errorf("looked at %d of %d draws", j.Last.Draws, r.MinDraws())
			}
			continue
		}
		if stop.Reason != Converged || stop.Draws < p.Draws || !p.Met(r.Diagnose(stop.Draws)) {
			t.Errorf("%+v", stop)
		}
		// The same decision for whoever looks at all draws at once.
		again := (&Judge{}).Decide(r, 0)
		if *again != *stop {
			t.Errorf("%+v, then %+v", stop, again)
		}
		break
	}
	if p.Met(Convergence{RHat: math.NaN(), ESS: 1000}) || p.Met(Convergence{RHat: 1, ESS: math.NaN()}) {
		t.Error("NaN counts as converged")
	}
}

func TestStartsAreScattered(t *testing.T) {
	p := testPlan("fisher")
	p.Chains = 500
	starts, err := p.Starts([]float64{1, 2, 3}, symmetric([]float64{4, 0, 0, 0, 1, 0, 0, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	var v [3]float64
	for _, s := range starts {
		for i := range v {
			d := s[i] - float64(i+1)
			v[i] += d * d / 500
		}
	}
	// Twice the standard deviation: variances 16, 4, 4, with relative standard
	// error √(2/500) = 0.063; five of them allowed.
	for i, want := range []float64{16, 4, 4} {
		if math.Abs(v[i]/want-1) > 0.32 {
			t.Errorf("variance %d is %v, want %v", i, v[i], want)
		}
	}
}

func TestWindows(t *testing.T) {
	for total, want := range map[int][]int{5: {5}, 10: {1, 3, 6}, 50: {5, 15, 30}, 1000: {100, 300, 600}} {
		if got := windows(total); !cmp.Equal(got, want) {
			t.Errorf("%d: %v, want %v", total, got, want)
		}
	}
}
