package local

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
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

// reference is what bench/posteriors came to: of each log parameter the mean and the sd, and
// their standard errors.
type reference []struct{ mean, meanError, sd, sdError float64 }

// holdTo compares a run with a reference: each mean within tolerance sds, each sd within the
// same share, and four standard errors of both beyond (false alarms 6e-5 an estimate if the
// stated errors are right; seeds are fixed).
func holdTo(t *testing.T, r *chains.Run, ref reference, mean, sd float64) {
	t.Helper()
	for i, name := range r.Plan.Names {
		x := r.Column(i, r.MinDraws())
		m, s := moments(x)
		e, want := r.Errors(x), ref[i]
		t.Logf("%s: mean off by %+.3f sd (± %.3f), sd ratio %.3f (± %.3f)", name, (m-want.mean)/want.sd, e.Mean, s/want.sd, e.SD)
		if off := math.Abs(m-want.mean) / want.sd; !(off <= mean+4*math.Hypot(e.Mean, want.meanError/want.sd)) {
			t.Errorf("%s: mean %v, want %v, off by %.3f sd", name, m, want.mean, off)
		}
		if off := math.Abs(s/want.sd - 1); !(off <= sd+4*math.Hypot(e.SD, want.sdError/want.sd)) {
			t.Errorf("%s: sd %v, want %v", name, s, want.sd)
		}
	}
}

// The auto sampler on the Concrete data, one length-scale, against the same oracle: means
// within 0.03 sd and sds within 2 %, but for Monte Carlo errors.
func TestAutoOnConcrete(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: ten seconds of all cores")
	}
	path := realData(t, "concrete.csv")
	r := run(t, config(t, spec(t, fmt.Sprintf(`
name: concrete
data: {path: %q, target: strength}
sampler: {method: auto, chains: 4, draws: 500, auto: {starts: 3}}
stop: {rhat: 1.01, ess: 400, max_draws: 1000, max_time: 10m}
`, path)), 2, t.TempDir()))
	const ess = 7700
	var ref reference
	for _, o := range []struct{ mean, sd float64 }{{1.835, 0.2351}, {-2.518, 0.1324}, {-2.706, 0.06477}} {
		ref = append(ref, struct{ mean, meanError, sd, sdError float64 }{o.mean, o.sd / math.Sqrt(ess), o.sd, o.sd / math.Sqrt(2*ess)})
	}
	holdTo(t, r, ref, 0.03, 0.02)
	if ess := diagnostics.ESSBulk(r.Column(0, r.MinDraws())); ess < 1000 {
		t.Errorf("%.0f effective draws of 2000", ess)
	}
}

// Weak data: 11 rows of one input and 30 of two, whose posteriors are skewed and have two
// maxima each, against go run ./bench/posteriors -draws 300000 -prior 0.2 on the specifications
// in bench/posteriors/testdata.
func TestAutoOnWeakData(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: ten seconds of all cores")
	}
	const text = `
name: weak
data: {synthetic: {n: %d, d: %d, sigma: 1, tau: %g, lambda: %g, seed: %d}}
model: {ard: %t}
sampler: {method: auto, chains: 4, draws: 500}
stop: {rhat: 1.05, ess: 200, max_draws: 1000, max_time: 10m}
`
	for _, c := range []struct {
		spec string
		ref  reference
	}{
		{fmt.Sprintf(text, 11, 1, 0.5, 0.1, 34, false), reference{{-0.0446, 0.0017, 0.7678, 0.0019}, {0.0055, 0.0023, 1.0345, 0.0017}, {-1.5957, 0.0030, 1.2460, 0.0025}}},
		{fmt.Sprintf(text, 30, 2, 2.0, 0.3, 31, true), reference{{-0.6581, 0.0029, 1.0632, 0.0044}, {0.2267, 0.0026, 0.9654, 0.0049}, {0.3830, 0.0026, 1.0114, 0.0031}, {-0.9054, 0.0036, 1.0067, 0.0082}}},
	} {
		r := run(t, config(t, spec(t, c.spec), 2, t.TempDir()))
		holdTo(t, r, c.ref, 0.03, 0.02)
		if ess := r.Diagnose(r.MinDraws()).ESS; ess < 0.4*4*float64(r.MinDraws()) { // draws are nearly independent
			t.Errorf("%.0f effective of %d draws", ess, 4*r.MinDraws())
		}
	}
}
