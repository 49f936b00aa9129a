package chains

import "testing"

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
