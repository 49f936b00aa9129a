package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// Two classes may be words: their draws are those of 0 and 1 in the order of the alphabet, here and on a
// cluster, and predictions, which are of the probability of the second, know the words.
func TestClassesInWords(t *testing.T) {
	if testing.Short() {
		t.Skip("three runs: not in short tests")
	}
	dir := t.TempDir()
	var words, numbers strings.Builder
	words.WriteString("a,b,outcome\n")
	numbers.WriteString("a,b,outcome\n")
	var truth []int
	for i := range 60 {
		a, b := math.Sin(float64(i)), math.Cos(1.7*float64(i))
		y := 0
		if a+0.5*b+0.3*math.Sin(13*float64(i)) > 0 {
			y = 1
		}
		truth = append(truth, y)
		fmt.Fprintf(&words, "%g,%g,%s\n", a, b, []string{"alive", "dead"}[y])
		fmt.Fprintf(&numbers, "%g,%g,%d\n", a, b, y)
	}
	const text = `
name: %s
data: {path: %s, target: outcome}
model: {likelihood: bernoulli}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 10}
stop: {rhat: 10, ess: 1}
`
	table := write(t, dir, "words.csv", words.String())
	spec := write(t, dir, "words.yaml", fmt.Sprintf(text, "words", table))
	coded := write(t, dir, "numbers.yaml", fmt.Sprintf(text, "numbers", write(t, dir, "numbers.csv", numbers.String())))
	here, there, number := filepath.Join(dir, "here"), filepath.Join(dir, "there"), filepath.Join(dir, "numbers")

	good(t, "run", spec, "--out", here, "-q")
	if code, _, stderr := ulisse(t, "", "validate", spec); code != 0 || !strings.Contains(stderr, "data: outcome is a class: alive is 0, dead is 1") {
		t.Error(code, stderr)
	}
	good(t, "run", coded, "--out", number, "-q")
	if summaryHash(t, here) != summaryHash(t, number) {
		t.Error("the words have other draws than 0 and 1")
	}
	c := newLiveCluster(t, "w1", "w2")
	if code, _, stderr := ulisse(t, "", "submit", spec, "--coordinators", c.address, "--wait", "--out", there); code != ExitConverged {
		t.Fatal(code, stderr)
	}
	if summaryHash(t, here) != summaryHash(t, there) {
		t.Error("the cluster's draws are others")
	}
	local := good(t, "predict", here, "--data", table, "-q", "--draws", "4")
	for name, other := range map[string]string{
		"numbers":   good(t, "predict", number, "--data", filepath.Join(dir, "numbers.csv"), "-q", "--draws", "4"),
		"a cluster": good(t, "predict", "words", "--data", table, "-q", "--draws", "4", "--coordinators", c.address),
	} {
		if other != local {
			t.Errorf("predictions from %s are\n%.300s\nhere they are\n%.300s", name, other, local)
		}
	}
	checkClassesInOrder(t, c.address, dir, strings.ReplaceAll(words.String(), "alive", "fit"))
	p := predictions(t, write(t, dir, "p.csv", local))
	wrong := 0
	for i, mean := range p["mean"] {
		if mean < 0 || mean > 1 {
			t.Errorf("row %d has the probability %g", i+1, mean)
		}
		if (mean > 0.5) != (truth[i] == 1) {
			wrong++
		}
	}
	if wrong > 12 { // of rows that were learnt from, which are easy
		t.Errorf("%d of 60 classes are wrong", wrong)
	}
	if code, _, stderr := ulisse(t, "a,b,outcome\n1,2,daed\n", "predict", here, "--data", "-", "-q"); code != ExitBadInput || !strings.Contains(stderr, `"daed" is none of the levels: did you mean dead?`) {
		t.Error(code, stderr)
	}
	three := write(t, dir, "three.csv", words.String()+"1,2,missing in action\n")
	if code, _, stderr := ulisse(t, "", "validate", spec, "--data", three); code != ExitBadInput || !strings.Contains(stderr, "the target has 3 values (alive, dead, missing in action), and the likelihood is of two classes") {
		t.Error(code, stderr)
	}
}

// checkClassesInOrder holds a run, predictions and a cross-validation of three classes in words against those of a cluster. Every
// third row has a class between the others.
func checkClassesInOrder(t *testing.T, address, dir, table string) {
	t.Helper()
	rows := strings.Split(table, "\n")
	for i := 3; i < len(rows)-1; i += 3 {
		rows[i] = rows[i][:strings.LastIndex(rows[i], ",")] + ",tired"
	}
	path := write(t, dir, "order.csv", strings.Join(rows, "\n"))
	spec := write(t, dir, "order.yaml", fmt.Sprintf(`
name: order
data: {path: %s, target: outcome, levels: {outcome: [fit, tired, dead]}}
model: {likelihood: ordinal}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 10}
stop: {rhat: 10, ess: 1}
`, path))
	here, there := filepath.Join(dir, "order"), filepath.Join(dir, "order-there")
	good(t, "run", spec, "--out", here, "-q")
	if code, _, stderr := ulisse(t, "", "submit", spec, "--coordinators", address, "--wait", "--out", there); code != ExitConverged {
		t.Fatal(code, stderr)
	}
	if summaryHash(t, here) != summaryHash(t, there) {
		t.Error("the cluster's draws of classes in order are others")
	}
	local := good(t, "predict", here, "--data", path, "-q", "--draws", "4")
	if other := good(t, "predict", "order", "--data", path, "-q", "--draws", "4", "--coordinators", address); other != local {
		t.Errorf("predictions from a cluster are\n%.300s\nhere they are\n%.300s", other, local)
	}
	if head, _, _ := strings.Cut(local, "\n"); head != "row,class,mean,sd,q2.5,q50,q97.5,p[fit],p[tired],p[dead],target,log_density,crps,pit" {
		t.Errorf("predictions have the columns %s", head)
	}
	if out := good(t, "cv", spec, "--folds", "2", "--out", filepath.Join(dir, "order-cv"), "-q"); !strings.Contains(out, "classes off") {
		t.Errorf("cross-validation says\n%s", out)
	}
	if code, _, stderr := ulisse(t, "a,b,outcome\n1,2,a\n1,3,b\n", "validate", spec, "--data", "-"); code != ExitBadInput || !strings.Contains(stderr, "is none of the levels, which are fit, tired, dead") {
		t.Error(code, stderr)
	}
}
