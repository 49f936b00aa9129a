package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/report"
)

// A fit by random features predicts rows, of numbers and of classes, is the same again whatever the cores, and what it does not do is told in a
// sentence.
func TestDeepFit(t *testing.T) {
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("x,y,c\n")
	for i := range 120 {
		x := float64(i) / 12
		fmt.Fprintf(&table, "%v,%v,%d\n", x, 3+math.Sin(x)+float64(i*7919%13-6)/100, i/30%2)
	}
	write(t, dir, "table.csv", table.String())
	spec := func(name, target, model string) string {
		return write(t, dir, name+".yaml", fmt.Sprintf("name: few\ndata: {path: table.csv, target: %s, inputs: [x], holdout: 0.2}\nmodel: {%s, steps: 1000, minibatch: 48, features: 30}}\n", target, model))
	}
	fits := map[string]string{}
	for _, x := range []struct {
		name, model string
		most        float64 // root mean squared error; resampled frequencies learn slowly
	}{
		{"one", "approximation: {kind: random-features", 0.2}, {"two", "approximation: {kind: deep, hidden: 2", 0.2}, {"resampled", "approximation: {kind: deep, hidden: 1, frequencies: resampled, step: 0.02", 0.6},
	} {
		name := x.name
		out, csv := filepath.Join(dir, name), filepath.Join(dir, name+".csv")
		fits[name] = spec(name, "y", x.model)
		if status, _, said := ulisse(t, "", "fit", fits[name], "--out", out, "-q"); status != 0 && status != ExitUnconverged {
			t.Fatalf("%s: exit code %d, %s", name, status, said)
		}
		good(t, "predict", out, "--holdout", "--out", csv, "-q")
		p := predictions(t, csv)
		var squares float64
		for i, mean := range p["mean"] {
			squares += (mean - p["target"][i]) * (mean - p["target"][i]) / float64(len(p["mean"]))
		}
		if rmse := math.Sqrt(squares); len(p["mean"]) != 24 || !(rmse < x.most) {
			t.Errorf("%s: %d rows, root mean squared error %.3g, and the target's standard deviation is 0.7", name, len(p["mean"]), rmse)
		}
	}
	if status, _, said := ulisse(t, "", "fit", fits["two"], "--out", filepath.Join(dir, "again"), "-q", "--threads", "1"); status != 0 && status != ExitUnconverged {
		t.Fatal(said)
	}
	if a, b := parameters(t, filepath.Join(dir, "two")), parameters(t, filepath.Join(dir, "again")); !bytes.Equal(a, b) {
		t.Error("a fit is another on one core")
	}
	class := spec("class", "c", "likelihood: bernoulli, approximation: {kind: deep, hidden: 1")
	if status, _, said := ulisse(t, "", "fit", class, "--out", filepath.Join(dir, "class"), "-q"); status != 0 && status != ExitUnconverged {
		t.Fatal(said)
	}
	good(t, "predict", filepath.Join(dir, "class"), "--holdout", "--out", filepath.Join(dir, "class.csv"), "-q")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"run", fits["two"]}, "model.approximation: deep is for point estimates: give the specification to 'ulisse fit'"},
		{[]string{"submit", fits["one"]}, "random-features is for point estimates"},
		{[]string{"plan", fits["one"]}, "random-features is for point estimates"},
		{[]string{"cv", fits["one"], "--out", filepath.Join(dir, "cv")}, "random-features is for point estimates"},
		{[]string{"fit", fits["two"], "--method", "adagrad"}, "--method adagrad: deep is learnt by Adam"},
		{[]string{"fit", fits["two"], "--model", "exact"}, "--model exact: the specification has model.approximation: deep"},
		{[]string{"predict", filepath.Join(dir, "two"), "--holdout", "--paths", "2"}, "the approximation predicts rows one by one"},
	} {
		status, _, said := ulisse(t, "", x.args...)
		if status == 0 || !strings.Contains(said, x.want) {
			t.Errorf("%v: exit code %d, %q", x.args, status, said)
		}
	}
}

// readFit returns what a fit has left in its folder.
func readFit(t *testing.T, dir string) (f report.Fit) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "fit.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// parameters returns all parameters of a fit.
func parameters(t *testing.T, dir string) []byte {
	t.Helper()
	f := readFit(t, dir)
	out, err := json.Marshal(f.Extra)
	if err != nil || len(f.Extra) < 100 {
		t.Fatalf("%d parameters, %v", len(f.Extra), err)
	}
	return out
}

