package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const expressionSpec = `
name: seasons
data: {path: %s, target: y}
model:
  kernel: "trend: rq(time) + season: periodic(time, period=4) * matern32(time, temp, ard)"
  priors: {trend.lengthscale: "lognormal(2,0.5)", noise_sd: "halfnormal(1)"}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 10}
stop: {rhat: 10, ess: 1}
`

// seasons writes a table with a trend and a season.
func seasons(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("time,temp,y\n")
	for i := range 80 {
		x := float64(i) / 4
		fmt.Fprintf(&b, "%g,%g,%g\n", x, math.Mod(float64(i)*0.618, 1), 0.1*x+math.Sin(math.Pi*x/2)+0.1*math.Cos(37*x))
	}
	return write(t, dir, "seasons.csv", b.String())
}

// A sum of products is sampled, told, exported and predicted from like a single family, by its
// terms' names, with the same draws on this machine and on a cluster.
func TestExpression(t *testing.T) {
	if testing.Short() {
		t.Skip("two runs: not in short tests")
	}
	dir := t.TempDir()
	table := seasons(t, dir)
	spec := write(t, dir, "s.yaml", fmt.Sprintf(expressionSpec, table))
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")

	_, _, stderr := ulisse(t, "", "validate", spec)
	for _, want := range []string{"covariance: trend: rq(time) + season:", "  trend.alpha ~ lognormal(0,1)", "  trend.lengthscale[time] ~ lognormal(2,0.5)", "  season.matern32.tau[temp] ~ gamma(1,1)", "  noise_sd ~ halfnormal(1)"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("validate does not say %q:\n%s", want, stderr)
		}
	}
	svg := filepath.Join(dir, "prior.svg")
	var prior []priorView
	if err := json.Unmarshal([]byte(good(t, "prior", spec, "--json", "--plot", svg)), &prior); err != nil {
		t.Fatal(err)
	}
	for _, q := range prior {
		// The prior's own quantiles, e^2 and e^(2 ± 1.645/2), of 4000 draws.
		if q.Name == "trend.lengthscale[time]" && (math.Abs(math.Log(float64(q.Q50))-2) > 0.05 || math.Abs(math.Log(float64(q.Q95/q.Q5))-1.645) > 0.15) {
			t.Errorf("%+v", q)
		}
	}
	if text, _ := os.ReadFile(svg); bytes.Count(text, []byte("<path")) < 20 || !bytes.Contains(text, []byte("Functions drawn from the prior")) {
		t.Errorf("the picture:\n%.300s", text)
	}
	if code, _, stderr := ulisse(t, "", "prior", spec, "--functions", "0"); code != ExitBadInput || !strings.Contains(stderr, "from 1 to 200") {
		t.Error(code, stderr)
	}
	good(t, "run", spec, "--out", here, "-q")
	sum := good(t, "summary", here)
	for _, want := range []string{"trend.variance", "trend.alpha", "season.periodic.tau", "season.matern32.lengthscale[temp]", "trend.signal_sd", "noise_sd"} {
		if !strings.Contains(sum, want) {
			t.Errorf("the summary does not have %s:\n%s", want, sum)
		}
	}
	for _, format := range []string{"csv", "cmdstan", "npz", "zarr", "netcdf", "parquet"} {
		code, _, stderr := ulisse(t, "", "draws", here, "--format", format, "--out", filepath.Join(dir, "draws."+format))
		if code != 0 {
			t.Errorf("%s: %s", format, stderr)
		}
	}
	head, err := os.ReadFile(filepath.Join(dir, "draws.csv"))
	if line, _, _ := strings.Cut(string(head), "\n"); err != nil || !strings.Contains(line, "season.matern32.tau[temp]") {
		t.Errorf("columns %s, %v", line, err)
	}
	page := filepath.Join(dir, "page.html")
	good(t, "report", here, "--out", page)
	if html, _ := os.ReadFile(page); !bytes.Contains(html, []byte("TERM.variance")) {
		t.Error("the report does not say what the names mean")
	}
	good(t, "report", here, "--effects", "-q", "--rows", "10", "--draws", "4", "--out", page)
	html, _ := os.ReadFile(page)
	for _, want := range []string{`<h2 id="effects">`, "What the term trend adds to y, over time.", "What the term season adds to y, over time.", "What the term season adds to y, over temp."} {
		if !bytes.Contains(html, []byte(want)) {
			t.Errorf("the report does not have %q", want)
		}
	}
	rows := write(t, dir, "new.csv", "temp,time\n0.5,3.1\n0.2,21\n")
	local := good(t, "predict", here, "--data", rows, "-q", "--terms", "--latent")
	if lines := strings.Split(local, "\n"); len(lines) != 4 || lines[0] != "row,mean,sd,q2.5,q50,q97.5,mean[trend],sd[trend],mean[season],sd[season]" {
		t.Errorf("predictions:\n%s", local)
	}
	terms := predictions(t, write(t, dir, "terms.csv", local))
	var mean float64 // of the targets, which the latent function is around
	for i := range 80 {
		x := float64(i) / 4
		mean += (0.1*x + math.Sin(math.Pi*x/2) + 0.1*math.Cos(37*x)) / 80
	}
	for i, whole := range terms["mean"] {
		if sum := mean + terms["mean[trend]"][i] + terms["mean[season]"][i]; math.Abs(sum-whole) > 1e-6 {
			t.Errorf("row %d: the terms add up to %v, the whole is %v", i+1, sum, whole)
		}
	}
	// The trend is over time alone: its effect is the term itself.
	effect := predictions(t, write(t, dir, "effect.csv", good(t, "effects", here, "time", "--term", "trend", "--grid", "5", "-q")))
	var at strings.Builder
	at.WriteString("temp,time\n")
	for _, x := range effect["time"] {
		fmt.Fprintf(&at, "0.3,%.17g\n", x)
	}
	same := predictions(t, write(t, dir, "same.csv", good(t, "predict", here, "--data", write(t, dir, "at.csv", at.String()), "-q", "--terms", "--latent")))
	for i, mean := range same["mean[trend]"] {
		if math.Abs(effect["mean"][i]-mean) > 1e-4 || math.Abs(effect["sd"][i]-same["sd[trend]"][i]) > 1e-4 {
			t.Errorf("at %v the trend's effect is %v with sd %v, the term %v with %v", effect["time"][i], effect["mean"][i], effect["sd"][i], mean, same["sd[trend]"][i])
		}
	}
	if code, _, stderr := ulisse(t, "", "effects", here, "time", "--term", "tren"); code != ExitBadInput || !strings.Contains(stderr, "the covariance has the terms trend, season") {
		t.Error(code, stderr)
	}

	c := newLiveCluster(t, "w1", "w2")
	code, _, stderr := ulisse(t, "", "submit", spec, "--coordinators", c.address, "--wait", "--out", there)
	if code != ExitConverged {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	if summaryHash(t, here) != summaryHash(t, there) {
		t.Error("the cluster's draws are others")
	}
	if remote := good(t, "predict", "seasons", "--data", rows, "-q", "--terms", "--latent", "--coordinators", c.address); remote != local {
		t.Errorf("the cluster predicts\n%s, here it is\n%s", remote, local)
	}
}

// Of a sum over two columns that are one but for sign and scale validate says which parameters can change places, of one over different
// columns nothing.
func TestMirrorsAreTold(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("a,b,c,y\n")
	for i := range 40 {
		x := math.Mod(float64(i)*0.618, 1)
		fmt.Fprintf(&b, "%g,%g,%g,%g\n", x, 3-2*x, math.Mod(float64(i)*0.414, 1), math.Sin(5*x))
	}
	table := write(t, dir, "mirrors.csv", b.String())
	for kernel, want := range map[string]string{
		"u: rbf(a) + v: rbf(b)": "hint: the posterior is the same where u.variance, u.tau[a] and v.variance, v.tau[b] change places: each of its modes has a mirror image",
		"u: rbf(a) + v: rbf(c)": "",
	} {
		spec := write(t, dir, "s.yaml", fmt.Sprintf("name: m\ndata: {path: %q, target: y}\nmodel: {kernel: %q}\n", table, kernel))
		_, _, stderr := ulisse(t, "", "validate", spec)
		if !strings.Contains(stderr, want) || want == "" && strings.Contains(stderr, "change places") {
			t.Errorf("%s: want %q in\n%s", kernel, want, stderr)
		}
	}
}
