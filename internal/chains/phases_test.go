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
)

// certified returns a plan whose run is certified, and weighs a provisional answer.
func certified() chains.Plan {
	p := chainstest.Plan("fisher")
	c := chainstest.Plan("exact")
	c.Draws, c.MaxDraws, c.ESS = 25, 25, 1e9
	p.Certificate, p.Provisional = &c, true
	return p
}

// A run with a certificate goes through all phases, whatever the order in which its
// lanes are served; the draws are those of a run without, and the events, through
// JSON, rebuild it.
func TestCertificateAndProvisional(t *testing.T) {
	p := certified()
	plain := p
	plain.Certificate, plain.Provisional = nil, false
	want, _ := simulate(t, plain, 0, func(int) int { return 0 })
	rapid.Check(t, func(rt *rapid.T) {
		r, events := simulate(rt, p, 0, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "lane") })
		if diff := cmp.Diff(kept(want), kept(r)); diff != "" {
			rt.Fatal(diff)
		}
		if r.Stopped.Reason != chains.Converged || r.Certificate.Phase != chains.Done || r.Certificate.MinDraws() != 25 {
			rt.Fatalf("%s, certificate %s with %d draws", r.Stopped.Reason, r.Certificate.Phase, r.Certificate.MinDraws())
		}
		// The chains of the certificate start where those of the run ended.
		for c, ch := range r.Chains {
			if diff := cmp.Diff(ch.Draws[len(ch.Draws)-1], r.Certificate.Prepared.Starts[c]); diff != "" {
				rt.Fatal(diff)
			}
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
		if diff := cmp.Diff(r, replayed); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestLanes(t *testing.T) {
	p := certified()
	r := chains.New(p)
	want := func(lanes ...int) {
		t.Helper()
		if diff := cmp.Diff(lanes, r.Lanes()); diff != "" {
			t.Fatalf("%s: %s", r.Phase, diff)
		}
	}
	do := func(lane int) {
		t.Helper()
		w, ok := r.Work(lane)
		if !ok {
			t.Fatalf("lane %d has nothing to do while %s", lane, r.Phase)
		}
		if err := r.Apply(chainstest.Event(p, w, 0)); err != nil {
			t.Fatal(err)
		}
		for r.AtBarrier() {
			adapt(t, r)
		}
	}
	want(0)
	do(0) // the preparation
	want(0, 1, 2, 3)
	do(0) // the provisional answer
	want(1, 2, 3)
	for r.Phase == chains.Warmup {
		for lane := 1; lane <= 3; lane++ {
			for at := r.Settings.Window; r.Settings.Window == at && r.Phase == chains.Warmup; {
				if _, ok := r.Work(lane); !ok {
					break
				}
				do(lane)
			}
		}
	}
	for range 4 {
		for lane := 1; lane <= 3; lane++ {
			do(lane)
		}
	}
	if err := r.Apply(chains.Event{Stop: &chains.Stop{Reason: chains.MaxDraws, Draws: 40, Elapsed: 100}}); err != nil {
		t.Fatal(err)
	}
	want(0)
	if w, ok := r.Work(0); !ok || !w.Certificate || w.Prepare == nil || w.Prepare.From == nil {
		t.Fatalf("the certificate begins with %+v", w)
	}
	do(0)
	want(1, 2, 3)
	// What the chains still had under way came too late.
	if err := r.Apply(chains.Event{Stop: &chains.Stop{Reason: chains.Converged, Draws: 40}}); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("ended twice: %v", err)
	}
	late := chainstest.Checkpoint(chains.Task{Chain: 1, From: r.Chains[0].State, Iterations: 10}, 0)
	if err := r.Apply(chains.Event{Checkpoint: late}); !errors.Is(err, chains.ErrStale) {
		t.Errorf("a checkpoint after the end: %v", err)
	}
}

// The certificate may take as long again as the run, and no longer.
func TestTimeOfACertificate(t *testing.T) {
	p := certified()
	p.MaxTime, p.Certificate.MaxTime = time.Minute, time.Minute
	p.ESS = 1e9
	r := chains.New(p)
	var judge chains.Judge
	for r.Phase != chains.Certifying {
		for r.AtBarrier() {
			adapt(t, r)
		}
		for _, lane := range r.Lanes() {
			if w, ok := r.Work(lane); ok {
				if err := r.Apply(chainstest.Event(p, w, 0)); err != nil {
					t.Fatal(err)
				}
			}
		}
		elapsed := time.Duration(0)
		if r.MinDraws() >= 30 {
			elapsed = 70 * time.Second
		}
		if e := judge.Decide(r, elapsed); e != nil {
			if err := r.Apply(*e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r.Stopped.Reason != chains.MaxTime || r.Stopped.Elapsed != 70 {
		t.Fatalf("%+v", r.Stopped)
	}
	if e := judge.Decide(r, 129*time.Second); e != nil {
		t.Errorf("ended after 59 s: %+v", e.Stop)
	}
	e := judge.Decide(r, 130*time.Second)
	if e == nil || !e.Certificate || e.Stop.Reason != chains.MaxTime {
		t.Fatalf("not ended after 60 s: %+v", e)
	}
	if err := r.Apply(*e); err != nil || r.Phase != chains.Done {
		t.Errorf("%v, %s", err, r.Phase)
	}
}

// A run that ended without a certificate can be given one; what has one, or too few
// draws, is refused.
func TestCertifyLater(t *testing.T) {
	p := certified()
	plan := p.Certificate
	p.Certificate = nil
	r, _ := simulate(t, p, 0, func(int) int { return 0 })
	draws := kept(r)
	odd := *plan
	odd.Chains = 7
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Certificate: &odd}}); !errors.Is(err, chains.ErrShape) {
		t.Errorf("a plan of other chains: %v", err)
	}
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Certificate: plan}}); err != nil || r.Phase != chains.Certifying {
		t.Fatalf("%v, %s", err, r.Phase)
	}
	chainstest.Simulate(t, r, 0, func(int) int { return 0 })
	if r.Certificate.MinDraws() != 25 || cmp.Diff(draws, kept(r)) != "" {
		t.Errorf("%d draws of the certificate, or others of the run", r.Certificate.MinDraws())
	}
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Certificate: plan}}); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("certified twice: %v", err)
	}
	// More draws make the certificate void: another follows.
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Draws: 10}}); err != nil || r.Phase != chains.Sampling || r.Certificate != nil {
		t.Fatalf("%v, %s", err, r.Phase)
	}
	chainstest.Simulate(t, r, 0, func(int) int { return 0 })
	if r.Certificate == nil || r.Certificate.Phase != chains.Done {
		t.Error("no certificate of the draws that were added")
	}

	short := chains.New(p)
	if err := short.Apply(chains.Event{Stop: &chains.Stop{Reason: chains.MaxTime}}); err != nil {
		t.Fatal(err)
	}
	if err := short.Apply(chains.Event{Extend: &chains.Extend{Certificate: plan}}); !errors.Is(err, chains.ErrPhase) || short.Plan.Certificate != nil {
		t.Errorf("a run without draws: %v", err)
	}
}

func TestProvisionalIsChecked(t *testing.T) {
	r := settled(t, certified())
	for what, x := range map[string][]float64{
		"too few": make([]float64, chains.ProvisionalDraws-1),
		"NaN":     append(make([]float64, chains.ProvisionalDraws-1), math.NaN()),
	} {
		if err := r.Apply(chains.Event{Provisional: &chains.Provisional{LogDensities: x}}); !errors.Is(err, chains.ErrShape) {
			t.Errorf("%s: %v", what, err)
		}
	}
	good := chains.Event{Provisional: &chains.Provisional{LogDensities: make([]float64, chains.ProvisionalDraws)}}
	if err := r.Apply(good); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(good); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("twice: %v", err)
	}
}
