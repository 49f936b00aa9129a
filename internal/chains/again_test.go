package chains_test

import (
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
)

// From each event of a driver, and the run before it, the work is told that it comes of: done again
// it comes to an event of the same sum, whatever it cost, and to another one where a number differs.
func TestWorkOf(t *testing.T) {
	staged := chainstest.StagedPlan()
	exact := chainstest.Plan("exact")
	exact.Chains, exact.Draws, exact.MaxDraws, exact.ESS = 2, 25, 25, 1e9
	staged.Certificate = &exact
	for name, p := range map[string]chains.Plan{"chains": certified(), "staged": staged} {
		t.Run(name, func(t *testing.T) {
			turn := 0
			_, events := simulate(t, p, 0, func(n int) int { turn++; return turn % n })
			r := chains.New(p)
			kinds := map[string]int{}
			for i, e := range events {
				w, ok := r.WorkOf(&e)
				if byDriver := e.Settings == nil && e.Stop == nil; ok != byDriver {
					t.Fatalf("event %d: work %v", i, ok)
				}
				if ok {
					kinds[kindOf(e)]++
					again := copyOf(t, chainstest.Event(r.Plan, w, 0))
					costly(again)
					sum := sumOf(t, e)
					if got := sumOf(t, *again); got != sum {
						t.Fatalf("event %d, %s: the sum is %s, and %s of another cost", i, kindOf(e), sum, got)
					}
					change(again)
					if sumOf(t, *again) == sum {
						t.Fatalf("event %d, %s: other numbers have the same sum", i, kindOf(e))
					}
					stray := e
					stray.Certificate = !e.Certificate
					if _, ok := r.WorkOf(&stray); ok {
						t.Fatalf("event %d, %s, is of both runs", i, kindOf(e))
					}
				}
				if err := r.Apply(e); err != nil {
					t.Fatal(err)
				}
				if _, ok := r.WorkOf(&e); ok {
					t.Fatalf("event %d, %s, comes of work that is done", i, kindOf(e))
				}
			}
			want := []string{"prepared", "provisional", "checkpoint", "certificate prepared", "certificate checkpoint"}
			if p.Staged {
				want = []string{"prepared", "stage", "drawn", "evaluated", "certificate prepared", "certificate checkpoint"}
			}
			for _, kind := range want {
				if kinds[kind] == 0 {
					t.Errorf("there was no event %s: %v", kind, kinds)
				}
			}
		})
	}
}

// copyOf returns an event that shares nothing with another.
func copyOf(t *testing.T, e chains.Event) *chains.Event {
	t.Helper()
	text, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := chains.DecodeEvent(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sumOf(t *testing.T, e chains.Event) string {
	t.Helper()
	sum, err := e.Sum()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func kindOf(e chains.Event) (kind string) {
	switch {
	case e.Prepared != nil:
		kind = "prepared"
	case e.Provisional != nil:
		kind = "provisional"
	case e.Stage != nil:
		kind = "stage"
	case e.Drawn != nil:
		kind = "drawn"
	case e.Evaluated != nil:
		kind = "evaluated"
	case e.Checkpoint != nil:
		kind = "checkpoint"
	}
	if e.Certificate {
		return "certificate " + kind
	}
	return kind
}

// costly gives an event of a driver another cost.
func costly(e *chains.Event) {
	c := chains.Cost{Seconds: 7, Products: 77}
	switch {
	case e.Prepared != nil:
		e.Prepared.Cost = c
	case e.Provisional != nil:
		e.Provisional.Cost = c
	case e.Evaluated != nil:
		e.Evaluated.Cost = c
	case e.Checkpoint != nil:
		e.Checkpoint.Cost, e.Checkpoint.Vitals, e.Checkpoint.Stats.Products = c, chains.Vitals{Residual: 1}, 77
	}
}

// change changes a number of an event of a driver.
func change(e *chains.Event) {
	switch {
	case e.Prepared != nil:
		e.Prepared.Cov[0]++
	case e.Provisional != nil:
		e.Provisional.LogDensities[0]++
	case e.Stage != nil:
		e.Stage.Items[0][0]++
	case e.Drawn != nil:
		e.Drawn.Chains[0][0][0]++
	case e.Evaluated != nil:
		e.Evaluated.Numbers[0]++
	case e.Checkpoint != nil:
		e.Checkpoint.Draws[0][0]++
	}
}
