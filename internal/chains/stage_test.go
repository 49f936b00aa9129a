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
	"github.com/ulisse-gp/ulisse/internal/random"
)

// A staged run comes to the same draws in whatever order its items are computed, with
// a certificate too, and its events, through the wire, rebuild it.
func TestStagedRun(t *testing.T) {
	p := chainstest.StagedPlan()
	want, _ := simulate(t, p, 0, func(int) int { return 0 })
	if want.Stopped.Reason != chains.Converged || want.MinDraws() != 180 || len(want.Stages) != 2 || want.Chains[0].Acceptance() != 0.5 {
		t.Fatalf("%s with %d draws after %d stages, acceptance %v", want.Stopped.Reason, want.MinDraws(), len(want.Stages), want.Chains[0].Acceptance())
	}
	if c := want.Cost(); c.Products != 18 {
		t.Errorf("%d items were paid for", c.Products)
	}
	certificate := chainstest.Plan("exact")
	certificate.Chains, certificate.Draws, certificate.MaxDraws, certificate.ESS = 2, 25, 25, 1e9
	rapid.Check(t, func(rt *rapid.T) {
		p := p
		if rapid.Bool().Draw(rt, "certify") {
			p.Certificate = &certificate
		}
		r, events := simulate(rt, p, 0, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "lane") })
		if diff := cmp.Diff(kept(want), kept(r)); diff != "" {
			rt.Fatal(diff)
		}
		replayed := chains.New(p)
		for _, e := range events {
			b, err := e.Encode()
			if err != nil {
				rt.Fatal(err)
			}
			back, err := chains.DecodeEvent(b)
			if err != nil {
				rt.Fatal(err)
			}
			if err := replayed.Apply(*back); err != nil {
				rt.Fatal(err)
			}
		}
		a, _ := json.Marshal(r)
		b, _ := json.Marshal(replayed)
		if string(a) != string(b) {
			rt.Fatal(cmp.Diff(r, replayed))
		}
	})
}

// Draws that are not good enough are followed by further stages, up to the most draws
// that are allowed; a run that ended goes on where it was, if it is extended.
func TestStagedRunGoesOn(t *testing.T) {
	p := chainstest.StagedPlan()
	p.Error, p.MaxDraws = 1e-9, 500
	r, _ := simulate(t, p, 0, func(int) int { return 0 })
	if r.Stopped.Reason != chains.MaxDraws || r.MinDraws() < 500 || len(r.Stages) != 6 {
		t.Fatalf("%s with %d draws after %d stages", r.Stopped.Reason, r.MinDraws(), len(r.Stages))
	}
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Draws: 300}}); err != nil {
		t.Fatal(err)
	}
	chainstest.Simulate(t, r, 0, func(int) int { return 0 })
	long := p
	long.MaxDraws = 840
	want, _ := simulate(t, long, 0, func(int) int { return 0 })
	if diff := cmp.Diff(kept(want), kept(r)); diff != "" {
		t.Errorf("an extended run has other draws than a longer one: %s", diff)
	}
}

// Draws of proposals that missed a tail do not count as converged, however good they look.
func TestMissedTailIsNotConverged(t *testing.T) {
	p := chainstest.StagedPlan()
	p.Error, p.MaxDraws = 0, 1000
	r, _ := simulate(t, p, 0, func(int) int { return 0 })
	if r.Stopped.Reason != chains.Converged {
		t.Fatal(r.Stopped.Reason)
	}
	var j chains.Judge
	r.Stopped, r.Phase = nil, chains.Sampling
	r.Drawn.Tail = 0.3
	if e := j.Decide(r, 0); e != nil {
		t.Errorf("it ends as %s", e.Stop.Reason)
	}
}

