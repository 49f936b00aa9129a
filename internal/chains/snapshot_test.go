package chains_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
)

// A snapshot stays what it is, whatever is applied to the run it was taken of;
// and events applied to it make of it what they make of the run, and leave the
// run alone: at any point of runs with a certificate, of staged ones, and of those
// that are extended.
func TestSnapshot(t *testing.T) {
	certified := chainstest.Plan("fisher")
	exact := chainstest.Plan("exact")
	certified.Certificate, certified.Provisional = &exact, true
	text := func(r *chains.Run) string {
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	rapid.Check(t, func(t *rapid.T) {
		plan := rapid.SampledFrom([]chains.Plan{chainstest.Plan("fisher"), certified, chainstest.StagedPlan()}).Draw(t, "plan")
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "lane") }
		whole := chains.New(plan)
		events := chainstest.Simulate(t, whole, 0, pick)
		if !plan.Staged {
			events = append(events, chains.Event{Extend: &chains.Extend{Draws: 7}})
		}
		r := chains.New(plan)
		apply := func(r *chains.Run, events []chains.Event) {
			for _, e := range events {
				if err := r.Apply(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		at := rapid.IntRange(0, len(events)).Draw(t, "at")
		apply(r, events[:at])
		s := r.Snapshot()
		was := text(s)
		if diff := cmp.Diff(text(r), was); diff != "" {
			t.Fatalf("a snapshot differs:\n%s", diff)
		}
		apply(r, events[at:])
		if diff := cmp.Diff(was, text(s)); diff != "" {
			t.Fatalf("the snapshot has changed with the run:\n%s", diff)
		}
		end := text(r)
		apply(s, events[at:])
		if diff := cmp.Diff(end, text(s)); diff != "" {
			t.Fatalf("the same events make of the snapshot:\n%s", diff)
		}
		if diff := cmp.Diff(end, text(r)); diff != "" {
			t.Fatalf("the run has changed with the snapshot:\n%s", diff)
		}
	})
}
