package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

const sparseSpec = `
name: few
data: {path: table.csv, target: y, holdout: 0.2}
model: {approximation: %s}
`

// A fit by inducing inputs predicts rows, at moved inputs from where they were moved to; what needs the exact model or draws
// is told in a sentence.
func TestSparseFit(t *testing.T) {
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("x,y\n")
	for i := range 50 {
		x := float64(i) / 5
		fmt.Fprintf(&table, "%v,%v\n", x, 3+math.Sin(x)+float64(i*7919%13-6)/100)
	}
	write(t, dir, "table.csv", table.String())
	for name, approximation := range map[string]string{
		"sgpr": "{kind: sgpr, inducing: 14}", "moved": "{kind: sgpr, inducing: 8, optimise: true}", "fitc": "{kind: fitc, inducing: 14, place: rows}", "subset": "{kind: subset, inducing: 25}", "svgp": "{kind: svgp, inducing: 14}",
	} {
		spec, out, csv := write(t, dir, name+".yaml", fmt.Sprintf(sparseSpec, approximation)), filepath.Join(dir, name), filepath.Join(dir, name+".csv")
		if name == "svgp" { // from batches, whose end may be more than a standard error off
			if code, _, said := ulisse(t, "", "fit", spec, "--out", out, "-q", "--method", "adam", "--batch", "10", "--iterations", "300"); code != ExitConverged && code != ExitUnconverged {
				t.Fatal(said)
			}
		} else {
			good(t, "fit", spec, "--out", out, "-q", "--restarts", "1")
		}
		good(t, "predict", out, "--holdout", "--out", csv, "-q")
		p := predictions(t, csv)
		var squares float64
		for i, mean := range p["mean"] {
			squares += (mean - p["target"][i]) * (mean - p["target"][i]) / float64(len(p["mean"]))
		}
		if rmse := math.Sqrt(squares); len(p["mean"]) != 10 || !(rmse < 0.15) {
			t.Errorf("%s: %d rows, root mean squared error %.3g, and the noise is 0.04", name, len(p["mean"]), rmse)
		}
	}
	run := write(t, dir, "sgpmc.yaml", fmt.Sprintf(sparseSpec, "{kind: sgpmc, inducing: 14}")+"sampler: {chains: 2, draws: 20, warmup: 20}\nstop: {rhat: 5, ess: 1, max_draws: 40}\n")
	drawn, csv := filepath.Join(dir, "sgpmc"), filepath.Join(dir, "sgpmc.csv")
	if said := good(t, "run", run, "--out", drawn, "-q"); !strings.Contains(said, "an approximation: inducing inputs, 14 at most, stand for the rows") {
		t.Errorf("the summary says nothing of an approximation:\n%s", said)
	}
	good(t, "predict", drawn, "--holdout", "--out", csv, "-q")
	p := predictions(t, csv)
	for i, mean := range p["mean"] {
		if math.Abs(mean-p["target"][i]) > 0.25 {
			t.Errorf("sgpmc: row %d is predicted as %v, it is %v", i, mean, p["target"][i])
		}
	}
	sgpr := filepath.Join(dir, "sgpr.yaml")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"run", sgpr}, "model.approximation: sgpr is for point estimates: give the specification to 'ulisse fit', use sgpmc"},
		{[]string{"fit", run}, "model.approximation: sgpmc is drawn from: give the specification to 'ulisse run'"},
		{[]string{"predict", drawn, "--holdout", "--paths", "2"}, "the approximation predicts rows one by one"},
		{[]string{"plan", sgpr}, "sgpr is for point estimates"},
		{[]string{"submit", sgpr}, "sgpr is for point estimates"},
		{[]string{"cv", sgpr, "--out", filepath.Join(dir, "cv")}, "sgpr is for point estimates"},
		{[]string{"fit", sgpr, "--model", "exact"}, "--model exact: the specification has model.approximation: sgpr, give one of the two"},
		{[]string{"fit", sgpr, "--method", "adagrad"}, "--method adagrad: the gradients of sgpr are exact: leave it out"},
		{[]string{"fit", sgpr, "--method", "adam"}, "--method adam: it is for svgp, whose bound is a sum over rows, not for sgpr: leave it out"},
		{[]string{"fit", filepath.Join(dir, "subset.yaml"), "--method", "adam"}, "--method adam: it learns from batches of rows under model.approximation: {kind: svgp}"},
		{[]string{"fit", sgpr, "--batch", "0"}, "--batch 0: give a number from 1 to 1000000"},
		{[]string{"predict", filepath.Join(dir, "sgpr"), "--holdout", "--paths", "2"}, "the approximation predicts rows one by one"},
	} {
		status, _, said := ulisse(t, "", x.args...)
		if status == 0 || !strings.Contains(said, x.want) {
			t.Errorf("%v: exit code %d, %q", x.args, status, said)
		}
	}
}
