package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A straight line with noise is learnt by the mean: its coefficients are told in the units of the data, and
// predictions far away follow it.
func TestMean(t *testing.T) {
	if testing.Short() {
		t.Skip("a run: not in short tests")
	}
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("time,temp,site,y\n")
	for i := range 80 {
		fmt.Fprintf(&b, "%d,%g,%c,%g\n", 1900+i, math.Mod(float64(i)*0.618, 1), 'A'+i%2, 700+0.5*float64(i)+math.Cos(37*float64(i)))
	}
	table := write(t, dir, "line.csv", b.String())
	spec := write(t, dir, "s.yaml", fmt.Sprintf(`
name: line
data: {path: %s, target: y, inputs: [time, temp]}
model: {kernel: matern52, mean: linear(time), noise: {by: site}}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 10}
stop: {rhat: 10, ess: 1}
`, table))
	if _, _, stderr := ulisse(t, "", "validate", spec); !strings.Contains(stderr, "mean: linear(time), coefficients ~ normal(0,115.") {
		t.Errorf("validate says %s", stderr)
	}
	out := filepath.Join(dir, "out")
	good(t, "run", spec, "--out", out, "-q")
	lines, err := csv.NewReader(strings.NewReader(good(t, "predict", out, "--coefficients", "-q"))).ReadAll()
	if err != nil || len(lines) != 3 || strings.Join(lines[0], ",") != "coefficient,mean,sd" {
		t.Fatal(lines, err)
	}
	// The constant is at the average of time, 39.5 years after the first. Of white noise of sd √½ alone the slope has the sd
	// √½/√(80·533.25) = 0.0034, and what the Matérn takes for a function makes them larger.
	for i, want := range []struct {
		name          string
		mean, lo, top float64
	}{{"constant", 700 + 0.5*39.5, 0.05, 20}, {"slope[time]", 0.5, 0.002, 0.5}} {
		mean, _ := strconv.ParseFloat(lines[i+1][1], 64)
		sd, _ := strconv.ParseFloat(lines[i+1][2], 64)
		if lines[i+1][0] != want.name || math.Abs(mean-want.mean) > 4*sd || sd < want.lo || sd > want.top {
			t.Errorf("%v, want %s about %g", lines[i+1], want.name, want.mean)
		}
	}
	var sum struct {
		Coefficients struct {
			Of []struct {
				Name     string
				Mean, SD float64
			}
		}
	}
	if err := json.Unmarshal([]byte(good(t, "summary", out, "--json")), &sum); err != nil || len(sum.Coefficients.Of) != 2 {
		t.Fatal(sum, err)
	}
	if c := sum.Coefficients.Of[1]; c.Name != "slope[time]" || math.Abs(c.Mean-0.5) > 4*c.SD || c.SD < 0.002 || c.SD > 0.5 {
		t.Errorf("the summary says %+v", c)
	}
	rows := write(t, dir, "new.csv", "time,temp\n2100,0.5\n")
	p := predictions(t, write(t, dir, "p.csv", good(t, "predict", out, "--data", rows, "-q", "--terms", "--latent")))
	if mean, sd := p["mean"][0], p["sd"][0]; math.Abs(mean-800) > 4*sd || sd > 20 {
		t.Errorf("200 years on: %v ± %v, want 800", mean, sd)
	}
	for _, name := range []string{"kernel", "mean", "mean_time"} {
		if len(p["mean["+name+"]"]) != 1 {
			t.Errorf("no term %s among %v", name, p)
		}
	}
	if code, _, stderr := ulisse(t, "", "predict", out, "--coefficients", "--holdout"); code != ExitBadInput || !strings.Contains(stderr, "they are of no rows") {
		t.Error(code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "predict", finished(t), "--coefficients"); code != ExitBadInput || !strings.Contains(stderr, "one term only, and no mean") {
		t.Error(code, stderr)
	}
}
