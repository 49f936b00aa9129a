package local

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const specText = `
name: test
data: {synthetic: {n: 150, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: %s, chains: %d, warmup: %s, draws: %d, checkpoint: %d}
solver: {method: %s, tolerance: 1e-6, preconditioner: {kind: %s}}
stop: {rhat: 1.05, ess: 100, max_draws: %d, max_time: 10m}
`

func spec(t testing.TB, text string) *job.Spec {
	t.Helper()
	s, err := job.Parse(strings.NewReader(text), "test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fisherSpec(t testing.TB, chains, draws, maxDraws int) *job.Spec {
	return spec(t, fmt.Sprintf(specText, "fisher", chains, "auto", draws, 10, "pcg", "rpcholesky", maxDraws))
}

// config returns the configuration of a run with its journal in dir.
func config(t testing.TB, s *job.Spec, cores int, dir string) Config {
	t.Helper()
	return configWith(t, s, cores, dir, func(*cmvp.Operator) {})
}

// configWith is config with operators that are changed by set.
func configWith(t testing.TB, s *job.Spec, cores int, dir string, set func(*cmvp.Operator)) Config {
	t.Helper()
	budget := parallel.NewBudget(cores)
	ds, err := s.Load(context.Background(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(ds)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.PlanOf(p.Model.Names(), len(p.Y), p.Functions())
	plan.Provisional = false // 200 dense densities
	d := driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget,
		Operator: func(int) driver.Operator {
			op := cmvp.New(p.Inputs, p.Covariance, budget)
			set(op)
			return op
		}})
	return Config{Plan: plan, Driver: d, Budget: budget, Journal: filepath.Join(dir, "journal")}
}

func run(t testing.TB, c Config) *chains.Run {
	t.Helper()
	r, _, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Phase != chains.Done {
		t.Fatalf("the run is %s", r.Phase)
	}
	return r
}

// A run over rows that are arranged, whose products pass over pairs, has the same bits on any number of cores, and the draws of a run
// over all pairs, to what rounding makes of these.
func TestArrangedRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: two seconds")
	}
	text := func(sparsity string) string {
		return "name: roads\ndata: {synthetic: {n: 700, d: 1, sigma: 1, tau: 5000, lambda: 0.1, seed: 3}}\nmodel: {kernel: matern32, priors: {tau: \"lognormal(8.5,0.3)\"}}\n" +
			"sampler: {method: fisher, chains: 1, warmup: 6, draws: 6, checkpoint: 6, subset: 80, probes: 4}\nstop: {max_draws: 6}\nsolver: {precision: float64, tolerance: 1e-9, preconditioner: {rank: 40}, sparsity: " + sparsity + "}\n"
	}
	plain := run(t, config(t, spec(t, text("off")), 1, t.TempDir()))
	one := run(t, config(t, spec(t, text("on")), 1, t.TempDir()))
	three := run(t, config(t, spec(t, text("on")), 3, t.TempDir()))
	if plain.Prepared.Near != 0 || !(one.Prepared.Near > 0 && one.Prepared.Near < 0.9) {
		t.Errorf("%g and %g of the pairs are near", plain.Prepared.Near, one.Prepared.Near)
	}
	if a, b := one.Cost(), plain.Cost(); !(a.Pairs < 0.9*b.Pairs) {
		t.Errorf("%g pairs are counted, where all are %g", a.Pairs, b.Pairs)
	}
	for i, psi := range one.Chains[0].Draws {
		for k := range psi {
			if psi[k] != three.Chains[0].Draws[i][k] {
				t.Fatalf("draw %d depends on the number of cores", i+1)
			}
			if d := math.Abs(psi[k] - plain.Chains[0].Draws[i][k]); d > 1e-5 {
				t.Errorf("draw %d of %s is off by %g", i+1, one.Plan.Names[k], d)
			}
		}
	}
}

