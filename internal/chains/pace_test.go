package chains

import (
	"testing"
	"time"
)

// A quarter of the iterations in five minutes leave fifteen.
func TestRemaining(t *testing.T) {
	r := New(Plan{Chains: 2, Windows: []int{10, 10}, Draws: 80, MaxDraws: 200})
	if left, ok := r.Remaining(time.Minute); ok {
		t.Errorf("before the warm-up: %v", left)
	}
	r.Phase = Sampling
	if left, ok := r.Remaining(time.Minute); ok {
		t.Errorf("before the first iteration: %v", left)
	}
	for i, draws := range []int{0, 10} {
		r.Chains[i].Warmup, r.Chains[i].Draws = 20, make([][]float64, draws)
	}
	if left, ok := r.Remaining(5 * time.Minute); !ok || left != 15*time.Minute {
		t.Errorf("%v %v", left, ok)
	}
	r.Chains[0].Draws, r.Chains[1].Draws = make([][]float64, 190), make([][]float64, 80)
	if left, ok := r.Remaining(time.Hour); ok {
		t.Errorf("with all draws: %v", left)
	}
	r.Phase = Done
	if _, ok := r.Remaining(time.Hour); ok {
		t.Error("after the end")
	}
}

// What the preparation took is not taken for the pace of the chains: a minute of it, and then
// one second for the first four of 800 iterations, are no hours.
func TestRemainingEarly(t *testing.T) {
	r := New(Plan{Chains: 4, Windows: []int{100}, Draws: 100, MaxDraws: 100})
	r.Phase, r.Prepared = Warmup, &Prepared{Cost: Cost{Seconds: 40}}
	for i := range r.Chains {
		r.Chains[i].Warmup, r.Chains[i].Cost.Seconds = 1, 0.25
	}
	if left, ok := r.Remaining(61 * time.Second); !ok || left != 199*time.Second {
		t.Errorf("after a second of the chains: %v", left)
	}
	for i := range r.Chains { // four side by side, for 100 s
		r.Chains[i].Warmup, r.Chains[i].Cost.Seconds = 100, 100
	}
	if left, ok := r.Remaining(140 * time.Second); !ok || left != 100*time.Second {
		t.Errorf("after 100 s: %v", left)
	}
}
