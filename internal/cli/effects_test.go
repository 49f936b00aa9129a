package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// An effect is what predictions of all rows, with the input set to its value, say of their mean.
func TestEffects(t *testing.T) {
	dir := finished(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	told := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := ulisse(t, "", append([]string{"effects", dir}, args...)...)
		if code != 0 {
			t.Fatalf("%v: code %d: %s", args, code, stderr)
		}
		return stdout
	}
	told("x2", "--grid", "3", "--out", at("e.csv"), "--plot", at("e.svg"), "--draws", "4", "--threads", "1")
	e := predictions(t, at("e.csv"))
	if len(e["x2"]) != 3 || e["x2"][0] >= e["x2"][1] {
		t.Fatalf("%v", e)
	}
	if text, err := os.ReadFile(at("e.svg")); err != nil || !strings.Contains(string(text), "Effect of x2 on y") {
		t.Errorf("no picture: %v", err)
	}
	spec, err := (&source{}).spec([]string{at("spec.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	d, err := spec.Load(t.Context(), nil, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range e["x2"] {
		var rows strings.Builder
		rows.WriteString("x1,x2\n")
		for row := range d.N() {
			fmt.Fprintf(&rows, "%.17g,%.17g\n", d.XScale[0].Undo(d.X.Row(row)[0]), value)
		}
		if code, _, stderr := ulisse(t, rows.String(), "predict", dir, "--data", "-", "--latent", "--draws", "4", "--out", at("p.csv"), "--covariance", at("c.csv")); code != 0 {
			t.Fatal(stderr)
		}
		p, c := predictions(t, at("p.csv")), predictions(t, at("c.csv"))
		var mean, variance float64
		n := float64(d.N())
		for k, m := range p["mean"] {
			mean += m / n
			for _, v := range c[fmt.Sprint(k+1)] {
				variance += v / (n * n)
			}
		}
		if math.Abs(e["mean"][i]-mean) > 1e-6 || math.Abs(e["sd"][i]/math.Sqrt(variance)-1) > 2e-4 || !(e["q2.5"][i] < mean && mean < e["q97.5"][i]) {
			t.Errorf("at %g the effect is %g with sd %g, by brute force %g and %g", value, e["mean"][i], e["sd"][i], mean, math.Sqrt(variance))
		}
	}
	two := told("x1", "x2", "--grid", "4", "--rows", "20", "--draws", "2", "--plot", at("two.svg"), "-q")
	if strings.Count(two, "\n") != 17 || !strings.HasPrefix(two, "x1,x2,mean,sd,q2.5,q50,q97.5\n") {
		t.Errorf("%s", two)
	}
	if text, err := os.ReadFile(at("two.svg")); err != nil || strings.Count(string(text), "x2 = ") < 4 {
		t.Errorf("no picture of two inputs: %v", err)
	}
	for want, args := range map[string][]string{
		`there is no input "x7": there are x1, x2`:   {dir, "x7"},
		"--term trend: the covariance is one family": {dir, "x1", "--term", "trend"},
		"give two different inputs":                  {dir, "x1", "x1"},
		"--grid 1":                                   {dir, "x1", "--grid", "1"},
		"of 10000 points in all":                     {dir, "x1", "x2", "--grid", "101"},
		"--rows 0":                                   {dir, "x1", "--rows", "0"},
		"--draws -1":                                 {dir, "x1", "--draws", "-1"},
		"is not a probability":                       {dir, "x1", "--quantiles", "7"},
		"there are no results in":                    {t.TempDir(), "x1"},
		"takes FOLDER|JOB INPUT [INPUT]":             {dir},
	} {
		if code, _, stderr := ulisse(t, "", append([]string{"effects"}, args...)...); code != ExitBadInput || !strings.Contains(stderr, want) {
			t.Errorf("effects %v: code %d, %q; want %q", args[1:], code, stderr, want)
		}
	}
}
