package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// Successes of trials, and a quantile, go all the way, on this machine and on a cluster, to the same bits: to draws,
// predictions of tables with the trials and without, folds, and scores that fit.
func TestTrialsAndQuantiles(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	text, bare := "x,m,y,z\n", "x\n"
	for i := range 24 {
		x, m := float64(i)/6, 1+i%5
		y := int(math.Round(float64(m) / (1 + math.Exp(-2*math.Sin(x)))))
		text += fmt.Sprintf("%g,%d,%d,%g\n", x, m, y, math.Sin(x)+0.3*math.Sin(17*x))
		bare += fmt.Sprintf("%g\n", x)
	}
	table, points := write(t, dir, "t.csv", text), write(t, dir, "points.csv", bare)
	const form = `
name: %s
data: {path: t.csv, inputs: [x], %s}
model: {%s}
sampler: {chains: 2, warmup: 5, draws: 10, checkpoint: 5}
stop: {rhat: 99, ess: 1}
`
	trials := write(t, dir, "trials.yaml", fmt.Sprintf(form, "trials", "target: y, trials: m", "likelihood: binomial"))
	level := write(t, dir, "level.yaml", fmt.Sprintf(form, "level", "target: z", "likelihood: quantile, level: 0.8"))
	c := newLiveCluster(t, "w1", "w2")
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	good(t, "run", trials, "--out", here, "-q")
	good(t, "submit", trials, "--coordinators", c.address, "--wait", "--out", there, "-q")
	if summaryHash(t, here) != summaryHash(t, there) {
		t.Error("the cluster's draws are others")
	}
	of := func(from string, args ...string) map[string][]float64 {
		return predictions(t, write(t, dir, "p.csv", good(t, append([]string{"predict", from, "-q", "--draws", "4"}, args...)...)))
	}
	counts, probabilities := of(here, "--data", table), of(here, "--data", points)
	remote := of("trials", "--data", table, "--coordinators", c.address)
	for i, p := range probabilities["mean"] {
		if m := float64(1 + i%5); p < 0 || p > 1 || math.Abs(counts["mean"][i]-m*p) > 1e-9 || remote["mean"][i] != counts["mean"][i] {
			t.Errorf("row %d has the probability %g, and of %g trials the mean %g, on the cluster %g", i+1, p, m, counts["mean"][i], remote["mean"][i])
		}
		if p := counts["pit"][i]; p <= 0 || p > 1 || math.IsInf(counts["log_density"][i], 0) {
			t.Errorf("row %d: probability %g of the target or less", i+1, p)
		}
	}

	quantile := filepath.Join(dir, "quantile")
	good(t, "run", level, "--out", quantile, "-q")
	if text := good(t, "predict", quantile, "--data", table, "--scores", "--out", filepath.Join(dir, "q.csv"), "-q", "--draws", "4"); !strings.Contains(text, "below the 0.8 quantile") {
		t.Error(text)
	}
	if text := good(t, "cv", trials, "--folds", "2", "--out", filepath.Join(dir, "cv"), "-q"); !strings.Contains(text, "in 90 %") {
		t.Error(text)
	}
	if code, _, stderr := ulisse(t, "x,m,y\n1,2,3\n", "predict", here, "--data", "-", "-q", "--scores"); code != 0 {
		t.Error(code, stderr) // a target that cannot be has the log score −∞
	}
	wrong := write(t, dir, "wrong.csv", "x,m,y,z\n1,2,3,1\n2,2,1,0\n3,2,1,0\n")
	if code, _, stderr := ulisse(t, "", "validate", trials, "--data", wrong); code != ExitBadInput || !strings.Contains(stderr, "the target of row 1 is 3 of 2 trials") {
		t.Error(code, stderr)
	}
}