// The samplers and the oracle agree on a small posterior: each mean within
// 0.2 sd plus 4 Monte Carlo errors, each sd within 15 % plus 4. ess is the least
// number of effective draws for each draw.
func TestAgainstOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: ten seconds of all cores")
	}
	oracle := run(t, config(t, spec(t, fmt.Sprintf(specText, "cholesky", 4, "auto", 1000, 100, "pcg", "nystrom", 1000)), 2, t.TempDir()))
	for _, c := range []struct {
		method string
		ess    float64
	}{{"fisher", 0.4}, {"leimkuhler-matthews", 0.15}, {"exact", 0.25}, {"auto", 0.5}} {
		r := run(t, config(t, spec(t, fmt.Sprintf(specText, c.method, 4, "auto", 300, 10, "pcg", "rpcholesky", 300)), 2, t.TempDir()))
		for i, name := range r.Plan.Names {
			x, y := r.Column(i, r.MinDraws()), oracle.Column(i, oracle.MinDraws())
			mx, sx := moments(x)
			my, sy := moments(y)
			t.Logf("%s of %s: %.3f ± %.3f (ESS %.0f), oracle %.3f ± %.3f (ESS %.0f)", name, c.method, mx, sx, diagnostics.ESSBulk(x), my, sy, diagnostics.ESSBulk(y))
			if e := 4 * math.Hypot(diagnostics.MCSEMean(x), diagnostics.MCSEMean(y)); math.Abs(mx-my) > 0.2*sy+e {
				t.Errorf("%s of %s: mean %v, oracle %v", name, c.method, mx, my)
			}
			if e := 4 * math.Hypot(diagnostics.MCSESD(x), diagnostics.MCSESD(y)); math.Abs(sx-sy) > 0.15*sy+e {
				t.Errorf("%s of %s: sd %v, oracle %v", name, c.method, sx, sy)
			}
		}
		if ess := diagnostics.ESSBulk(r.Column(0, r.MinDraws())); ess < c.ess*1200 {
			t.Errorf("%s: %v effective draws of 1200", c.method, ess)
		}
	}
}

func moments(x [][]float64) (mean, sd float64) {
	var all []float64
	for _, c := range x {
		all = append(all, c...)
	}
	return stat.MeanStdDev(all, nil)
}

func draws(r *chains.Run) string {
	var b strings.Builder
	for _, c := range r.Chains {
		fmt.Fprintln(&b, c.Draws)
	}
	return b.String()
}

// The draws are the same bits on one core and on three, and for a run that was
// interrupted and resumed many times, with a torn line at the journal's end.
func TestSameDrawsWhateverHappens(t *testing.T) {
	for _, text := range []string{
		fmt.Sprintf(specText, "fisher", 3, "20", 30, 10, "pcg", "nystrom", 30),
		fmt.Sprintf(specText, "fisher", 2, "10", 20, 7, "ulisse", "nystrom", 20),
		fmt.Sprintf(specText, "fisher", 2, "20", 20, 7, "auto", "nystrom", 20),
		fmt.Sprintf(specText, "leimkuhler-matthews", 2, "10", 20, 7, "pcg", "nystrom", 20),
		fmt.Sprintf(specText, "cholesky", 2, "30", 40, 20, "pcg", "nystrom", 40),
		fmt.Sprintf(specText, "exact", 2, "20", 20, 7, "pcg", "nystrom", 20),
		fmt.Sprintf(specText, "sgld", 2, "auto", 20, 20, "ulisse", "none", 40) + "seed: 2\n",
		fmt.Sprintf(specText, "auto", 2, "auto", 100, 20, "pcg", "nystrom", 100),
	} {
		s := spec(t, text)
		if m := s.Sampler.Method; testing.Short() && m != "fisher" && m != "sgld" {
			continue // the race detector makes minutes of them
		}
		own := s.Sampler.Sections["sgld"].(*sampler.SGLD)
		own.Batch, own.Freeze = 10, 1e6 // freeze at once
		sameDraws(t, s)
	}
}

// sameDraws holds the draws of runs on one core, on three, and of one that is interrupted and resumed against each other.
func sameDraws(t *testing.T, s *job.Spec) {
	t.Helper()
	want := run(t, config(t, s, 1, t.TempDir()))
	if got := run(t, config(t, s, 3, t.TempDir())); draws(got) != draws(want) {
		t.Errorf("%s: the draws depend on the number of cores", s.Sampler.Method)
	}

	dir := t.TempDir()
	var got *chains.Run
	for stops := 0; ; stops++ {
		ctx, cancel := context.WithCancel(context.Background())
		c := config(t, s, 2, dir)
		events := 0
		c.Watch = func(View) {
			if events++; events == 2+stops%2 {
				cancel()
			}
		}
		r, _, err := Run(ctx, c)
		cancel()
		if err == nil {
			got = r
			if stops < 2 {
				t.Errorf("%s: it was never interrupted", s.Sampler.Method)
			}
			break
		}
		if !ErrInterrupted(err) {
			t.Fatal(err)
		}
		f, err := os.OpenFile(c.Journal, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, `{"elapsed":1,"event":{"chec`)
		f.Close()
	}
	if draws(got) != draws(want) {
		t.Errorf("%s: the draws depend on interruptions", s.Sampler.Method)
	}
}

