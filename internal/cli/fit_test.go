package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// fitTable writes a table of a number, a class and a count of trials, and returns its path.
func fitTable(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("x,w,y,class,hits,trials\n")
	for i := range 60 {
		x, w := math.Sin(float64(7*i)), math.Cos(float64(11*i))
		f := 2*math.Sin(3*x) + w
		class, hits := "no", 0
		if f+2*math.Sin(float64(i*i)) > 0 {
			class = "yes"
			hits = 1 + i%3
		}
		fmt.Fprintf(&b, "%g,%g,%g,%s,%d,%d\n", x, w, f+0.3*math.Sin(float64(13*i*i)), class, hits, 1+i%3)
	}
	return write(t, dir, "t.csv", b.String())
}

// estimate reads the fit.json of a folder.
func estimate(t *testing.T, dir string) *report.Fit {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "fit.json"))
	if err != nil {
		t.Fatal(err)
	}
	f := &report.Fit{}
	if err := json.Unmarshal(text, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// gaussianAt returns K of a problem at ψ and the covariances of its rows with points.
func gaussianAt(p *posterior.Problem, psi []float64, points [][]float64) (k *mat.SymDense, cross *mat.Dense, prior []float64) {
	n, f := len(p.Y), p.Function(psi)
	k, cross = mat.NewSymDense(n, nil), mat.NewDense(n, len(points), nil)
	for i := range n {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
		}
		for c, x := range points {
			cross.Set(i, c, f.Value(p.Inputs.Row(i), x))
		}
	}
	for _, x := range points {
		prior = append(prior, f.Variance(x))
	}
	return k, cross, prior
}

// conditional returns the means and variances of normal values at points given z = f + ε, ε ~ N(0, diag(noise)).
func conditional(k *mat.SymDense, cross *mat.Dense, prior, z, noise []float64) (mean, variance []float64) {
	n, m := cross.Dims()
	a := mat.NewSymDense(n, nil)
	a.CopySym(k)
	for i := range n {
		a.SetSym(i, i, a.At(i, i)+noise[i])
	}
	var chol mat.Cholesky
	chol.Factorize(a)
	var x mat.Dense
	_ = chol.SolveTo(&x, cross)
	for c := range m {
		col := x.ColView(c)
		mean = append(mean, mat.Dot(col, mat.NewVecDense(n, z)))
		variance = append(variance, prior[c]-mat.Dot(col, cross.ColView(c)))
	}
	return mean, variance
}

