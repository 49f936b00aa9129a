package cli

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const noisySpec = `
name: noisy
data: {path: noisy.csv, target: y, weights: count, holdout: 0.2}
model: {kernel: rbf, noise: {column: sd_y, by: station}}
sampler: {method: fisher, chains: 2, warmup: 10, draws: 10, checkpoint: 5}
solver: {cache: off}
stop: {rhat: 9, ess: 1, max_draws: 10}
seed: 3
`

// noisyTable writes a table whose noise differs between rows, and a specification.
func noisyTable(t testing.TB) (spec, table string) {
	t.Helper()
	dir, r := t.TempDir(), rand.New(rand.NewPCG(5, 1))
	text := "x,sd_y,station,count,y\n"
	for i := range 60 {
		x, sd, level, count := 3*r.Float64(), []float64{0.02, 0.2, 2}[i%3], r.IntN(2), 1+r.IntN(4)
		v := sd*sd + []float64{0.01, 1}[level]/float64(count)
		text += fmt.Sprintf("%v,%v,%c,%d,%v\n", x, sd, 'A'+rune(level), count, 5*math.Sin(2*x)+math.Sqrt(v)*r.NormFloat64())
	}
	return write(t, dir, "s.yaml", noisySpec), write(t, dir, "noisy.csv", text)
}

