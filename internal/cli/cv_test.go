package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/report"
)

const foldsSpec = `
name: stations
data: {path: stations.csv, target: y, exclude: [station, day]}
model: {kernel: rbf}
sampler: {method: fisher, chains: 2, warmup: 15, draws: 20, checkpoint: 5}
solver: {cache: off}
stop: {rhat: 9, ess: 1, max_draws: 20}
seed: 3
`

// stations writes a table of n rows with columns of text, and a specification that excludes them.
func stations(t testing.TB, n int) (spec string, x [][2]float64, y []float64, station, day []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	text := "a,station,b,day,y\n"
	for i := range n {
		x = append(x, [2]float64{r.NormFloat64(), 3 + 2*r.NormFloat64()})
		y = append(y, 100+10*math.Sin(2*x[i][0])+3*x[i][1]+2*r.NormFloat64())
		station = append(station, []string{"Rome", "São Paulo", "Bern, CH", "Oslo", "Lima"}[r.IntN(5)])
		day = append(day, fmt.Sprintf("2024-%02d-%02d", 1+7*i%n%12, 1+i%3))
		text += fmt.Sprintf("%v,%q,%v,%s,%v\n", x[i][0], station[i], x[i][1], day[i], y[i])
	}
	write(t, dir, "stations.csv", text)
	return write(t, dir, "s.yaml", foldsSpec), x, y, station, day
}

// leftOut reads rows.csv of a cross-validation: by column, of the rows' numbers.
func leftOut(t testing.TB, dir string) map[string]map[int]float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	recs, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || recs[0][0] != "row" {
		t.Fatal(recs, err)
	}
	out := map[string]map[int]float64{}
	for _, name := range recs[0] {
		out[name] = map[int]float64{}
	}
	for _, rec := range recs[1:] {
		number := must(strconv.Atoi(rec[0]))
		for k, name := range recs[0] {
			if name == "converged" {
				continue
			}
			if _, twice := out[name][number]; twice {
				t.Errorf("row %d is there twice", number)
			}
			out[name][number] = must(strconv.ParseFloat(rec[k], 64))
		}
	}
	return out
}

// dense is the log density of the target of a point, and the mean predicted, under the mixture over draws
// (σ, τ, λ) of a fit to given rows, by textbook formulas from Cholesky factors.
func dense(t testing.TB, draws [][3]float64, x [][2]float64, y []float64, at [2]float64, target float64) (logp, mean float64) {
	t.Helper()
	n := len(y)
	scale := func(v []float64) (m, sd float64) {
		m = stat.Mean(v, nil)
		return m, math.Sqrt(stat.MomentAbout(2, v, m, nil))
	}
	var a, b []float64
	for _, row := range x {
		a, b = append(a, row[0]), append(b, row[1])
	}
	_, sa := scale(a) // distances do not depend on means
	_, sb := scale(b)
	my, sy := scale(y)
	k := func(p [3]float64, u, v [2]float64) float64 {
		da, db := (u[0]-v[0])/sa, (u[1]-v[1])/sb
		return p[0] * math.Exp(-p[1]*(da*da+db*db))
	}
	var terms []float64
	for _, p := range draws {
		cov, cross, z := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
		for i := range n {
			for j := i; j < n; j++ {
				cov.SetSym(i, j, k(p, x[i], x[j]))
			}
			cov.SetSym(i, i, p[0]+p[2])
			cross.SetVec(i, k(p, x[i], at))
			z.SetVec(i, (y[i]-my)/sy)
		}
		var chol mat.Cholesky
		var alpha, beta mat.VecDense
		if !chol.Factorize(cov) || chol.SolveVecTo(&alpha, z) != nil || chol.SolveVecTo(&beta, cross) != nil {
			t.Fatal("K is singular")
		}
		m, v := my+sy*mat.Dot(cross, &alpha), sy*sy*(p[0]+p[2]-mat.Dot(cross, &beta))
		terms = append(terms, -0.5*(target-m)*(target-m)/v-0.5*math.Log(2*math.Pi*v))
		mean += m / float64(len(draws))
	}
	return floats.LogSumExp(terms) - math.Log(float64(len(terms))), mean
}

