package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
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

// parameters returns all parameters of a fit.
func parameters(t *testing.T, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "fit.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f report.Fit
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(f.Extra)
	if err != nil || len(f.Extra) < 100 {
		t.Fatalf("%d parameters, %v", len(f.Extra), err)
	}
	return out
}