// Classes of known distributions are predicted nearly as Bayes' rule does, by one layer and by two, three of them and two; what is of one latent function says so. Three normal clusters: the probabilities of a
// row's classes are known, and of 150 rows held out the mean distance of what is predicted from them is below 0.05 (guesses of equal probabilities are 0.33 away).
func TestDeepClasses(t *testing.T) {
	dir := t.TempDir()
	names, centres := []string{"ash", "fir", "oak"}, [][2]float64{{0, 1.6}, {-1.4, -0.8}, {1.4, -0.8}}
	r := rand.New(rand.NewPCG(3, 14))
	var table, two strings.Builder
	table.WriteString("a,b,tree\n")
	two.WriteString("a,b,tree\n")
	var points [][2]float64 // of each table the first ones
	for i := range 750 {
		c := i % 3
		x := [2]float64{centres[c][0] + r.NormFloat64(), centres[c][1] + r.NormFloat64()}
		points = append(points, x)
		fmt.Fprintf(&table, "%v,%v,%s\n", x[0], x[1], names[c])
		fmt.Fprintf(&two, "%v,%v,%s\n", x[0], x[1], names[min(c, 1)])
	}
	tables := map[bool]string{true: write(t, dir, "three.csv", table.String()), false: write(t, dir, "pairs.csv", two.String())}
	for _, x := range []struct {
		name, likelihood, approximation string
		columns                         []string // of the table of predictions, in the order of the classes
	}{
		{"one", "categorical", "{kind: random-features, features: 30, steps: 500, minibatch: 100}", []string{"p[ash]", "p[fir]", "p[oak]"}},
		{"two", "categorical", "{kind: deep, layers: 2, hidden: 2, features: 20, steps: 500, minibatch: 100}", []string{"p[ash]", "p[fir]", "p[oak]"}},
		{"bernoulli", "bernoulli", "{kind: deep, layers: 2, hidden: 2, features: 20, steps: 500, minibatch: 100}", []string{"", "mean"}},
	} {
		spec := write(t, dir, x.name+".yaml", fmt.Sprintf("name: trees\ndata: {path: %s, target: tree, holdout: 0.2}\nmodel: {likelihood: %s, approximation: %s}\n", tables[x.likelihood == "categorical"], x.likelihood, x.approximation))
		out := filepath.Join(dir, x.name)
		if status, _, said := ulisse(t, "", "fit", spec, "--out", out, "-q"); status != 0 && status != ExitUnconverged {
			t.Fatalf("%s: exit code %d, %s", x.name, status, said)
		}
		told := good(t, "predict", out, "--holdout", "--scores", "--out", out+".csv", "-q")
		rows := texts(t, out+".csv")
		distance, numbers := 0.0, 0.0
		for i, text := range rows["row"] {
			row, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			truth := bayes(points[row-1], centres)
			if x.likelihood == "bernoulli" {
				truth = []float64{truth[0], truth[1] + truth[2]}
			}
			sum := 0.0
			for c, column := range x.columns {
				if column == "" {
					continue
				}
				p, err := strconv.ParseFloat(rows[column][i], 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += p
				distance += math.Abs(p - truth[c])
				numbers++
			}
			if x.likelihood == "categorical" && math.Abs(sum-1) > 1e-9 {
				t.Errorf("%s: the probabilities of row %d add up to %g", x.name, row, sum)
			}
		}
		if got := distance / numbers; len(rows["row"]) != 150 || !(got < 0.05) || !strings.Contains(told, "Brier") {
			t.Errorf("%s: %d rows, probabilities are %.3g from those of Bayes' rule\n%s", x.name, len(rows["row"]), got, told)
		}
		good(t, "summary", out)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"predict", filepath.Join(dir, "two"), "--holdout", "--latent"}, "there is no latent function that could be told alone"},
		{[]string{"predict", filepath.Join(dir, "two"), "--holdout", "--paths", "2"}, "the approximation predicts rows one by one"},
		{[]string{"run", filepath.Join(dir, "two.yaml")}, "deep is for point estimates"},
		{[]string{"validate", write(t, dir, "noisy.yaml", "name: n\ndata: {path: three.csv, target: a}\nmodel: {likelihood: heteroscedastic, approximation: {kind: deep}}\n")}, "deep is for Gaussian noise of one variance and for bernoulli, categorical, binomial, poisson"},
		{[]string{"fit", write(t, dir, "exact.yaml", "name: n\ndata: {path: three.csv, target: tree}\nmodel: {likelihood: categorical}\n")}, "fit random features (model.approximation: {kind: random-features})"},
	} {
		status, _, said := ulisse(t, "", x.args...)
		if status == 0 || !strings.Contains(said, x.want) {
			t.Errorf("%v: exit code %d, %q", x.args, status, said)
		}
	}
}

// bayes returns the probabilities of clusters of variance one, equally many of each, at a point.
func bayes(x [2]float64, centres [][2]float64) (p []float64) {
	sum := 0.0
	for _, c := range centres {
		d := math.Exp(-0.5 * ((x[0]-c[0])*(x[0]-c[0]) + (x[1]-c[1])*(x[1]-c[1])))
		p, sum = append(p, d), sum+d
	}
	for c := range p {
		p[c] /= sum
	}
	return p
}

// texts returns the columns of a table.
func texts(t *testing.T, path string) map[string][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, line := range lines[1:] {
		for k, text := range line {
			out[lines[0][k]] = append(out[lines[0][k]], text)
		}
	}
	return out
}