// What is told of each row is the density of its target under fits to the other folds, by dense algebra
// from the same draws; the folds are a partition; and the sums and scores are those of the rows.
func TestCrossValidationAgainstDense(t *testing.T) {
	const n = 40
	spec, x, y, _, _ := stations(t, n)
	dir := filepath.Join(t.TempDir(), "cv")
	v := asJSON[cvView](t, "cv", spec, "--folds", "4", "--draws", "40", "--tolerance", "1e-10", "--out", dir, "-q")
	got := leftOut(t, dir)
	if len(got["fold"]) != n {
		t.Fatalf("%d rows", len(got["fold"]))
	}
	var elpd, crps, square []float64
	for fold := 1; fold <= 4; fold++ {
		rec, err := report.ReadFolder(filepath.Join(dir, fmt.Sprintf("fold-%d", fold)))
		if err != nil || !slices.Equal(rec.Data.InputNames, []string{"a", "b"}) {
			t.Fatal(err, rec)
		}
		var draws [][3]float64
		for _, c := range rec.Run.Chains {
			for _, psi := range c.Draws {
				draws = append(draws, [3]float64{math.Exp(psi[0]), math.Exp(psi[1]), math.Exp(psi[2])})
			}
		}
		var inX [][2]float64
		var inY []float64
		for i := range n {
			if got["fold"][i+1] != float64(fold) {
				inX, inY = append(inX, x[i]), append(inY, y[i])
			}
		}
		if len(draws) != 40 || len(inY) != 30 || rec.Data.Rows != 30 {
			t.Fatalf("%d draws, %d rows", len(draws), len(inY))
		}
		for i := range n {
			if got["fold"][i+1] != float64(fold) {
				continue
			}
			logp, mean := dense(t, draws, inX, inY, x[i], y[i])
			if d := got["log_density"][i+1]; math.Abs(d-logp) > 1e-8 {
				t.Errorf("row %d: log density %.12g, by dense algebra %.12g", i+1, d, logp)
			}
			if m := got["mean"][i+1]; math.Abs(m-mean) > 1e-7 || got["target"][i+1] != y[i] {
				t.Errorf("row %d: mean %.12g of %g, by dense algebra %.12g", i+1, m, got["target"][i+1], mean)
			}
			elpd, crps, square = append(elpd, logp), append(crps, got["crps"][i+1]), append(square, (mean-y[i])*(mean-y[i]))
		}
	}
	se := math.Sqrt(n * stat.Variance(elpd, nil))
	if math.Abs(float64(v.ELPD)-floats.Sum(elpd)) > 1e-6 || math.Abs(float64(v.SE)-se) > 1e-6 || v.Units != n || v.Rows != n || v.Draws != 40 ||
		math.Abs(v.Scores.RMSE-math.Sqrt(stat.Mean(square, nil))) > 1e-6 || math.Abs(v.Scores.CRPS-stat.Mean(crps, nil)) > 1e-6 {
		t.Errorf("%+v; the rows: elpd %g ± %g", v, floats.Sum(elpd), se)
	}
	if len(v.Folds) != 4 || v.Folds[0].Learnt != 30 || !(v.Folds[3].RHat > 0.9) || len(v.Warnings) > 0 {
		t.Errorf("%+v", v)
	}
}

