package study

import (
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// The same where a part of the density is learnt, as it is of more than 500 rows: nothing is learnt beyond the first
// evaluations, so that proposals end before the tail does, the weights of some tell, and the chains begin anew. Two runs: the sd of the
// long coordinate, whose standard error is 4 %, is within 15 % (a false alarm in a thousand runs; seeds are fixed). Without looking at the tail it was
// 17 and 18 % small.
func TestWholeLearnt(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds of all cores")
	}
	w := DefaultWhole
	w.Density = "learnt"
	b := parallel.NewBudget(0)
	target := banana()
	for seed := range uint64(2) {
		r, results, err := w.Run(t.Context(), target, seed+1, b)
		if err != nil {
			t.Fatal(err)
		}
		if r.Stopped.Reason != chains.Converged {
			t.Errorf("seed %d: %s", seed+1, r.Stopped.Reason)
		}
		tails := 0
		for _, s := range r.Stages {
			if s.Kind == "tail" {
				tails++
			}
		}
		if tails == 0 || tails > 2 {
			t.Errorf("seed %d: proposals were fitted anew %d times", seed+1, tails)
		}
		for i, x := range results {
			off := math.Abs(x.Estimate-x.Truth) / target.SD(i/2)
			t.Logf("seed %d, %s: off by %.3f sd, %+.2f stated errors", seed+1, x.Name, off, x.Z())
			if off > 0.15 || math.Abs(x.Z()) > 4 {
				t.Errorf("seed %d: %s is %.4g, want %.4g, %.1f stated errors off", seed+1, x.Name, x.Estimate, x.Truth, x.Z())
			}
		}
	}
}

// Where a part of the density is learnt, a second mode that none of the climbs from broad starts comes to (they have been seen to end at the first
// in every run) is found by exploring: it takes part in what is learnt and proposed, and its mass, a quarter, is told within four of its stated errors, which are about
// 0.01, and means and sds within five of theirs (with one estimate of seven beyond in 20,000 runs; seeds are fixed). Before, means were up to 0.4 sd off.
func TestSecondModeIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds of all cores")
	}
	w := DefaultWhole
	w.Density = "learnt"
	target := modes()
	r, results, err := w.Run(t.Context(), target, 1, parallel.NewBudget(0))
	if err != nil {
		t.Fatal(err)
	}
	if r.Stopped.Reason != chains.Converged {
		t.Errorf("the run is %s", r.Stopped.Reason)
	}
	for _, x := range results {
		if math.Abs(x.Z()) > 5 {
			t.Errorf("%s is %.4g, want %.4g, %.1f stated errors off", x.Name, x.Estimate, x.Truth, x.Z())
		}
	}
	if m := r.Drawn.Modes; len(m) != 2 || math.Abs(m[1].Mass-target.mass) > 4*m[1].MassError || m[1].MassError > 0.03 {
		t.Errorf("the modes are %+v, want the second to hold %.3f", m, target.mass)
	}
}

// Of many rows the broad starts climb on some of them, and climbs on all begin where these have come to: means and sds are within five stated
// errors (one estimate of four beyond in 400,000 runs; the seed is fixed).
func TestScouts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds of all cores")
	}
	w := DefaultWhole
	w.Density, w.Rows = "learnt", 5000
	r, results, err := w.Run(t.Context(), modes(), 1, parallel.NewBudget(0))
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plan.Params()
	if scouts, climbs := r.Stages[0], r.Stages[1]; scouts.Kind != "scout" || climbs.Kind != "climb" || len(climbs.Items) >= len(scouts.Items) || len(climbs.Items[0]) != p+p*p+1 {
		t.Errorf("%s of %d items, then %s of %d", scouts.Kind, len(scouts.Items), climbs.Kind, len(climbs.Items))
	}
	for _, x := range results {
		if t.Logf("%s: %+.2f stated errors", x.Name, x.Z()); math.Abs(x.Z()) > 5 {
			t.Errorf("%s is %.4g, want %.4g, %.1f stated errors off", x.Name, x.Estimate, x.Truth, x.Z())
		}
	}
}

// The sampler auto as a whole, where the density is exact, finds the long thin tail of the banana, which proposals
// of R-hat 1.00 and acceptance 0.8 can miss: means and sds are within four stated errors, the sd of the long
// coordinate within 15 %, and runs converge; some choose their proposals anew. Stated errors are right within 10 % (bench/accuracy -whole), so that 16
// estimates raise a false alarm once in 200 times; seeds are fixed. ULISSE_RUNS asks for so many runs of every
// target, whose errors over the stated ones are then to have an rms of 0.8 to 1.2.
func TestWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds of all cores")
	}
	runs, targets := 4, []*Target{banana()}
	if n, err := strconv.Atoi(os.Getenv("ULISSE_RUNS")); err == nil {
		runs, targets = n, Targets()
	}
	b := parallel.NewBudget(0)
	anew := 0
	for _, target := range targets {
		var square, count float64
		for seed := range uint64(runs) {
			r, results, err := DefaultWhole.Run(t.Context(), target, seed+1, b)
			if err != nil {
				t.Fatal(err)
			}
			if r.Stopped.Reason != chains.Converged {
				t.Errorf("%s, seed %d: %s", target.Name, seed+1, r.Stopped.Reason)
			}
			var begin []float64 // of the chains: others where proposals were chosen anew
			for _, s := range r.Stages {
				if s.Kind == "propose" && !slices.Equal(s.Shared[0], begin) {
					anew, begin = anew+1, s.Shared[0]
				}
			}
			anew--
			for i, x := range results {
				square, count = square+x.Z()*x.Z(), count+1
				off := math.Abs(x.Estimate-x.Truth) / target.SD(i/2)
				t.Logf("%s, seed %d, %s: off by %.3f sd, %+.2f stated errors", target.Name, seed+1, x.Name, off, x.Z())
				if runs < 20 && math.Abs(x.Z()) > 4 || off > 0.15 {
					t.Errorf("%s, seed %d: %s is %.4g, want %.4g, %.1f stated errors off", target.Name, seed+1, x.Name, x.Estimate, x.Truth, x.Z())
				}
			}
		}
		if rms := math.Sqrt(square / count); runs >= 20 && !(rms >= 0.8 && rms <= 1.2) {
			t.Errorf("%s: the rms of error over stated error is %.2f", target.Name, rms)
		}
	}
	if anew == 0 {
		t.Error("no run chose its proposals anew: that is not seen here any more")
	}
}