// Predictions of a fit are those of the closed form at its estimate: of the exact Gaussian process, and of Laplace's
// approximation, whose mode is found here by iterated weighted least squares.
func TestFitPredictsTheClosedForm(t *testing.T) {
	dir := t.TempDir()
	table := fitTable(t, dir)
	rows := write(t, dir, "rows.csv", "x,w\n0.1,0.2\n-0.5,0.9\n2,-2\n")
	for name, model := range map[string]string{"exact": "target: y}\nmodel: {ard: true}", "laplace": "target: class}\nmodel: {likelihood: bernoulli}"} {
		out := filepath.Join(dir, name)
		spec := write(t, dir, name+".yaml", fmt.Sprintf("name: %s\ndata: {path: %s, inputs: [x, w], %s\n", name, table, model))
		good(t, "fit", spec, "--out", out, "-q", "--restarts", "1")
		f := estimate(t, out)
		if f.Model != name || !f.Converged || len(f.Psi) != len(f.Names) {
			t.Errorf("%s: %+v", name, f)
		}
		file := filepath.Join(dir, name+".csv")
		good(t, "predict", out, "--data", rows, "--latent", "--out", file, "-q")
		got := predictions(t, file)

		s, err := (&source{}).spec([]string{spec})
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Load(t.Context(), nil, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Problem(d)
		if err != nil {
			t.Fatal(err)
		}
		standard := d.Standardize([][]float64{{0.1, 0.2}, {-0.5, 0.9}, {2, -2}})
		points := [][]float64{standard.Row(0), standard.Row(1), standard.Row(2)}
		k, cross, prior := gaussianAt(p, f.Psi, points)
		_, own := p.Natural(f.Psi)
		z, noise := slices.Clone(p.Y), make([]float64, len(p.Y))
		if name == "exact" {
			for i := range noise {
				noise[i] = own[0]
			}
		} else {
			at := make([]float64, len(z))
			self := make([]float64, len(z))
			for i := range z {
				self[i] = k.At(i, i)
			}
			for range 50 {
				for i, y := range p.Y {
					prob := 1 / (1 + math.Exp(-at[i]))
					noise[i] = 1 / (prob * (1 - prob))
					z[i] = at[i] + (y-prob)*noise[i]
				}
				at, _ = conditional(k, mat.DenseCopyOf(k), self, z, noise)
			}
		}
		mean, variance := conditional(k, cross, prior, z, noise)
		for i := range mean {
			wantMean, wantSD := d.YScale.Undo(mean[i]), d.YScale.SD*math.Sqrt(variance[i])
			if name == "laplace" { // of classes the latent function has no units
				wantMean, wantSD = mean[i], math.Sqrt(variance[i])
			}
			if math.Abs(got["mean"][i]-wantMean) > 1e-5*(1+math.Abs(wantMean)) || math.Abs(got["sd"][i]/wantSD-1) > 1e-3 {
				t.Errorf("%s: row %d is predicted as %v ± %v, by the closed form %v ± %v", name, i+1, got["mean"][i], got["sd"][i], wantMean, wantSD)
			}
		}
	}
}

// What is found is a function of specification, data and seed, with any number of threads; the exit code and the warnings
// say whether it is the optimum.
func TestFitIsAFunctionOfTheSeed(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	var all [][]float64
	for i, args := range [][]string{{"--threads", "1"}, {"--threads", "2"}, {"--method", "adagrad", "--iterations", "8", "--threads", "1"}, {"--method", "adagrad", "--iterations", "8", "--threads", "2"}} {
		out := filepath.Join(dir, fmt.Sprint(i))
		code, _, stderr := ulisse(t, "", append([]string{"fit", spec, "--out", out, "-q"}, args...)...)
		f := estimate(t, out)
		if want := map[bool]int{true: ExitConverged, false: ExitUnconverged}[f.Converged]; code != want || f.Converged != (len(f.Warnings) == 0) {
			t.Errorf("%v: code %d, %v: %s", args, code, f.Warnings, stderr)
		}
		all = append(all, f.Psi)
	}
	if !slices.Equal(all[0], all[1]) || !slices.Equal(all[2], all[3]) || slices.Equal(all[0], all[2]) {
		t.Errorf("%v", all)
	}
	code, stdout, _ := ulisse(t, "", "fit", spec, "--out", filepath.Join(dir, "few"), "-q", "--iterations", "2", "--json")
	var sum report.Summary
	if err := json.Unmarshal([]byte(stdout), &sum); err != nil || code != ExitUnconverged || sum.Fit == nil || sum.Converged || len(sum.Warnings) == 0 {
		t.Errorf("code %d, %v: %s", code, err, stdout)
	}
}

// Every command on the folder of a fit works, or says in one sentence that a fit has none of what it is about.
func TestFolderOfAFit(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	out := filepath.Join(dir, "out")
	if text := good(t, "fit", spec, "--out", out, "--holdout", "0.1"); !strings.Contains(text, "Std_error") || !strings.Contains(text, "results in "+out) {
		t.Error(text)
	}
	for text, args := range map[string][]string{
		"Std_error":               {"summary", out},
		"sigma,":                  {"summary", out, "--csv"},
		"mean,sd":                 {"predict", out, "--holdout"},
		"path_1,path_2":           {"predict", out, "--holdout", "--paths", "2"},
		"x1,mean":                 {"effects", out, "x1", "--grid", "3"},
		"elpd_loo":                {"loo", out},
		"Estimates with standard": {"report", out, "--check", "--effects", "--loo", "-o", "-"},
	} {
		if got := good(t, args...); !strings.Contains(got, text) {
			t.Errorf("%v: no %q in %.300s", args, text, got)
		}
	}
	for _, args := range [][]string{{"draws", out}, {"extend", out, "--draws", "5"}, {"run", "--resume", out}} {
		if code, _, stderr := ulisse(t, "", args...); code != ExitBadInput || !strings.Contains(stderr, "holds a fit, a point estimate without draws") {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
	for text, args := range map[string][]string{
		"is not empty":       {"fit", spec, "--out", out},
		`--method "x"`:       {"fit", spec, "--method", "x"},
		`--objective "x"`:    {"fit", spec, "--objective", "x"},
		`--model "x"`:        {"fit", spec, "--model", "x"},
		"--restarts 0":       {"fit", spec, "--restarts", "0"},
		"--iterations 0":     {"fit", spec, "--iterations", "0"},
		"--model laplace":    {"fit", spec, "--model", "laplace", "--out", filepath.Join(dir, "none")},
		"give a specificati": {"fit"},
	} {
		if code, _, stderr := ulisse(t, "", args...); code != ExitBadInput || !strings.Contains(stderr, text) {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
	robust := write(t, dir, "r.yaml", strings.Replace(smallSpec, "sampler: {method: fisher,", "model: {likelihood: student-t}\nsampler: {", 1))
	for _, method := range []string{quasiNewton, adagrad} {
		if code, _, stderr := ulisse(t, "", "fit", robust, "-q", "--method", method, "--out", filepath.Join(dir, "none")); code != ExitBadInput || !strings.Contains(stderr, "which student-t is not") {
			t.Errorf("%s: code %d: %s", method, code, stderr)
		}
	}
}

// Of counts noisy gradients of solves come to within a few standard errors of where a stored matrix has the maximum, and tell what they cost.
func TestFitOfCounts(t *testing.T) {
	dir := t.TempDir()
	table := "x,y\n"
	for i := range 40 {
		table += fmt.Sprintf("%d,%d\n", i, int(3+3*math.Sin(float64(i)/4))+i%3)
	}
	write(t, dir, "t.csv", table)
	spec := write(t, dir, "s.yaml", "name: counts\ndata: {path: t.csv, target: y}\nmodel: {likelihood: poisson}\n")
	stored, noisy := filepath.Join(dir, "stored"), filepath.Join(dir, "noisy")
	good(t, "fit", spec, "-q", "--restarts", "1", "--out", stored)
	if code, _, stderr := ulisse(t, "", "fit", spec, "-q", "--method", adagrad, "--iterations", "40", "--out", noisy); code != ExitConverged && code != ExitUnconverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	a, b := estimate(t, stored), estimate(t, noisy)
	for i := range a.Psi {
		if sd := math.Sqrt(a.Cov[i*len(a.Psi)+i]); math.Abs(a.Psi[i]-b.Psi[i]) > 3*sd {
			t.Errorf("log parameter %d is %v, with a stored matrix %v ± %v", i, b.Psi[i], a.Psi[i], sd)
		}
	}
	if b.Cost.Solves == 0 || b.Cost.Products == 0 {
		t.Errorf("the cost is %+v", b.Cost)
	}
	if text := good(t, "predict", stored, "--data", filepath.Join(dir, "t.csv")); !strings.Contains(text, "mean,sd") {
		t.Errorf("%.300s", text)
	}
}

// An interrupted fit writes nothing; one from standard input has its table with it; several targets have a folder each.
func TestFitWritesWholeFolders(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	if code := a.Execute(ctx, []string{"fit", spec, "--out", filepath.Join(dir, "cut")}); code != ExitInterrupted {
		t.Errorf("code %d: %s", code, stderr.String())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("after an interruption there are %v, %v", entries, err)
	}

	table, err := os.ReadFile(fitTable(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	piped := write(t, dir, "p.yaml", "name: piped\ndata: {path: '-', inputs: [x, w], target: y}\n")
	if code, _, stderr := ulisse(t, string(table), "fit", piped, "--out", filepath.Join(dir, "piped"), "-q"); code != 0 {
		t.Fatal(stderr)
	}
	good(t, "effects", filepath.Join(dir, "piped"), "w", "--grid", "2")

	both := filepath.Join(dir, "both")
	if out := good(t, "fit", twoTargets(t, dir), "--out", both, "-q"); strings.Count(out, "results in ") != 2 {
		t.Error(out)
	}
	if out := good(t, "summary", filepath.Join(both, "b")); !strings.Contains(out, "two-b: fitted") {
		t.Error(out)
	}
}

// On a terminal a line tells how a fit is going, and is gone at the end.
func TestFitProgress(t *testing.T) {
	var stderr bytes.Buffer
	now := time.Unix(0, 0)
	a := &App{Stderr: &stderr, TTY: true, Now: func() time.Time { return now }}
	for total, want := range map[int]string{0: "search 2, evaluation 5, log density -3.50, largest slope 0.1, 7s", 10: strings.Repeat("█", barWidth/2) + strings.Repeat("░", barWidth/2) + " iteration 5 of 10"} {
		stderr.Reset()
		p := &fitProgress{app: a, began: now, total: total}
		now = now.Add(7 * time.Second)
		p.at(fit.Step{Search: 2, Evaluation: 5, Value: -3.5, Slope: 0.1})
		p.end()
		if out := stderr.String(); !strings.Contains(out, want) || !strings.HasSuffix(out, "\r\x1b[K") {
			t.Errorf("%d: %q", total, out)
		}
	}
}
