package study

import (
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestTry(t *testing.T) {
	b := parallel.NewBudget(0)
	for _, target := range Targets() {
		for seed := range uint64(6) {
			began := time.Now()
			r, results, err := DefaultWhole.Run(t.Context(), target, seed+1, b)
			if err != nil {
				t.Error(err)
				continue
			}
			c := r.Diagnose(r.MinDraws())
			t.Logf("%s seed %d: %s draws %d ess %.0f rhat %.3f error %.3f stages %d; %v", target.Name, seed+1, r.Stopped.Reason, c.Draws, c.ESS, c.RHat, c.Error, len(r.Stages), time.Since(began))
			for _, x := range results {
				t.Logf("   %s: %+.3f (%.3f), z %+.2f", x.Name, (x.Estimate-x.Truth), x.Errors.Total(), x.Z())
			}
		}
	}
}
