package chains_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
)

// concluding returns a run of a model with a mean whose sampling has ended, with 40 draws of each of three chains.
func concluding(t *testing.T, p chains.Plan) *chains.Run {
	t.Helper()
	p.Mean = true
	r := chains.New(p)
	for r.Phase != chains.Sampling || r.MinDraws() < 40 {
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
	}
	if err := r.Apply(chains.Event{Stop: &chains.Stop{Reason: chains.Converged, Draws: 40, Elapsed: 100}}); err != nil {
		t.Fatal(err)
	}
	if r.Phase != chains.Concluding {
		t.Fatalf("after the sampling the run is %s", r.Phase)
	}
	return r
}

// After the sampling the lane of the run computes the coefficients at draws that are evenly spaced, then the run
// ends, or is certified. Nothing but an answer that fits is taken.
func TestConcluding(t *testing.T) {
	p := certified()
	p.Provisional = false
	r := concluding(t, p)
	if diff := cmp.Diff([]int{0}, r.Lanes()); diff != "" {
		t.Fatal(diff)
	}
	w, ok := r.Work(0)
	if !ok || w.Conclude == nil || w.Conclude.Draws != 40 || len(w.Conclude.At) != 99 {
		t.Fatalf("the work is %+v", w)
	}
	if _, ok := r.Work(1); ok {
		t.Error("a chain has something to do")
	}
	if diff := cmp.Diff(r.Chains[1].Draws[0], w.Conclude.At[33]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(r.Chains[2].Draws[39], w.Conclude.At[98]); diff != "" {
		t.Error(diff)
	}
	good := chainstest.Event(p, w, 0)
	for name, wrong := range map[string]func(k *chains.Coefficients){
		"too few draws": func(k *chains.Coefficients) { k.Mean, k.SD = k.Mean[1:], k.SD[1:] },
		"no sd":         func(k *chains.Coefficients) { k.SD[3] = []float64{0, 1} },
		"not a number":  func(k *chains.Coefficients) { k.Mean[3] = []float64{0, math.NaN()} },
		"ragged":        func(k *chains.Coefficients) { k.Mean[3], k.SD[3] = []float64{0}, []float64{1} },
	} {
		bad := chainstest.Event(p, w, 0).Coefficients
		wrong(bad)
		if err := r.Apply(chains.Event{Coefficients: bad}); !errors.Is(err, chains.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again, ok := r.WorkOf(&good)
	if diff := cmp.Diff(w, again); !ok || diff != "" {
		t.Errorf("it comes of other work: %s", diff)
	}
	if err := r.Apply(good); err != nil || r.Phase != chains.Certifying || r.Coefficients == nil {
		t.Fatalf("%v, then the run is %s", err, r.Phase)
	}
	if err := r.Apply(good); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("coefficients came twice: %v", err)
	}
}

// A run that is extended forgets its coefficients, and takes none of draws that it had before.
func TestCoefficientsOfAnExtendedRun(t *testing.T) {
	p := chainstest.Plan("fisher")
	r := concluding(t, p)
	w, _ := r.Work(0)
	late := chainstest.Event(p, w, 0)
	if err := r.Apply(late); err != nil || r.Phase != chains.Done {
		t.Fatalf("%v, then the run is %s", err, r.Phase)
	}
	if err := r.Apply(chains.Event{Extend: &chains.Extend{Draws: 10}}); err != nil || r.Coefficients != nil || r.Phase != chains.Sampling {
		t.Fatalf("%v: extended, the run is %s with coefficients %v", err, r.Phase, r.Coefficients)
	}
	if err := r.Apply(late); !errors.Is(err, chains.ErrPhase) {
		t.Errorf("coefficients while sampling: %v", err)
	}
	for r.MinDraws() < 50 {
		for _, lane := range r.Lanes() {
			if w, ok := r.Work(lane); ok {
				if err := r.Apply(chainstest.Event(p, w, 0)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := r.Apply(chains.Event{Stop: &chains.Stop{Reason: chains.MaxDraws, Draws: 50}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(late); !errors.Is(err, chains.ErrStale) {
		t.Errorf("coefficients at the draws before: %v", err)
	}
}

// Coefficients are given up when the run is cancelled, when they take as long as the sampling might have, and
// not begun where there are no draws, or nobody wants them any more.
func TestNoCoefficients(t *testing.T) {
	p := chainstest.Plan("fisher")
	p.MaxTime = time.Minute
	r := concluding(t, p)
	var judge chains.Judge
	if e := judge.Decide(r, 159*time.Second); e != nil {
		t.Fatalf("given up early: %+v", e)
	}
	e := judge.Decide(r, 160*time.Second)
	if e == nil || e.Stop == nil {
		t.Fatal("not given up in time")
	}
	if err := r.Apply(*e); err != nil || r.Phase != chains.Done || r.Coefficients != nil || r.Stopped.Reason != chains.Converged {
		t.Errorf("%v, then the run is %s, stopped by %s", err, r.Phase, r.Stopped.Reason)
	}
	for _, s := range []chains.Stop{{Reason: chains.Cancelled}, {Reason: chains.MaxTime}} {
		p.Mean = true
		r := chains.New(p)
		if err := r.Apply(chains.Event{Stop: &s}); err != nil || r.Phase != chains.Done {
			t.Errorf("%s: %v, then the run is %s", s.Reason, err, r.Phase)
		}
	}
}
