package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// Two runs of the same rows, one with the covariance that the data were generated with, and one
// whose length-scale is far too short: the first predicts better, and everything adds up.
func TestLooAndCompare(t *testing.T) {
	dir := t.TempDir()
	spec := func(name, model string) string {
		return write(t, dir, name+".yaml", strings.Replace(strings.Replace(smallSpec, "name: small", "name: "+name, 1), "sampler:", "model: "+model+"\nsampler:", 1))
	}
	run := func(name, model string, more ...string) string {
		out := filepath.Join(dir, name)
		if code, _, stderr := ulisse(t, "", append([]string{"run", spec(name, model), "--out", out, "--quiet"}, more...)...); code != ExitConverged && code != ExitUnconverged {
			t.Fatalf("code %d: %s", code, stderr)
		}
		return out
	}
	good := run("good", "{kernel: rbf}")
	rough := run("rough", `{kernel: rbf, priors: {tau: "lognormal(4,0.1)"}}`)

	file, svg := filepath.Join(dir, "loo.csv"), filepath.Join(dir, "pit.svg")
	code, stdout, stderr := ulisse(t, "", "loo", good, "--out", file, "--plot", svg, "--json")
	if code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var v looView
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatal(err)
	}
	p := predictions(t, file)
	if elpd := floats.Sum(p["elpd_loo"]); v.Rows != 120 || v.Of != 120 || math.Abs(elpd-float64(v.ELPD)) > 1e-9 || v.Sampling != 0 ||
		math.Abs(floats.Sum(p["p_loo"])-float64(v.P)) > 1e-9 || v.Good+v.Bad+v.VeryBad+v.Unknown != 120 {
		t.Errorf("%+v; the rows come to %g", v, elpd)
	}
	for i, sd := range p["sd"] { // generated with noise of variance 0.1
		if sd < 0.2 || p["pit"][i] < 0 || p["pit"][i] > 1 || p["row"][i] != float64(i+1) {
			t.Errorf("row %g: sd %g, pit %g", p["row"][i], sd, p["pit"][i])
		}
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), "PIT") {
		t.Errorf("no picture: %v", err)
	}
	if code, stdout, stderr = ulisse(t, "", "loo", good, "--rows", "40"); code != 0 || !strings.Contains(stdout, "40 rows, a sample of 120") || !strings.Contains(stdout, "subsampling SE") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}

	code, stdout, stderr = ulisse(t, "", "compare", rough, good, "--json")
	var c []compareView
	if err := json.Unmarshal([]byte(stdout), &c); code != 0 || err != nil {
		t.Fatal(code, stderr, err)
	}
	if len(c) != 2 || c[0].Model != good || c[0].Diff != 0 || c[0].ELPD != v.ELPD || c[1].Diff > -4 || float64(-c[1].Diff) < 2*float64(c[1].SEDiff) ||
		math.Abs(float64(c[1].ELPD-c[0].ELPD-c[1].Diff)) > 1e-9 || c[0].Weight < 0.9 {
		t.Errorf("%+v", c)
	}
	if code, stdout, stderr = ulisse(t, "", "compare", rough, good, "--rows", "50", "--draws", "30"); code != 0 || !strings.Contains(stdout, good+" predicts better than "+rough) {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}

	other := run("other", "{kernel: rbf}", "--holdout", "0.1")
	for text, args := range map[string][]string{
		"--rows 1":                          {"loo", good, "--rows", "1"},
		"have learnt from 120 and 108 rows": {"compare", good, other},
		"there is no folder":                {"loo", filepath.Join(dir, "nothing")},
		"generates its data":                {"loo", good, "--train", file},
	} {
		if code, _, stderr := ulisse(t, "", args...); code != ExitBadInput || !strings.Contains(stderr, text) {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
	if code, _, _ := ulisse(t, "", "compare", good); code != ExitBadInput {
		t.Errorf("one model was compared: code %d", code)
	}
}