func TestStagedEventsAreChecked(t *testing.T) {
	p := chainstest.StagedPlan()
	r := chains.New(p)
	apply := func(e chains.Event) {
		t.Helper()
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(what string, e chains.Event, want error) {
		t.Helper()
		before, _ := json.Marshal(r)
		if err := r.Apply(e); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if after, _ := json.Marshal(r); string(after) != string(before) {
			t.Errorf("%s has changed the run", what)
		}
	}
	stage := func(number int, items ...[]float64) chains.Event {
		return chains.Event{Stage: &chains.Stage{Number: number, Kind: "k", Items: items}}
	}
	evaluated := func(stage, item int, x ...float64) chains.Event {
		return chains.Event{Evaluated: &chains.Evaluated{Stage: stage, Item: item, Numbers: x}}
	}
	refuse("a stage before the preparation", stage(1, []float64{1}), chains.ErrPhase)
	apply(chains.Event{Prepared: chainstest.Prepared(p)})
	refuse("a stage out of order", stage(2, []float64{1}), chains.ErrPhase)
	refuse("a stage of nothing", stage(1), chains.ErrShape)
	refuse("a stage of NaN", stage(1, []float64{math.NaN()}), chains.ErrShape)
	refuse("draws of nothing", chains.Event{Drawn: &chains.Drawn{}}, chains.ErrShape)
	apply(stage(1, []float64{1}, []float64{2}))
	refuse("a stage while one is open", stage(2, []float64{1}), chains.ErrPhase)
	refuse("an item of another stage", evaluated(2, 0, 1), chains.ErrStale)
	refuse("an item that is not there", evaluated(1, 2, 1), chains.ErrStale)
	refuse("an item of nothing", evaluated(1, 0), chains.ErrShape)
	refuse("an item of infinity", evaluated(1, 0, math.Inf(1)), chains.ErrShape)
	apply(evaluated(1, 1, 4))
	refuse("an item a second time", evaluated(1, 1, 4), chains.ErrStale)
	apply(evaluated(1, 0, 1))
	good := chainstest.Conduct(&chains.Conducting{Stages: append(r.Stages, r.Stages...)}).Drawn
	good.Stages = 1
	for what, change := range map[string]func(d *chains.Drawn){
		"a chain too few":          func(d *chains.Drawn) { d.Chains = d.Chains[:1] },
		"chains of two lengths":    func(d *chains.Drawn) { d.Chains = [][][]float64{d.Chains[0], d.Chains[1][1:]} },
		"draws of two parameters":  func(d *chains.Drawn) { d.Chains = [][][]float64{{{1, 2}}, {{1, 2}}} },
		"more accepted than drawn": func(d *chains.Drawn) { d.Accepted = []int{1000, 0} },
		"no density":               func(d *chains.Drawn) { d.LogP = nil },
		"deviations of NaN":        func(d *chains.Drawn) { d.Deviations = [][]float64{{math.NaN()}} },
		"deviations too few":       func(d *chains.Drawn) { d.Deviations = [][]float64{d.Deviations[0][1:]} },
		"a tail of more than all":  func(d *chains.Drawn) { d.Tail = 1.5 },
		"a tail of no parameter":   func(d *chains.Drawn) { d.Tail, d.TailOf = 0.5, 3 },
		"an inflation below one":   func(d *chains.Drawn) { d.Inflation = 0.5 },
		"a mode of two parameters": func(d *chains.Drawn) { d.Modes = []chains.Mode{{Psi: []float64{1, 2}}} },
	} {
		d := *good
		change(&d)
		refuse(what, chains.Event{Drawn: &d}, chains.ErrShape)
	}
	late := *good
	late.Stages = 2
	refuse("draws of stages to come", chains.Event{Drawn: &late}, chains.ErrPhase)
	apply(chains.Event{Drawn: good})
	refuse("draws a second time", chains.Event{Drawn: good}, chains.ErrPhase)
}

// Whoever asks gets an item, the same until its result is there; idle lanes get those
// that take much longer than the others; what was lost goes to somebody else.
func TestDispatcher(t *testing.T) {
	p := chainstest.StagedPlan()
	r := chains.New(p)
	for _, e := range []chains.Event{{Prepared: chainstest.Prepared(p)}, {Stage: &chains.Stage{Number: 1, Kind: "k", Items: [][]float64{{1}, {2}, {3}}}}} {
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	var d chains.Dispatcher
	now := time.Unix(0, 0)
	want := func(lane, item int) {
		t.Helper()
		w, ok := d.Next(r, lane, now)
		switch {
		case !ok && item >= 0:
			t.Fatalf("lane %d was given nothing", lane)
		case ok && w.Evaluate.Item != item:
			t.Fatalf("lane %d was given item %d, not %d", lane, w.Evaluate.Item, item)
		}
	}
	want(1, 0)
	want(2, 1)
	want(1, 0) // it asks again
	d.Lost(2)
	want(3, 1)
	want(2, 2)
	want(4, -1)
	now = now.Add(time.Second)
	for _, item := range []int{0, 1} {
		if err := r.Apply(chains.Event{Evaluated: &chains.Evaluated{Stage: 1, Item: item, Numbers: []float64{1}}}); err != nil {
			t.Fatal(err)
		}
	}
	want(4, -1)
	now = now.Add(3 * time.Second)
	want(4, 2) // for a second time
	if lanes := r.Lanes(); len(lanes) != 3 {
		t.Errorf("lanes %v", lanes)
	}
	if err := r.Apply(chains.Event{Evaluated: &chains.Evaluated{Stage: 1, Item: 2, Numbers: []float64{1}}}); err != nil {
		t.Fatal(err)
	}
	want(4, -1)
}

// Errors from deviations: a density that is off by δ = a·x moves the mean of a
// standard normal by a, and one that is off by a·x² its sd by a, relative. The draws
// are many enough for their own error, here 0.01, to be below a twentieth of it.
func TestErrors(t *testing.T) {
	p := chainstest.StagedPlan()
	r := chains.New(p)
	x := make([][]float64, 2)
	const n, a = 20000, 0.2
	for c := range x {
		x[c] = make([]float64, n)
		random.Normal(random.Key{Chain: c}.Stream(random.Noise, 0), x[c])
	}
	if e := r.Errors(x); math.Abs(e.Mean-1/math.Sqrt(2*n)) > 1e-3 || math.Abs(e.SD-1/math.Sqrt(4*n)) > 1e-3 {
		t.Errorf("independent draws: %+v, want %v and %v", e, 1/math.Sqrt(2*n), 1/math.Sqrt(4*n))
	}
	linear, square := []float64{}, []float64{}
	for _, chain := range x {
		for t := 0; t < n; t += 2 {
			linear, square = append(linear, a*chain[t]), append(square, a*chain[t]*chain[t])
		}
	}
	r.Drawn = &chains.Drawn{Every: 2, Inflation: 1, Deviations: [][]float64{linear}}
	if e := r.Errors(x); math.Abs(e.Mean-a) > 0.01 || e.SD > 0.02 {
		t.Errorf("a density that is tilted: %+v", e)
	}
	r.Drawn.Deviations = [][]float64{square}
	if e := r.Errors(x); math.Abs(e.SD-a) > 0.02 || e.Mean > 0.02 {
		t.Errorf("a density that is stretched: %+v", e)
	}
	r.Drawn.Inflation = 2
	r.Drawn.Deviations = [][]float64{linear, make([]float64, len(linear))} // one of two draws of the error
	if e := r.Errors(x); math.Abs(e.Mean-2*a/math.Sqrt2) > 0.02 {
		t.Errorf("half of the time tilted, inflated: %+v", e)
	}
	if e := r.Errors([][]float64{{1}, {2}}); !math.IsNaN(e.Mean) {
		t.Errorf("two draws: %+v", e)
	}
}
