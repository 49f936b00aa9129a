package local

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// divergent are posteriors on which a chain diverges at the default step: in warm-up, and while sampling.
var divergent = map[chains.Phase]string{
	chains.Warmup: `
name: test
data: {synthetic: {n: 40, d: 14, sigma: 1, tau: 0.01, lambda: 0.1, seed: 1}}
model: {ard: true, priors: {tau: "lognormal(-4,1.5)"}}
sampler: {method: fisher, draws: 20}
stop: {ess: 1e9, max_draws: 20}
seed: 1
`,
	chains.Sampling: `
name: test
data: {synthetic: {n: 60, d: 8, sigma: 1, tau: 0.05, lambda: 0.1, seed: 1}}
model: {ard: true, priors: {tau: "gamma(0.2,0.2)"}}
sampler: {method: fisher, draws: 20}
stop: {ess: 1e9, max_draws: 20}
seed: 1
`}

// A run that diverges gives the draws of one that took the smaller step from the start, whatever the number of
// cores, and whenever it is interrupted.
func TestDivergence(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	for phase, text := range divergent {
		s := spec(t, text)
		var before chains.Phase
		c := config(t, s, 1, t.TempDir())
		c.Watch = func(v View) {
			if len(v.Run.Restarts) == 0 {
				before = v.Run.Phase
			}
		}
		got := run(t, c)
		if len(got.Restarts) == 0 || before != phase {
			t.Fatalf("it began again %d times, from %s, not %s", len(got.Restarts), before, phase)
		}
		step := got.Restarts[len(got.Restarts)-1].Step
		smaller := spec(t, strings.Replace(text, "draws: 20}", fmt.Sprintf("draws: 20, step: %g}", step), 1))
		want := run(t, config(t, smaller, 2, t.TempDir()))
		if len(want.Restarts) > 0 || want.Plan.Step != step {
			t.Fatalf("with step %g: %+v", want.Plan.Step, want.Restarts)
		}
		if draws(got) != draws(want) {
			t.Errorf("%s: the draws are not those of step %g", phase, step)
		}
		dir := t.TempDir()
		for stops := 0; ; stops++ {
			ctx, cancel := context.WithCancel(t.Context())
			c := config(t, s, 2, dir)
			events := 0
			c.Watch = func(View) {
				if events++; events == 3+stops%2 {
					cancel()
				}
			}
			r, _, err := Run(ctx, c)
			cancel()
			if err != nil && !ErrInterrupted(err) {
				t.Fatal(err)
			}
			if err == nil {
				if stops < 3 || draws(r) != draws(want) {
					t.Errorf("%s: after %d interruptions the draws are others", phase, stops)
				}
				break
			}
		}
	}
}
