package sampler_test

import (
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// With solver.method: auto the second window stops early; whether the others
// do is decided by its products and noise, and kept.
func TestAutoChoosesTheSolver(t *testing.T) {
	for name, c := range map[string]struct {
		plain, early int     // products of a gradient
		noise        float64 // of the early stopping, in units of the posterior
		want         bool
	}{
		"fewer products, little noise": {100, 40, 0.1, true},
		"no fewer products":            {100, 99, 0.9, false}, // the noise takes more probes
		"noise beyond the budget":      {100, 40, 5, false},
	} {
		p := chainstest.Plan("fisher")
		p.Solver = "auto"
		r := chains.New(p)
		if err := r.Apply(chains.Event{Prepared: chainstest.Prepared(p)}); err != nil {
			t.Fatal(err)
		}
		var early []bool
		for r.Phase == chains.Warmup {
			e, err := sampler.Adapt(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Apply(*e); err != nil {
				t.Fatal(err)
			}
			s := e.Settings
			early = append(early, s.Early)
			if s.Early != (s.SolverCov != nil) && s.Window != 1 {
				t.Errorf("%s: window %d counts with noise that it does not have, or not with what it has", name, s.Window)
			}
			for chain := 1; chain <= p.Chains && r.Phase == chains.Warmup; chain++ {
				for {
					task, ok := r.Task(chain)
					if !ok {
						break
					}
					k := chainstest.Checkpoint(task, 0)
					products := c.plain
					if task.Settings.Early {
						products = c.early
						k.Stats.SolverCov = make([]float64, 9)
						for i := range 3 {
							k.Stats.SolverCov[4*i] = c.noise * float64(k.Stats.Spreads)
						}
					}
					k.Stats.Products = products * task.Iterations
					if err := r.Apply(chains.Event{Checkpoint: k}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if len(early) != 4 || early[0] || !early[1] || early[2] != c.want || early[3] != c.want {
			t.Errorf("%s: early stopping by window %v", name, early)
		}
	}
}