// Rows of a station are left out together, though the specification excludes that column, which holds text;
// stretches of days are contiguous; and folders are compared row by row.
func TestCrossValidationSchemes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	spec, _, _, station, day := stations(t, 30)
	dir := t.TempDir()
	run := func(name string, args ...string) (string, map[int]float64) {
		t.Helper()
		out := filepath.Join(dir, name)
		good(t, append([]string{"cv", "--out", out, "-q"}, args...)...)
		return out, leftOut(t, out)["fold"]
	}
	groups, fold := run("groups", spec, "--group", "station", "--folds", "3")
	if len(fold) != 30 {
		t.Errorf("%d rows", len(fold))
	}
	for i, a := range station {
		for j, b := range station {
			if a == b && fold[i+1] != fold[j+1] {
				t.Errorf("%s is in folds %g and %g", a, fold[i+1], fold[j+1])
			}
		}
	}
	_, fold = run("forecasts", spec, "--time", "day", "--forecast", "--folds", "2")
	if len(fold) < 15 || len(fold) > 25 { // two of three stretches
		t.Errorf("%d rows were forecast", len(fold))
	}
	for i, a := range day {
		for j, b := range day {
			if a <= b && fold[i+1] > fold[j+1] { // those of the first stretch are in no fold: 0
				t.Errorf("%s is in fold %g, %s in %g", a, fold[i+1], b, fold[j+1])
			}
		}
	}
	edit(t, spec, "kernel: rbf", "kernel: matern12")
	rough, _ := run("rough", spec, "--group", "station", "--folds", "3")
	both := asJSON[[]cvRank](t, "compare", rough, groups)
	a, b := leftOut(t, both[0].Model)["log_density"], leftOut(t, both[1].Model)["log_density"]
	var diff float64
	units, mean := map[string]float64{}, (floats.Sum(values(b))-floats.Sum(values(a)))/30
	for i, s := range station {
		diff += b[i+1] - a[i+1]
		units[s] += b[i+1] - a[i+1] - mean
	}
	var square float64
	for _, off := range units {
		square += off * off
	}
	if got := both[1]; math.Abs(float64(got.Diff)-diff) > 1e-9 || math.Abs(float64(got.SEDiff)-math.Sqrt(5./4*square)) > 1e-9 || got.Units != 5 || diff > 0 {
		t.Errorf("difference %g ± %g, of the rows %g ± %g", float64(got.Diff), float64(got.SEDiff), diff, math.Sqrt(5./4*square))
	}
	if out := good(t, "compare", rough, groups); !strings.Contains(out, "ELPD_KFOLD") || !strings.Contains(out, groups+" and ") && !strings.Contains(out, groups+" ") {
		t.Error(out)
	}
	blocks, _ := run("blocks", spec, "--time", "day", "--folds", "3")
	for text, args := range map[string][]string{
		"were not cut into the same folds":                  {"compare", groups, blocks},
		"is a cross-validation by folds and":                {"compare", groups, filepath.Join(groups, "fold-1")},
		"--rows, --draws and --train are for leave-one-out": {"compare", groups, rough, "--rows", "9"},
		groups + " is the folder of a cross-validation":     {"loo", groups},
		blocks + " is the folder of a cross-validation":     {"predict", blocks, "--holdout"},
	} {
		if code, _, stderr := ulisse(t, "", args...); code != ExitBadInput || !strings.Contains(stderr, text) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
}

func values(m map[int]float64) (x []float64) {
	for _, v := range m {
		x = append(x, v)
	}
	return x
}

