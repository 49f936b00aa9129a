package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// predictions reads a table of predictions by column.
func predictions(t testing.TB, path string) map[string][]float64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recs, err := csv.NewReader(f).ReadAll()
	if err != nil || len(recs) < 2 {
		t.Fatal(recs, err)
	}
	out := map[string][]float64{}
	for _, rec := range recs[1:] {
		for k, text := range rec {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			out[recs[0][k]] = append(out[recs[0][k]], x)
		}
	}
	return out
}

// finished runs the small specification to its end.
func finished(t testing.TB, more ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	spec := write(t, t.TempDir(), "s.yaml", smallSpec)
	if code, _, stderr := ulisse(t, "", append([]string{"run", spec, "--out", dir, "--quiet"}, more...)...); code != ExitConverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	return dir
}

func TestPredictHeldOutRows(t *testing.T) {
	dir := finished(t, "--holdout", "0.25")
	file, svg := filepath.Join(dir, "p.csv"), filepath.Join(dir, "cal.svg")
	code, stdout, stderr := ulisse(t, "", "predict", dir, "--holdout", "--out", file, "--plot", svg, "--json")
	if code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var v predictView
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatal(err)
	}
	if v.Rows != 30 || v.Draws < 10 || v.Scores == nil || v.Scores.Rows != 30 || len(v.Warnings) > 0 || v.Bound > 1.01*predict.DefaultTolerance {
		t.Errorf("%+v", v)
	}
	p := predictions(t, file)
	// Generated with λ = 0.1: the noise alone has an sd of 0.32.
	var square float64
	for i, y := range p["target"] {
		square += (y - p["mean"][i]) * (y - p["mean"][i]) / 30
		if p["sd"][i] < 0.25 || !(p["q2.5"][i] < p["q50"][i] && p["q50"][i] < p["q97.5"][i]) {
			t.Errorf("row %g: sd %g, quantiles %g, %g, %g", p["row"][i], p["sd"][i], p["q2.5"][i], p["q50"][i], p["q97.5"][i])
		}
	}
	if math.Abs(math.Sqrt(square)-v.Scores.RMSE) > 1e-9 || v.Scores.RMSE > 0.6 {
		t.Errorf("RMSE %g, of the table %g", v.Scores.RMSE, math.Sqrt(square))
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), "central interval") {
		t.Errorf("no calibration plot: %v", err)
	}
	// The surface, which is checked, is close; and less is solved for.
	code, stdout, stderr = ulisse(t, "", "predict", dir, "--holdout", "--out", filepath.Join(dir, "s.csv"), "--variance", "surface", "--json", "--draws", "20")
	var s predictView
	if err := json.Unmarshal([]byte(stdout), &s); code != 0 || err != nil {
		t.Fatal(code, stderr, err)
	}
	if s.SurfaceError == 0 || s.Solves != 8*30 {
		t.Errorf("%+v", s)
	}
}

// The same predictions for the same rows from a table, in whatever order, with
// any number of threads; and without targets.
func TestPredictTable(t *testing.T) {
	dir := finished(t)
	var forward, backward strings.Builder
	forward.WriteString("x1,x2,y\n")
	backward.WriteString("extra,x2,x1\n")
	const rows = 7
	for i := range rows {
		fmt.Fprintf(&forward, "%g,%g,%g\n", 0.1*float64(i), -0.2*float64(i), 0.5)
		k := rows - 1 - i
		fmt.Fprintf(&backward, "text,%g,%g\n", -0.2*float64(k), 0.1*float64(k))
	}
	a, b := filepath.Join(dir, "a.csv"), filepath.Join(dir, "b.csv")
	code, stdout, stderr := ulisse(t, forward.String(), "predict", dir, "--data", "-", "--out", a, "--scores", "--draws", "5", "--threads", "1")
	if code != 0 || !strings.Contains(stdout, "RMSE") || !strings.Contains(stderr, "7 rows predicted from 5 draws") {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr = ulisse(t, backward.String(), "predict", dir, "--data", "-", "--out", b, "--draws", "5", "--threads", "3"); code != 0 {
		t.Fatal(stderr)
	}
	p, q := predictions(t, a), predictions(t, b)
	if q["target"] != nil || len(p["target"]) != rows {
		t.Error("targets out of nowhere, or lost")
	}
	for i := range rows {
		for _, column := range []string{"mean", "sd", "q97.5"} {
			if p[column][i] != q[column][rows-1-i] {
				t.Errorf("%s of row %d is %v and, in another order, %v", column, i+1, p[column][i], q[column][rows-1-i])
			}
		}
	}
	if code, stdout, _ = ulisse(t, forward.String(), "predict", dir, "--data", "-", "--draws", "5", "--latent", "--quantiles", "0.1", "-q"); code != 0 {
		t.Fatal(code)
	}
	l := predictions(t, write(t, dir, "l.csv", stdout))
	for i, sd := range l["sd"] {
		if !(sd < p["sd"][i]) || l["mean"][i] != p["mean"][i] || l["q10"] == nil {
			t.Errorf("row %d: the latent function has mean %g, sd %g; the target %g, %g", i+1, l["mean"][i], sd, p["mean"][i], p["sd"][i])
		}
	}
}

func TestPredictBadInput(t *testing.T) {
	dir := finished(t)
	table := write(t, t.TempDir(), "t.csv", "x1,x2\n1,2\n")
	other := write(t, t.TempDir(), "o.csv", "a,b\n1,2\n")
	for want, args := range map[string][]string{
		"holds no rows out": {dir, "--holdout"},
		"say which rows":    {dir},
		`there is no column "x1", which inputs: names`: {dir, "--data", other},
		"cannot read the data":                         {dir, "--data", dir + "/none.csv"},
		"need to know the targets":                     {dir, "--data", table, "--scores"},
		`"1.5" is not a probability`:                   {dir, "--data", table, "--quantiles", "1.5"},
		`unknown way to compute variances "guess"`:     {dir, "--data", table, "--variance", "guess"},
		"a tolerance of -1":                            {dir, "--data", table, "--tolerance", "0"},
		"--draws -3":                                   {dir, "--data", table, "--draws", "-3"},
		"give it a file with --out":                    {dir, "--data", table, "--json"},
		"give one of them":                             {dir, "--data", table, "--noise", "--latent"},
		"the specification generates its data":         {dir, "--data", table, "--train", table},
		"there are no results in":                      {t.TempDir(), "--data", table},
	} {
		code, _, stderr := ulisse(t, "", append([]string{"predict"}, args...)...)
		if code != ExitBadInput || !strings.Contains(stderr, want) {
			t.Errorf("predict %v: code %d, %q; want %q", args[1:], code, stderr, want)
		}
	}
	result := filepath.Join(dir, "result.json")
	text, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := report.ReadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(unsealed(text), rec.Data.SHA256, strings.Repeat("0", len(rec.Data.SHA256)))
	if err := os.WriteFile(result, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := ulisse(t, "", "predict", dir, "--data", table); code != ExitBadInput || !strings.Contains(stderr, "are not those that the run") {
		t.Errorf("other data: code %d: %s", code, stderr)
	}
}
