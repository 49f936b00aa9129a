package cli

import (
	"bytes"
	"encoding/binary"
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

// Sample paths and the joint covariance of the same rows, in whatever order and form: the covariance has the table's
// variances on its diagonal, and near rows go together.
func TestPredictJointly(t *testing.T) {
	dir := finished(t)
	const rows = 6
	var forward, backward strings.Builder
	forward.WriteString("x1,x2\n")
	backward.WriteString("x1,x2\n")
	for i := range rows {
		k := rows - 1 - i
		fmt.Fprintf(&forward, "%g,0.1\n", 0.05*float64(i))
		fmt.Fprintf(&backward, "%g,0.1\n", 0.05*float64(k))
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	predicted := func(stdin string, args ...string) {
		t.Helper()
		if code, _, stderr := ulisse(t, stdin, append([]string{"predict", dir, "--data", "-", "--draws", "5"}, args...)...); code != 0 {
			t.Fatalf("%v: code %d: %s", args, code, stderr)
		}
	}
	predicted(forward.String(), "--paths", "8", "--seed", "3", "--out", at("paths.csv"), "--threads", "1")
	predicted(backward.String(), "--paths", "3", "--seed", "3", "--out", at("again.csv"), "--threads", "2")
	predicted(forward.String(), "--paths", "8", "--seed", "3", "--noise", "--out", at("noisy.npy"))
	paths, again := predictions(t, at("paths.csv")), predictions(t, at("again.csv"))
	if len(paths) != 9 || len(again) != 4 {
		t.Errorf("%d and %d columns, want the row and 8 or 3 paths", len(paths), len(again))
	}
	for k := range 3 {
		name := fmt.Sprintf("path_%d", k+1)
		for i := range rows {
			if paths[name][i] != again[name][rows-1-i] {
				t.Errorf("%s at row %d is %v and, in another order, %v", name, i+1, paths[name][i], again[name][rows-1-i])
			}
		}
	}
	noisy := array(t, at("noisy.npy"), 8*rows)
	for i := 1; i < rows; i++ { // generated with a length-scale of 1, and noise with an sd of 0.32
		if step := math.Abs(paths["path_1"][i] - paths["path_1"][i-1]); step > 0.3 || noisy[i] == paths["path_1"][i] {
			t.Errorf("path 1 goes by %g from one row to the next, with noise to %g", step, noisy[i])
		}
	}

	predicted(forward.String(), "--covariance", at("cov.csv"), "--out", at("table.csv"))
	predicted(forward.String(), "--covariance", at("latent.npy"), "--paths", "2", "--out", at("few.csv"))
	cov, table, latent := predictions(t, at("cov.csv")), predictions(t, at("table.csv")), array(t, at("latent.npy"), rows*rows)
	for i := range rows {
		if v := cov[fmt.Sprint(i+1)][i]; math.Abs(v-table["sd"][i]*table["sd"][i]) > 1e-12 || !(latent[i*rows+i] < v) {
			t.Errorf("row %d: variance %g, of the latent function %g, the table's sd %g", i+1, v, latent[i*rows+i], table["sd"][i])
		}
		for j := range i {
			if c := cov[fmt.Sprint(i+1)][j]; c != latent[i*rows+j] || c != latent[j*rows+i] || c < 0.8*latent[i*rows+i] {
				t.Errorf("rows %d and %d have the covariance %g, of the latent function %g", i+1, j+1, c, latent[i*rows+j])
			}
		}
	}
}

// The gradient is the difference quotient of the means, in the units of the table.
func TestPredictGradient(t *testing.T) {
	dir := t.TempDir()
	var data, rows strings.Builder
	data.WriteString("metres,hours,price\n")
	for i := range 40 {
		a, b := float64(i%8)*100, float64(i/8)/10
		fmt.Fprintf(&data, "%g,%g,%g\n", a, b, 5000+3*a+900*math.Sin(4*b)+20*math.Sin(float64(7*i)))
	}
	write(t, dir, "table.csv", data.String())
	spec := write(t, dir, "s.yaml", `
name: slopes
data: {path: table.csv, target: price}
model: {kernel: matern52, ard: true}
sampler: {method: cholesky, chains: 2, warmup: 30, draws: 20}
stop: {rhat: 100, ess: 1}
`)
	out := filepath.Join(dir, "out")
	if code, _, stderr := ulisse(t, "", "run", spec, "--out", out, "--quiet"); code != ExitConverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	at, step := [][]float64{{150, 0.13}, {420, 0.31}}, []float64{1, 1e-3}
	rows.WriteString("hours,metres\n")
	for _, x := range at {
		fmt.Fprintf(&rows, "%.17g,%.17g\n", x[1], x[0])
		for k, h := range step {
			for _, sign := range []float64{1, -1} {
				y := []float64{x[0], x[1]}
				y[k] += sign * h
				fmt.Fprintf(&rows, "%.17g,%.17g\n", y[1], y[0])
			}
		}
	}
	file, cov := filepath.Join(dir, "p.csv"), filepath.Join(dir, "cov.csv")
	if code, _, stderr := ulisse(t, rows.String(), "predict", out, "--data", "-", "--gradient", "--draws", "4", "--out", file, "--covariance", cov, "--latent"); code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	p, c := predictions(t, file), predictions(t, cov)
	for i := range at {
		for k, name := range []string{"metres", "hours"} {
			first, up, down := 5*i, 5*i+1+2*k, 5*i+2+2*k
			want := (p["mean"][up] - p["mean"][down]) / (2 * step[k])
			if got := p["gradient["+name+"]"][first]; math.Abs(got-want) > 1e-3*math.Abs(want) {
				t.Errorf("row %d: the gradient along %s is %g, by differences %g", i+1, name, got, want)
			}
			column := func(row int) []float64 { return c[fmt.Sprint(row+1)] }
			square := (column(up)[up] - 2*column(up)[down] + column(down)[down]) / (4 * step[k] * step[k])
			if got := p["gradient_sd["+name+"]"][first]; math.Abs(got-math.Sqrt(square)) > 0.01*got {
				t.Errorf("row %d: the gradient along %s is known to %g, by differences to %g", i+1, name, got, math.Sqrt(square))
			}
		}
	}
	rough := write(t, dir, "rough.yaml", `
name: rough
data: {path: table.csv, target: price}
model: {kernel: matern12}
sampler: {method: cholesky, chains: 1, warmup: 10, draws: 5}
stop: {max_draws: 5}
`)
	if code, _, stderr := ulisse(t, "", "run", rough, "--out", filepath.Join(dir, "rough"), "--quiet"); code != ExitConverged && code != ExitUnconverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if code, _, stderr := ulisse(t, rows.String(), "predict", filepath.Join(dir, "rough"), "--data", "-", "--gradient"); code != ExitBadInput || !strings.Contains(stderr, "have no gradient") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// array reads a one of n numbers as NumPy keeps it.
func array(t *testing.T, path string, n int) []float64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || len(text) < 8*n || !strings.HasPrefix(string(text), "\x93NUMPY") || !strings.Contains(string(text[:len(text)-8*n]), "'<f8'") {
		t.Fatalf("%s holds %d bytes (%v)", path, len(text), err)
	}
	out := make([]float64, n)
	if err := binary.Read(bytes.NewReader(text[len(text)-8*n:]), binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPredictBadInput(t *testing.T) {
	dir := finished(t)
	table := write(t, t.TempDir(), "t.csv", "x1,x2\n1,2\n")
	other := write(t, t.TempDir(), "o.csv", "a,b\n1,2\n")
	var many strings.Builder
	many.WriteString("x1,x2\n")
	for i := range predict.MaxJointRows + 1 {
		fmt.Fprintf(&many, "%d,0\n", i)
	}
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
		"--paths 0":                                    {dir, "--data", table, "--paths", "0"},
		"there are paths in place of predictions":      {dir, "--data", table, "--paths", "3", "--quantiles", "0.5"},
		"it is of sample paths":                        {dir, "--data", table, "--seed", "3"},
		"joint covariances are exact":                  {dir, "--data", table, "--paths", "3", "--variance", "surface"},
		"something else goes to standard output":       {dir, "--data", table, "--covariance", "-"},
		"ask for 4096 different rows at most":          {dir, "--data", write(t, t.TempDir(), "m.csv", many.String()), "--paths", "3"},
		"ask for --gradient without it":                {dir, "--data", table, "--paths", "3", "--gradient"},
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