// Killed in the middle of a fold, and gone on with, it comes to the same bytes. A fold that has not
// converged is marked; once it has been extended, it alone is predicted anew.
func TestCrossValidationGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	spec, _, _, _, _ := stations(t, 36)
	edit(t, spec, "rhat: 9, ess: 1", "rhat: 1.2, ess: 60")
	dir := t.TempDir()
	calm, cut := filepath.Join(dir, "calm"), filepath.Join(dir, "cut")
	code, out, stderr := ulisse(t, "", "cv", spec, "--folds", "3", "--out", calm)
	if code != ExitUnconverged || !strings.Contains(stderr, "not converge: what is told") || !strings.Contains(stderr, "fold 3 of 3: elpd") || !strings.Contains(out, "* not converged") {
		t.Fatalf("code %d: %s%s", code, out, stderr)
	}
	for tries := 1; killed(t, syscall.SIGKILL, filepath.Join(cut, "fold-2", "log.jsonl"), 20, "cv", spec, "--folds", "3", "--out", cut, "-q") != -1; tries++ {
		if os.RemoveAll(cut); tries == 5 { // a machine so busy that it came to its end before it was killed
			t.Fatal("it always ends before it is killed")
		}
	}
	if code, _, stderr := ulisse(t, "", "compare", calm, cut); code != ExitBadInput || !strings.Contains(stderr, "has not ended: fold") {
		t.Errorf("code %d: %s", code, stderr)
	}
	os.Remove(filepath.Join(filepath.Dir(spec), "stations.csv")) // which is not needed any more
	if code, _, stderr := ulisse(t, "", "cv", "--resume", cut, "-q"); code != ExitUnconverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	files := []string{"cv.json", "table.csv", "rows.csv", "summary.json", "calibration.svg", "fold-1/left-out.json", "fold-2/left-out.json", "fold-3/left-out.json"}
	same := func(a, b string) (differ []string) {
		for _, name := range files {
			if !bytes.Equal(must(os.ReadFile(filepath.Join(a, name))), must(os.ReadFile(filepath.Join(b, name)))) {
				differ = append(differ, name)
			}
		}
		return differ
	}
	if d := same(calm, cut); len(d) > 0 {
		t.Errorf("%v differ", d)
	}
	v := parse[cvView](t, string(must(os.ReadFile(filepath.Join(cut, "summary.json")))))
	bad := v.unconverged()
	if len(bad) == 0 || v.Folds[bad[0]-1].Converged {
		t.Fatalf("%+v", v)
	}
	good(t, "extend", filepath.Join(cut, fmt.Sprintf("fold-%d", bad[0])), "--draws", "200", "-q")
	if code, _, stderr := ulisse(t, "", "cv", "--resume", cut, "-q"); code != 0 && code != ExitUnconverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if d := same(calm, cut); !slices.Equal(d, []string{"rows.csv", "summary.json", "calibration.svg", fmt.Sprintf("fold-%d/left-out.json", bad[0])}) {
		t.Errorf("%v differ", d)
	}
	if v := parse[cvView](t, string(must(os.ReadFile(filepath.Join(cut, "summary.json"))))); slices.Contains(v.unconverged(), bad[0]) {
		t.Errorf("fold %d has not converged yet", bad[0])
	}
}

// What is wrong is told at once, in a sentence, and leaves nothing behind.
func TestCrossValidationRefuses(t *testing.T) {
	spec, _, _, _, _ := stations(t, 20)
	dir := t.TempDir()
	synthetic := write(t, dir, "synthetic.yaml", smallSpec)
	inputs := write(t, filepath.Dir(spec), "inputs.yaml", strings.Replace(foldsSpec, "exclude: [station, day]", "inputs: [a]", 1))
	open := write(t, filepath.Dir(spec), "open.yaml", strings.Replace(foldsSpec, ", exclude: [station, day]", "", 1))
	table := string(must(os.ReadFile(filepath.Join(filepath.Dir(spec), "stations.csv"))))
	blank := write(t, dir, "blank.csv", strings.Replace(table, `"Oslo"`, "", 1))
	out := filepath.Join(dir, "out")
	for text, args := range map[string][]string{
		"21 folds of 20 rows":                             {spec, "--folds", "21"},
		"--folds 1: give a number of folds":               {spec, "--folds", "1"},
		`column "station": 6 folds of`:                    {spec, "--group", "station", "--folds", "6"},
		`there is no column "statoin"`:                    {spec, "--group", "statoin"},
		`column "station" (field 2): the value is missin`: {spec, "--group", "station", "--data", blank},
		`column "station": "`:                             {inputs, "--time", "station"},
		"do not hold numbers":                             {open, "--group", "day"},
		"--group and --time: give one":                    {spec, "--group", "station", "--time", "day"},
		"--forecast: say by --time":                       {spec, "--forecast"},
		"the specification generates its data":            {synthetic, "--group", "station"},
		"--draws -1":                                      {spec, "--draws", "-1"},
		"a tolerance of 2":                                {spec, "--tolerance", "2"},
		"give a specification, or --demo":                 {},
		"the folds are run on this machine":               {spec, "--coordinators", "127.0.0.1:1"},
		"there is no cross-validation in " + dir:          {"--resume", dir},
		"--folds cannot be given with it":                 {"--resume", dir, "--folds", "3"},
		"a specification cannot be given with it":         {"--resume", dir, spec},
		"is not empty: choose another":                    {spec, "--out", dir},
	} {
		args = append([]string{"cv", "-q"}, args...)
		if !slices.Contains(args, "--resume") && !slices.Contains(args, "--out") {
			args = append(args, "--out", out)
		}
		code, _, stderr := ulisse(t, "", args...)
		if code != ExitBadInput || !strings.Contains(stderr, text) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
		if _, err := os.Stat(filepath.Join(out, "fold-1")); err == nil {
			t.Errorf("%v: a fold was begun", args)
		}
		os.RemoveAll(out)
	}
	// A column that cuts rows is an input if the specification says so, and else not.
	for column, input := range map[string]bool{"b": true, "station": false} {
		var errs bytes.Buffer
		v, err := (&App{Stderr: &errs}).planCV(&cvFlags{group: column}, []string{spec})
		if err != nil || !slices.Equal(v.Data.Inputs, []string{"a", "b"}) || strings.Contains(errs.String(), "is an input of the specification too") != input {
			t.Errorf("%s: %v, %s", column, err, errs.String())
		}
	}
}

