package local

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// realData returns the path of a real data set, which lies in $ULISSE_DATA or
// beside the checkout, or skips the test.
func realData(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("ULISSE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not in %s: set ULISSE_DATA to the folder that has it", name, dir)
	}
	return path
}

// Fisher-matched Langevin on the Concrete data against the oracle: every mean
// within 0.15 posterior sd, every sd within 10 %. The Monte Carlo errors of the
// test are a fifth of the bounds (about 1,200 effective draws), so that a right
// sampler fails with probability below 1e-5; seeds are fixed anyway.
//
// The oracle's figures are those of sampler.method: cholesky with 4 chains of
// 5,000 draws on the same specification (ESS about 7,700).
func TestConcreteAgainstOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds of all cores")
	}
	path := realData(t, "concrete.csv")
	r := run(t, config(t, spec(t, fmt.Sprintf(`
name: concrete
data: {path: %q, target: strength}
sampler: {method: fisher, chains: 4, draws: 450}
solver: {tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.01, ess: 400, max_draws: 450}
`, path)), 2, t.TempDir()))
	oracle := []struct{ mean, sd float64 }{{1.835, 0.2351}, {-2.518, 0.1324}, {-2.706, 0.06477}}
	for i, name := range r.Plan.Names {
		x := r.Column(i, r.MinDraws())
		mean, sd := moments(x)
		ess := diagnostics.ESSBulk(x)
		t.Logf("%s: mean shifted by %+.3f sd, sd ratio %.3f, ESS %.0f", name, (mean-oracle[i].mean)/oracle[i].sd, sd/oracle[i].sd, ess)
		if math.Abs(mean-oracle[i].mean) > 0.15*oracle[i].sd {
			t.Errorf("%s: mean %v, oracle %v", name, mean, oracle[i].mean)
		}
		if math.Abs(sd/oracle[i].sd-1) > 0.1 {
			t.Errorf("%s: sd %v, oracle %v", name, sd, oracle[i].sd)
		}
		if ess < 0.5*1800 {
			t.Errorf("%s: %v effective draws of 1800", name, ess)
		}
	}
}