// The draws are the same bits when elements of K are kept between products: all
// of them, or as many as there is memory for.
func TestSameDrawsWithACache(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	const text = `
name: cached
data: {synthetic: {n: 600, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {chains: 2, warmup: 5, draws: 10, checkpoint: 5, subset: 100}
solver: {precision: %s, preconditioner: {rank: 20}}
stop: {rhat: 9, ess: 1, max_draws: 10}
`
	for _, precision := range []string{"float64", "mixed"} {
		s := spec(t, fmt.Sprintf(text, precision))
		want := run(t, config(t, s, 2, t.TempDir()))
		if c := want.Cost(); c.PairsRead != 0 {
			t.Errorf("read %g pairs without a cache", c.PairsRead)
		}
		for _, part := range []int64{1, 2} {
			got := run(t, configWith(t, s, 3, t.TempDir(), func(op *cmvp.Operator) {
				op.SetCache(cmvp.CacheBytes(600, false)/part, cmvp.CacheBytes(600, true)/part)
			}))
			if draws(got) != draws(want) {
				t.Errorf("%s: the draws depend on a cache of 1/%d of K", precision, part)
			}
			if c := got.Cost(); c.PairsRead < 0.2*c.Pairs || c.PairsRead >= c.Pairs {
				t.Errorf("%s: read %g of %g pairs from a cache of 1/%d of K", precision, c.PairsRead, c.Pairs, part)
			}
		}
	}
}

// By probes alone, as with more rows than a factor is stored of, auto draws from the same
// posterior: each mean within 4 standard errors and each sd within 4, which include what is
// not known of log|K|, of the oracle's.
func TestAutoByProbes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds of all cores")
	}
	const text = `
name: probes
data: {synthetic: {n: 150, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: %s, chains: 4, draws: 1000%s}
stop: {rhat: 1.05, ess: 100, error: 0.2, max_draws: 1000, max_time: 10m}
`
	oracle := run(t, config(t, spec(t, fmt.Sprintf(text, "cholesky", "")), 2, t.TempDir()))
	r := run(t, config(t, spec(t, fmt.Sprintf(text, "auto", ", auto: {starts: 3, evidence: probes, density: learnt}")), 2, t.TempDir()))
	for i, name := range r.Plan.Names {
		x, y := r.Column(i, r.MinDraws()), oracle.Column(i, oracle.MinDraws())
		mx, sx := moments(x)
		my, sy := moments(y)
		ex, ey := r.Errors(x), oracle.Errors(y)
		t.Logf("%s: %.3f ± %.3f, errors %.3f and %.3f; oracle %.3f ± %.3f, errors %.3f and %.3f", name, mx, sx, ex.Mean, ex.SD, my, sy, ey.Mean, ey.SD)
		if e := math.Hypot(ex.Mean, ey.Mean); !(math.Abs(mx-my)/sy < 4*e) || ex.Mean > 0.4 {
			t.Errorf("%s: mean %v, oracle %v, error %v", name, mx, my, e)
		}
		if e := math.Hypot(ex.SD, ey.SD); !(math.Abs(sx/sy-1) < 4*e) || ex.SD > 0.4 {
			t.Errorf("%s: sd %v, oracle %v, error %v", name, sx, sy, e)
		}
	}
	for _, s := range r.Stages {
		if s.Kind == "learn" && s.Shared[0][0] != 1 {
			t.Error("it learnt by a factor")
		}
	}
}

// A journal that was changed by hand is refused, with the line.
func TestCorruptJournal(t *testing.T) {
	c := config(t, fisherSpec(t, 1, 10, 10), 1, t.TempDir())
	run(t, c)
	text, err := os.ReadFile(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	first := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, `"checkpoint":`) })
	for what, bad := range map[string]string{
		"line ":  strings.Join(slices.Delete(slices.Clone(lines), first, first+1), ""), // the next one does not follow
		"line 2": lines[0] + "nonsense\n",
	} {
		if err := os.WriteFile(c.Journal, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want a fault in %s", err, what)
		}
	}
}

func TestMaxTimeEndsARun(t *testing.T) {
	s := fisherSpec(t, 2, 1000, 100000)
	s.Stop.MaxTime, s.Stop.ESS = job.Duration(2e9), 1e9 // it does not converge
	r := run(t, config(t, s, 2, t.TempDir()))
	if r.Stopped.Reason != chains.MaxTime || r.Stopped.Draws != len(r.Chains[0].Draws) || len(r.Chains[0].Draws) != len(r.Chains[1].Draws) {
		t.Errorf("%+v, %d and %d draws", r.Stopped, len(r.Chains[0].Draws), len(r.Chains[1].Draws))
	}
}
