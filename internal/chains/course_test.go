package chains

import (
	"math"
	"testing"
)

// A long chain's course is kept in bounded detail, and sums to what it was.
func TestCourseIsBounded(t *testing.T) {
	var c Chain
	const n = 10*maxMarks + 7
	for i := range n {
		k := &Checkpoint{State: State{Iter: 10 * (i + 1)}, Draws: make([][]float64, 10), Cost: Cost{Solves: 3, Iterations: 30 + i, Seconds: 0.5}}
		k.Vitals.Add(1e-3, 0)
		k.Vitals.Add(float64(i), 0.25)
		c.mark(k)
		if len(c.Course) > maxMarks {
			t.Fatalf("%d marks", len(c.Course))
		}
	}
	var sum Mark
	last := 0
	for _, m := range c.Course {
		if m.Iter <= last {
			t.Fatalf("a mark at %d after one at %d", m.Iter, last)
		}
		last = m.Iter
		sum.join(m)
	}
	if sum.Iter != 10*n || sum.Checkpoints != n || sum.Gradients != 10*n || sum.Solves != 3*n || sum.Iterations != 30*n+n*(n-1)/2 ||
		sum.Residual != n-1 || sum.Measured != n || sum.Noise != 0.25*n {
		t.Errorf("%+v", sum)
	}
	if len(c.Course) < maxMarks/4 {
		t.Errorf("only %d marks of %d checkpoints", len(c.Course), n)
	}
}

// The warm-up's seconds are those of its checkpoints, also where marks are joined over its end.
func TestWarmupSeconds(t *testing.T) {
	var c Chain
	if c.WarmupSeconds() != 0 {
		t.Error("a chain at its beginning")
	}
	const warm, n = 30, 10*maxMarks + 7 // checkpoints
	for i := range n {
		seconds := 1.0
		if i < warm {
			seconds = 3
		}
		c.mark(&Checkpoint{State: State{Iter: 10 * (i + 1)}, Draws: make([][]float64, 10), Cost: Cost{Seconds: seconds}})
		c.Cost.Seconds += seconds
		c.Warmup = 10 * min(i+1, warm)
		got, want := c.WarmupSeconds(), 3*float64(min(i+1, warm))
		if joined := float64(c.Course[0].Checkpoints); math.Abs(got-want) > 3*(joined-1)+1e-9 || got > c.Cost.Seconds {
			t.Fatalf("after %d checkpoints %v seconds, not %v, of marks of %v", i+1, got, want, joined)
		}
	}
}