// Folds that came to nothing in their time do not keep the others from theirs, and are named.
func TestCrossValidationWithoutTime(t *testing.T) {
	spec, _, _, _, _ := stations(t, 20)
	var errs bytes.Buffer
	a := &App{Stdout: &errs, Stderr: &errs, Now: time.Now}
	x, err := a.openCV(&cvFlags{folds: 4, out: filepath.Join(t.TempDir(), "cv"), tol: 1e-4}, []string{spec})
	if err != nil {
		t.Fatal(err)
	}
	defer x.folder.close()
	asked := 0
	err = x.run(t.Context(), func(_ context.Context, k int) (*report.Record, oracle, error) {
		asked++
		return nil, nil, &exit{ExitUnconverged, errors.New("too late")}
	})
	if code(err) != ExitUnconverged || asked != 4 || !strings.Contains(err.Error(), "the run of folds 1, 2, 3 and 4 before it") || !strings.Contains(err.Error(), "fold-1 --max-time T") {
		t.Errorf("%d folds were asked for: %v", asked, err)
	}
}

// The jobs of a cluster come to the same bytes as runs on this machine; begun again it finds its jobs,
// and what they came to since.
func TestCrossValidationOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	c := newLiveCluster(t, "w1", "w2")
	spec, _, _, _, _ := stations(t, 30)
	edit(t, spec, "ess: 1", "ess: 1000000")
	dir := t.TempDir()
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	run := func(args ...string) {
		t.Helper()
		if code, _, stderr := ulisse(t, "", append([]string{"cv", "-q"}, args...)...); code != ExitUnconverged || !strings.Contains(stderr, "continues a fold; then") {
			t.Fatalf("%v: code %d: %s", args, code, stderr)
		}
	}
	run(spec, "--folds", "3", "--out", here)
	run(spec, "--folds", "3", "--out", there, "--submit", "--coordinators", c.address)
	same := func(name string) bool {
		return bytes.Equal(must(os.ReadFile(filepath.Join(here, name))), must(os.ReadFile(filepath.Join(there, name))))
	}
	for _, name := range []string{"rows.csv", "summary.json", "fold-1/left-out.json", "fold-2/left-out.json", "fold-3/left-out.json"} {
		if !same(name) {
			t.Errorf("%s differs", name)
		}
	}
	os.RemoveAll(filepath.Join(there, "fold-1"))
	good(t, "extend", "stations-fold-2", "--draws", "10", "--coordinators", c.address)
	run("--resume", there, "--coordinators", c.address)
	if !same("fold-1/left-out.json") || same("fold-2/left-out.json") || !same("fold-3/left-out.json") {
		t.Error("fold 2 alone was to be predicted anew")
	}
	if out := good(t, "jobs", "--coordinators", c.address); strings.Count(out, "stations-fold-") != 3 {
		t.Error(out)
	}
	if code, _, stderr := ulisse(t, "", "cv", "--resume", there, "--threads", "2", "--coordinators", c.address); code != ExitBadInput || !strings.Contains(stderr, "workers compute") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
