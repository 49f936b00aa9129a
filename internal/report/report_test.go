package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// testRun is a finished run with draws around known log parameters.
func testRun(ard bool, draws int) (*job.Spec, *dataset.Info, posterior.Model, *chains.Run) {
	s := job.Default()
	s.Sampler.Method = "fisher"
	s.Name = "test"
	m := posterior.NewModel(kernel.Single(kernel.RBF, 2, ard), likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
	d := &dataset.Info{Rows: 3, Target: "y", InputNames: []string{"a", "b"},
		XScale: []dataset.Scale{{Mean: 1, SD: 2}, {Mean: 0, SD: 10}}, YScale: dataset.Scale{Mean: 5, SD: 3}}
	plan := s.Plan(m.Names(), 1000)
	r := chains.New(plan)
	r.Phase = chains.Done
	r.Stopped = &chains.Stop{Reason: chains.Converged, Draws: draws}
	for c := range r.Chains {
		for t := range draws {
			psi := make([]float64, m.NumParams())
			random.Normal(random.Key{Chain: c, Iter: t}.Stream(random.Noise, 0), psi)
			for i := range psi {
				psi[i] = 0.1*psi[i] - float64(i)
			}
			r.Chains[c].Draws = append(r.Chains[c].Draws, psi)
		}
		r.Chains[c].Cost = chains.Cost{Gradients: draws, Solves: 5 * draws, Iterations: 50 * draws, Products: 12 * draws, Pairs: 1.025e6, PairsRead: 2.5e4, Seconds: 2}
		r.Chains[c].Warmup = 7
	}
	return &s, d, m, r
}

func find(t *testing.T, sum *Summary, name string) Parameter {
	t.Helper()
	for _, p := range sum.Parameters {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no quantity %s", name)
	return Parameter{}
}

func TestSummary(t *testing.T) {
	s, d, m, r := testRun(true, 250)
	d.Truth = &dataset.Truth{Sigma: 1, Tau: []float64{0.5, 0.02}, Lambda: 0.1}
	r.Prepared = &chains.Prepared{Preconditioner: &chains.Preconditioner{Kind: "svd", Rank: 40}, Iterations: 4}
	sum := Summarize(s, d, m, r, 90*time.Second, "portable")
	var names []string
	for _, p := range sum.Parameters {
		names = append(names, p.Name)
	}
	if got, want := strings.Join(names, " "), "sigma tau[a] tau[b] lambda lengthscale[a] lengthscale[b] lengthscale_std[a] lengthscale_std[b] signal_sd noise_sd log_sigma log_tau[a] log_tau[b] log_lambda"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Draws are log-normal around log θ = 0, −1, −2, −3 with sd 0.1: the log
	// parameters' moments within 5 standard errors.
	for i, name := range []string{"log_sigma", "log_tau[a]", "log_tau[b]", "log_lambda"} {
		p := find(t, sum, name)
		if math.Abs(float64(p.Mean)+float64(i)) > 5*float64(p.MCSEMean) || math.Abs(float64(p.SD)-0.1) > 0.02 || p.ESSBulk < 500 || p.RHat > 1.02 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	near := func(name string, want float64) {
		t.Helper()
		if p := find(t, sum, name); math.Abs(float64(p.Q50)/want-1) > 0.03 {
			t.Errorf("%s: median %v, want about %v", name, p.Q50, want)
		}
	}
	near("lengthscale_std[a]", 1/math.Sqrt(2*math.Exp(-1)))
	near("lengthscale[a]", 2/math.Sqrt(2*math.Exp(-1)))
	near("lengthscale[b]", 10/math.Sqrt(2*math.Exp(-2)))
	near("noise_sd", 3*math.Exp(-1.5))
	near("signal_sd", 3)
	if p := find(t, sum, "lengthscale[b]"); math.Abs(float64(*p.Truth)-50) > 1e-9 {
		t.Errorf("truth %v", *p.Truth)
	}
	if !sum.Converged || sum.Chains[0].SolverIterationsMean != 10 || sum.Total.Products != 4*12*250 || sum.Chains[3].Warmup != 7 {
		t.Errorf("%+v", sum)
	}
	if p := sum.Preconditioner; p == nil || p.Kind != "svd" || p.Drift != 2.5 {
		t.Errorf("preconditioner %+v", p)
	}
	if len(sum.Warnings) != 0 {
		t.Errorf("warnings %q", sum.Warnings)
	}
	sum.Cache = &cmvp.CachePlan{Use: true, Kept: 0.5, Read: 1, Compute: 2, Saving: 0.25}
	var b bytes.Buffer
	if err := sum.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"test: converged", "4 chains, 1000 draws kept, 28 warm-up", "ESS_bulk", "R_hat", "Truth", "lengthscale[a]", "lengthscale[b]", "tau[b]", "signal_sd", "1000 gradients of 8 ms each", "90 s wall",
		"MAD", "ESS_bulk/s",
		"preconditioner svd of rank 40; solves take 2.5 times the iterations at the mode",
		"4e+06 pairs evaluated (portable), 1e+05 read from memory", "cache of K used: with 50 % of K kept"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// People are told each quantity once, by the names of the inputs, and of all forms if they ask.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		ard     bool
		details bool
		want    string
	}{
		{true, false, "sigma tau[a] tau[b] lambda lengthscale[a] lengthscale[b] signal_sd noise_sd"},
		{false, false, "sigma tau lambda lengthscale signal_sd noise_sd"},
		{false, true, "sigma tau lambda lengthscale signal_sd noise_sd log_sigma log_tau log_lambda"},
	} {
		s, d, m, r := testRun(c.ard, 40)
		sum := Summarize(s, d, m, r, time.Second, "portable")
		sum.Details = c.details
		var b strings.Builder
		sum.table(&b)
		var names []string
		for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n")[1:] {
			names = append(names, strings.Fields(line)[0])
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	s, d, m, r := testRun(false, 60)
	r.Stopped.Reason = chains.MaxTime
	for t := range r.Chains[0].Draws {
		r.Chains[0].Draws[t][1] += 3 // chain 1 is elsewhere
	}
	r.Chains[1].Cost.Unconverged = 4
	r.Drawn = &chains.Drawn{Every: 1, Inflation: 1, Tail: 0.31, TailOf: 1}
	sum := Summarize(s, d, m, r, time.Second, "portable")
	text := strings.Join(sum.Warnings, "\n")
	for _, want := range []string{"R-hat of tau is", "above 1.01: run longer", "effective sample size of sigma", "4 of 1200 linear systems did not reach",
		"a tail that holds up to 31 % of the variance of tau"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if sum.Converged {
		t.Error("it says converged")
	}
	_, _, _, none := testRun(false, 0)
	sum = Summarize(s, d, m, none, time.Second, "portable")
	if len(sum.Warnings) != 1 || !strings.Contains(sum.Warnings[0], "no draws") {
		t.Errorf("%q", sum.Warnings)
	}
	text2, err := json.Marshal(sum) // NaN has no JSON
	if err != nil {
		t.Fatal(err)
	}
	var back Summary
	if err := json.Unmarshal(text2, &back); err != nil || !math.IsNaN(float64(back.Parameters[0].RHat)) {
		t.Error(err, back)
	}
}

// Draws survive the trip through the CSV file to the last bit, and the hash can
// be recomputed from it.
func TestCSV(t *testing.T) {
	rec := testRecord(t, true, 20)
	sum, r := rec.Summary(), rec.Run
	dir := t.TempDir()
	if err := WriteAll(dir, rec, sum); err != nil {
		t.Fatal(err)
	}
	back := chains.New(r.Plan)
	for c := range r.Chains {
		text, err := os.ReadFile(filepath.Join(dir, "draws", "chain-"+strconv.Itoa(c+1)+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		cr := csv.NewReader(bytes.NewReader(text))
		cr.Comment = '#'
		rows, err := cr.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(rows[0][:4], " "); got != "sigma tau.1 tau.2 lambda" {
			t.Fatalf("columns %s", got)
		}
		if len(rows) != 21 {
			t.Fatalf("%d rows", len(rows))
		}
		for i, row := range rows[1:] {
			for k := range 4 {
				theta, err := strconv.ParseFloat(row[k], 64)
				if err != nil {
					t.Fatal(err)
				}
				if want := math.Exp(r.Chains[c].Draws[i][k]); theta != want {
					t.Fatalf("draw %d, column %d: %v, want %v", i, k, theta, want)
				}
			}
			psi := make([]float64, 4)
			for k := range psi {
				psi[k], _ = strconv.ParseFloat(row[len(row)-4+k], 64)
			}
			back.Chains[c].Draws = append(back.Chains[c].Draws, psi)
		}
	}
	if DrawsSHA256(back) != sum.DrawsSHA256 {
		t.Error("the hash does not come back")
	}
	back.Chains[2].Draws[5][1] = math.Nextafter(back.Chains[2].Draws[5][1], 1)
	if DrawsSHA256(back) == sum.DrawsSHA256 {
		t.Error("the hash does not see a change of one bit")
	}
	for _, name := range []string{"result.json", "summary.json", "summary.txt", "trace.svg", "density.svg", "rank.svg", "mean.svg", "rhat.svg",
		"autocorrelation.svg", "pairs.svg"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	var j struct {
		Parameters []map[string]any
		Draws      string `json:"draws_sha256"`
	}
	text, _ := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err := json.Unmarshal(text, &j); err != nil || j.Draws != sum.DrawsSHA256 || len(j.Parameters) != len(sum.Parameters) {
		t.Errorf("%v %+v", err, j)
	}
	for _, key := range []string{"name", "mean", "sd", "q5", "q50", "q95", "mcse_mean", "ess_bulk", "ess_tail", "rhat"} {
		if _, ok := j.Parameters[0][key]; !ok {
			t.Errorf("no %s in summary.json", key)
		}
	}
}

// Names for programs are by the inputs, once each: what isotropic models share is one number. In CmdStan's files they are by
// number, which is all that its readers take.
func TestNamesForPrograms(t *testing.T) {
	for _, c := range []struct {
		inputs      []string
		ard         bool
		names, stan string
	}{
		{[]string{"a", "b"}, true, "sigma tau[a] tau[b] lambda lengthscale[a] lengthscale[b] lengthscale_std[a] lengthscale_std[b] signal_sd noise_sd log_sigma log_tau[a] log_tau[b] log_lambda",
			"sigma tau.1 tau.2 lambda lengthscale.1 lengthscale.2 lengthscale_std.1 lengthscale_std.2 signal_sd noise_sd log_sigma log_tau.1 log_tau.2 log_lambda"},
		{[]string{"a", "b"}, false, "sigma tau lambda lengthscale signal_sd noise_sd log_sigma log_tau log_lambda", "sigma tau lambda lengthscale signal_sd noise_sd log_sigma log_tau log_lambda"},
		{[]string{"a"}, false, "sigma tau lambda lengthscale[a] lengthscale_std[a] signal_sd noise_sd log_sigma log_tau log_lambda",
			"sigma tau lambda lengthscale.1 lengthscale_std.1 signal_sd noise_sd log_sigma log_tau log_lambda"},
		{[]string{"", "x.y"}, true, "sigma tau[1] tau[x.y] lambda lengthscale[1] lengthscale[x.y] lengthscale_std[1] lengthscale_std[x.y] signal_sd noise_sd log_sigma log_tau[1] log_tau[x.y] log_lambda",
			"sigma tau.1 tau.2 lambda lengthscale.1 lengthscale.2 lengthscale_std.1 lengthscale_std.2 signal_sd noise_sd log_sigma log_tau.1 log_tau.2 log_lambda"},
	} {
		m := posterior.NewModel(kernel.Single(kernel.RBF, len(c.inputs), c.ard), likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
		d := &dataset.Info{InputNames: c.inputs, XScale: make([]dataset.Scale, len(c.inputs)), YScale: dataset.Scale{SD: 1}}
		var names, stan []string
		for _, q := range Quantities(m, d) {
			names, stan = append(names, q.Name), append(stan, q.Stan)
		}
		if got := strings.Join(names, " "); got != c.names {
			t.Errorf("got  %s\nwant %s", got, c.names)
		}
		if got := strings.Join(stan, " "); got != c.stan {
			t.Errorf("got  %s\nwant %s", got, c.stan)
		}
		if by := m.Params.NamesBy(c.inputs); !slices.Equal(by, names[:len(by)]) {
			t.Errorf("the model's own names are %v", by)
		}
	}
	levels := likelihood.NewUnequal([]string{"s=a b", "s=c"}, false)
	m := posterior.NewModel(kernel.Single(kernel.RBF, 1, false), levels, func(param.Param) param.Prior { return param.Prior{} })
	var names []string
	for _, q := range Quantities(m, &dataset.Info{InputNames: []string{"x"}, XScale: make([]dataset.Scale, 1), YScale: dataset.Scale{SD: 1}}) {
		names = append(names, q.Name+" "+q.Stan)
	}
	for _, want := range []string{"lambda[s=a b] lambda.1", "lambda[s=c] lambda.2", "noise_sd[s=c] noise_sd.2", "log_lambda[s=a b] log_lambda.1"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %q", want, names)
		}
	}
}

// What categories and shapes are told as: correlations, by their inputs.
func TestQuantitiesOfLeaves(t *testing.T) {
	e, err := expression.Parse("a: hamming(station, season, ard) * rq(temp) + b: hamming(station, season)")
	if err != nil {
		t.Fatal(err)
	}
	d := &dataset.Info{InputNames: []string{"station", "season", "temp"}, XScale: []dataset.Scale{{SD: 1}, {SD: 1}, {SD: 3}}, YScale: dataset.Scale{SD: 1}}
	cov, err := e.Covariance([]expression.Input{{Name: "station", SD: 1, Levels: 3}, {Name: "season", SD: 1, Levels: 4}, {Name: "temp", SD: 3}})
	if err != nil {
		t.Fatal(err)
	}
	m := posterior.NewModel(cov, likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
	psi := m.Params.Sampled([]float64{2, 0.5, 0.25, 0.125, 1.5, 3, 0.7, 0.1}) // in the order of the names
	if got, want := strings.Join(m.Params.NamesBy(d.InputNames), " "), "a.variance a.hamming.tau[station] a.hamming.tau[season] a.rq.tau[temp] a.rq.alpha b.variance b.tau lambda"; got != want {
		t.Fatalf("parameters %s, want %s", got, want)
	}
	want := map[string]float64{"a.hamming.correlation[station]": math.Exp(-0.5), "a.hamming.correlation[season]": math.Exp(-0.25),
		"a.rq.lengthscale[temp]": 3 * 2, "b.correlation": math.Exp(-0.7), "a.rq.alpha": 1.5}
	for _, q := range Quantities(m, d) {
		if w, ok := want[q.Name]; ok && math.Abs(q.Of(psi)-w) < 1e-14 {
			delete(want, q.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not told, or otherwise: %v", want)
	}
}

// A coregion is told as its correlations, of each pair of levels, and as the standard deviations of the levels; its parameters are
// details. The names for CmdStan are by numbers.
func TestQuantitiesOfCoregion(t *testing.T) {
	e, err := expression.Parse("f: coregion(out) * rbf(x) + g: coregion(out, scale=1) * rbf(x)")
	if err != nil {
		t.Fatal(err)
	}
	d := &dataset.Info{InputNames: []string{"out", "x"}, XScale: []dataset.Scale{{SD: 1}, {SD: 3}}, YScale: dataset.Scale{SD: 10}}
	cov, err := e.Covariance([]expression.Input{{Name: "out", SD: 1, Levels: 3, LevelNames: []string{"a", "b, c", "d"}}, {Name: "x", SD: 3}})
	if err != nil {
		t.Fatal(err)
	}
	m := posterior.NewModel(cov, likelihood.Gaussian{}, func(param.Param) param.Prior { return param.Prior{} })
	theta := make([]float64, len(m.Params))
	for i, name := range m.Params.Names() {
		theta[i] = map[string]float64{"f.variance": 4, "f.coregion.partial_odds[a,b, c]": 3, "f.coregion.partial_odds[a,d]": 1. / 3, "f.coregion.partial_odds[b, c,d]": 2, "f.coregion.scale[b, c]": 0.5, "f.coregion.scale[d]": 2}[name]
		if theta[i] == 0 {
			theta[i] = 1
		}
	}
	// r = 1/2 and −1/2, and, given the first, 1/3: C_23 = r_12·r_13 + r_23.1·√(1−r_12²)·√(1−r_13²).
	want := map[string]float64{"f.coregion.correlation[a,b, c] f.coregion.correlation.1.2": 0.5, "f.coregion.correlation[a,d] f.coregion.correlation.1.3": -0.5,
		"f.coregion.correlation[b, c,d] f.coregion.correlation.2.3": -0.25 + 0.75/3, "g.coregion.correlation[b, c,d] g.coregion.correlation.2.3": 0,
		"f.signal_sd[a] f.signal_sd.1": 20, "f.signal_sd[b, c] f.signal_sd.2": 10, "f.signal_sd[d] f.signal_sd.3": 40, "g.signal_sd g.signal_sd": 10,
		"f.coregion.scale[d] f.coregion.scale.3": 2, "f.coregion.partial_odds[a,d] f.coregion.partial_odds.2": 1. / 3}
	names := map[string]bool{}
	for _, q := range Quantities(m, d) {
		if names[q.Name] || names[q.Stan] && q.Stan != q.Name {
			t.Errorf("two are named %s, or %s", q.Name, q.Stan)
		}
		names[q.Name], names[q.Stan] = true, true
		if q.Detail != (strings.Contains(q.Name, "partial_odds") || strings.Contains(q.Name, "log_") || strings.Contains(q.Name, "_std")) {
			t.Errorf("%s is a detail: %v", q.Name, q.Detail)
		}
		if w, ok := want[q.Name+" "+q.Stan]; ok && math.Abs(q.Of(m.Params.Sampled(theta))-w) < 1e-14 {
			delete(want, q.Name+" "+q.Stan)
		}
	}
	if len(want) > 0 {
		t.Errorf("not told, or otherwise: %v", want)
	}
}