// Noise by columns goes all the way, on this machine and on a cluster, to the same bits: to draws by the levels' names, held-out
// rows, tables with the columns and without, rows left out, folds.
func TestNoiseByColumns(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	c := newLiveCluster(t, "w1", "w2")
	spec, table := noisyTable(t)
	dir := t.TempDir()
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	good(t, "run", spec, "--out", here, "-q")
	good(t, "submit", spec, "--coordinators", c.address, "--wait", "--out", there, "-q")
	draws := good(t, "draws", here, "--lp")
	if !strings.Contains(draws, "lambda[station=A],lambda[station=B]") || !strings.Contains(draws, "noise_sd[station=B]") || draws != good(t, "draws", there, "--lp") {
		t.Errorf("draws differ, or have no names of levels:\n%.300s", draws)
	}
	if stan := must(os.ReadFile(filepath.Join(here, "draws", "chain-1.csv"))); !bytes.Contains(stan, []byte("lambda.1,lambda.2")) {
		t.Errorf("%.400s", stan)
	}
	good(t, "draws", here, "--log-lik=2", "--predictive=2", "--out", filepath.Join(dir, "d.zarr"))
	predicted := func(args ...string) [2]map[string][]float64 {
		var out [2]map[string][]float64
		var text [2][]byte
		for i, of := range [][]string{{here}, {"noisy", "--coordinators", c.address}} {
			file := filepath.Join(dir, "p.csv")
			good(t, append(append([]string{"predict"}, of...), append(args, "--out", file)...)...)
			out[i], text[i] = predictions(t, file), must(os.ReadFile(file))
		}
		if !bytes.Equal(text[0], text[1]) {
			t.Errorf("%v: the cluster predicts otherwise:\n%s\n%s", args, text[0], text[1])
		}
		return out
	}
	held := predicted("--holdout")[0]
	if len(held["log_density"]) != 12 {
		t.Errorf("%d rows were held out", len(held["log_density"]))
	}
	full := predicted("--data", table)[0]
	for i, row := range held["row"] { // the same rows, from the table
		if at := int(row) - 1; math.Abs(full["sd"][at]/held["sd"][i]-1) > 1e-3 || math.Abs(full["log_density"][at]-held["log_density"][i]) > 1e-3 {
			t.Errorf("row %v: sd %g, log density %g; from the table %g, %g", row, held["sd"][i], held["log_density"][i], full["sd"][at], full["log_density"][at])
		}
	}
	predicted("--data", table, "--paths", "3", "--noise")
	bare := write(t, dir, "bare.csv", "x\n1\n2\n")
	for _, of := range [][]string{{here}, {"noisy", "--coordinators", c.address}} {
		code, _, stderr := ulisse(t, "", append([]string{"predict", "--data", bare}, of...)...)
		if code != ExitBadInput || !strings.Contains(stderr, `the table has no column "sd_y", which says what noise its rows have: add it, or predict the latent function with --latent`) {
			t.Errorf("code %d: %s", code, stderr)
		}
	}
	if latent := predicted("--data", bare, "--latent")[0]; len(latent["mean"]) != 2 || latent["target"] != nil {
		t.Errorf("%v", latent)
	}
	if out := good(t, "loo", here); !strings.Contains(out, "elpd_loo") {
		t.Error(out)
	}
	folds := filepath.Join(dir, "folds")
	good(t, "cv", spec, "--folds", "2", "--out", folds, "-q")
	if rows := leftOut(t, folds); len(rows["log_density"]) != 48 {
		t.Errorf("%d rows were left out", len(rows["log_density"]))
	}
	code, _, stderr := ulisse(t, "", "cv", spec, "--folds", "2", "--group", "station", "-q")
	if code != ExitBadInput || !strings.Contains(stderr, "when fold 1 is left out: row 1: station is ") || !slices.ContainsFunc([]string{"A", "B"}, func(s string) bool { return strings.Contains(stderr, "there are "+s) }) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// A transformed target is validated, learnt, predicted and compared in its own units.
func TestTransformedTarget(t *testing.T) {
	dir, r := t.TempDir(), rand.New(rand.NewPCG(5, 1))
	text := "x,y\n"
	for range 50 {
		x := 3 * r.Float64()
		text += fmt.Sprintf("%v,%v\n", x, math.Exp(2*math.Sin(2*x)+0.3*r.NormFloat64()))
	}
	write(t, dir, "t.csv", text)
	var folders []string
	for _, kind := range []string{"none", "log"} {
		spec := write(t, dir, kind+".yaml", "name: t\ndata: {path: t.csv, target: y, holdout: 0.2, transform: "+kind+"}\n"+noisySpec[strings.Index(noisySpec, "sampler:"):])
		folders = append(folders, filepath.Join(dir, kind))
		good(t, "run", spec, "--out", folders[len(folders)-1], "-q")
	}
	_, _, stderr := ulisse(t, "", "validate", filepath.Join(dir, "log.yaml"))
	if !strings.Contains(stderr, "target: log(y), in whose units are priors of signal_sd and noise_sd") {
		t.Error(stderr)
	}
	p, q := predictions(t, write(t, dir, "p.csv", good(t, "predict", folders[1], "--holdout"))), predictions(t, write(t, dir, "q.csv", good(t, "predict", folders[0], "--holdout")))
	for i, y := range p["target"] {
		if math.Abs(y-q["target"][i]) > 1e-9*y || !(p["q2.5"][i] > 0 && p["q2.5"][i] < p["q50"][i] && p["q50"][i] < p["mean"][i]) {
			t.Errorf("row %v: target %g, mean %g, quantiles %g, %g", p["row"][i], y, p["mean"][i], p["q2.5"][i], p["q50"][i])
		}
	}
	if out := good(t, "compare", folders[0], folders[1]); !strings.Contains(out, folders[1]+" predicts better than "+folders[0]) {
		t.Errorf("the logarithm, of which the data were made, is not the first:\n%s", out)
	}
	if page := must(os.ReadFile(filepath.Join(folders[1], "report.html"))); !bytes.Contains(page, []byte("in the units of log(y)")) {
		t.Error("the report does not say in what units the noise is")
	}
	code, _, stderr := ulisse(t, "", "predict", folders[1], "--data", write(t, dir, "bad.csv", "x,y\n1,2\n1,-2\n"))
	if code != ExitBadInput || !strings.Contains(stderr, "the target of row 2: -2 has no logarithm") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
