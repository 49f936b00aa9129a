package local

import (
	"fmt"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/job"
)

// Every preconditioner serves a run, those without a factor with Rademacher
// probes; the draws do not depend on the number of cores, nor does the choice
// of auto.
func TestEveryPreconditionerSamples(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	for _, kind := range job.PreconditionerSet {
		if kind == "none" {
			continue
		}
		s := spec(t, fmt.Sprintf(specText, "fisher", 1, "4", 4, 4, "pcg", kind, 4))
		s.Data.Synthetic.N = 60
		s.Sampler.Probes = job.Fixed(24)
		want := run(t, config(t, s, 1, t.TempDir()))
		if got := run(t, config(t, s, 3, t.TempDir())); draws(got) != draws(want) {
			t.Errorf("%s: the draws depend on the number of cores", kind)
		}
		p := want.Prepared
		switch {
		case p.Preconditioner == nil || !(p.Iterations > 0):
			t.Errorf("%s: chosen %v, %v iterations at the mode", kind, p.Preconditioner, p.Iterations)
		case kind == "auto" && (p.Preconditioner.Kind == "auto" || p.Preconditioner.Rank < 8):
			t.Errorf("auto chose %+v", p.Preconditioner)
		case kind != "auto" && p.Preconditioner.Kind != kind:
			t.Errorf("%s became %s", kind, p.Preconditioner.Kind)
		}
		if c := want.Cost(); c.Unconverged > 0 {
			t.Errorf("%s: %d systems did not converge", kind, c.Unconverged)
		}
	}
}
