package paramserver

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/floats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ascent is plain gradient ascent.
type ascent struct{}

func (ascent) Step(x, grad []float64, size float64) { floats.AddScaled(x, size, grad) }

func always(size float64) func(int) float64 { return func(int) float64 { return size } }

// downhill is the gradient of −x²/2.
func downhill(_ context.Context, _ int, x, grad []float64) error {
	for i, v := range x {
		grad[i] = -v
	}
	return nil
}

func equal(int, int) float64 { return 1 }

// Of W workers that are equally fast, gradients are W−1 versions stale once all have begun, and x_{t+1} = x_t − h·x_{t−W+1}: the recursion, computed by itself. Staleness-aware steps are h/W then.
func TestStaleGradientsFollowTheirRecursion(t *testing.T) {
	const workers, steps, h = 4, 60, 0.3
	for policy, size := range map[Policy]func(stale int) float64{
		Asynchronous: func(int) float64 { return h }, StalenessAware: func(stale int) float64 { return h / float64(stale+1) },
	} {
		s := New([]float64{1}, Config{Policy: policy, StepSize: always(h), Optimiser: ascent{}})
		var got []float64
		now, err := Simulate(t.Context(), s, workers, steps, equal, downhill, func(int, float64) { got = append(got, s.x[0]) })
		if err != nil {
			t.Fatal(err)
		}
		x := []float64{1}
		for step := range steps {
			from := max(0, step-workers+1) // where the gradient was computed
			x = append(x, x[step]-size(step-from)*x[from])
		}
		if !floats.EqualApprox(got, x[1:], 1e-12) || now != steps/workers {
			t.Errorf("%s: after %g seconds at %.4g, the recursion is at %.4g", policy, now, got, x[1:])
		}
		r := s.Report()
		if r.Steps != steps || !slices.Equal(r.Stale, []int{1, 1, 1, steps - 3}) || r.Dropped != 0 || math.Abs(r.Staleness()-float64(0+1+2+3*(steps-3))/steps) > 1e-12 {
			t.Errorf("%s: %+v", policy, r)
		}
	}
	// At h = 1 the recursion of four workers grows, that of one does not: the damage of stale gradients, and what dividing the step by 1 + staleness mends.
	for _, x := range []struct {
		policy  Policy
		workers int
		grows   bool
	}{{Asynchronous, 1, false}, {Asynchronous, 4, true}, {StalenessAware, 4, false}} {
		s := New([]float64{1}, Config{Policy: x.policy, StepSize: always(1), Optimiser: ascent{}})
		if _, err := Simulate(t.Context(), s, x.workers, 200, equal, downhill, nil); err != nil || (math.Abs(s.x[0]) > 1) != x.grows {
			t.Errorf("%s, %d workers: ends at %g (%v)", x.policy, x.workers, s.x[0], err)
		}
	}
}

// A synchronous step is that of the mean of its gradients; with backups the slowest worker's are dropped, and nobody waits for it.
func TestSynchronous(t *testing.T) {
	byBatch := func(_ context.Context, batch int, _, grad []float64) error {
		grad[0] = float64(batch)
		return nil
	}
	s := New([]float64{0}, Config{Policy: Synchronous, Gather: 3, StepSize: always(1), Optimiser: ascent{}})
	now, err := Simulate(t.Context(), s, 3, 2, func(w, _ int) float64 { return float64(w + 1) }, byBatch, nil)
	if want := (1.0+2+3)/3 + (4.0+5+6)/3; err != nil || math.Abs(s.x[0]-want) > 1e-12 || now != 6 {
		t.Errorf("two steps end at %g after %g, not at %g after 6 (%v)", s.x[0], now, want, err)
	}
	s = New([]float64{0}, Config{Policy: Synchronous, Gather: 2, StepSize: always(1), Optimiser: ascent{}})
	now, err = Simulate(t.Context(), s, 3, 20, func(w, _ int) float64 { return []float64{1, 1, 3.5}[w] }, byBatch, nil)
	if r := s.Report(); err != nil || now != 20 || r.Dropped < 4 || r.Staleness() != 0 {
		t.Errorf("20 steps with a slow worker more take %g, %+v (%v)", now, r, err)
	}
}

// Workers side by side make the steps that are asked for, none stale where steps are synchronous, and find the top; an error of a gradient ends them all.
func TestRun(t *testing.T) {
	for _, c := range []Config{{Policy: Asynchronous}, {Policy: StalenessAware}, {Policy: Synchronous, Gather: 3}, {Policy: Synchronous, Gather: 4}} {
		c.StepSize, c.Optimiser = always(0.1), ascent{}
		s := New([]float64{1, -2}, c)
		if err := Run(t.Context(), s, 4, 300, downhill); err != nil {
			t.Fatal(err)
		}
		r := s.Report()
		if r.Steps < 300 || floats.Norm(s.x, 2) > 1e-3 || c.Policy == Synchronous && r.Staleness() > 0 {
			t.Errorf("%+v: ends at %g, %+v", c, s.x, r)
		}
	}
	broken := errors.New("broken")
	s := New([]float64{1}, Config{Policy: Synchronous, Gather: 3, StepSize: always(0.1), Optimiser: ascent{}})
	err := Run(t.Context(), s, 3, 300, func(_ context.Context, batch int, x, grad []float64) error {
		if batch == 100 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
