package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Who has moved the table is told of --train, and who forgets --out on a terminal gets no thousands of lines.
func TestMovedTable(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector: a run")
	}
	dir := t.TempDir()
	table := write(t, dir, "t.csv", bike(40))
	spec := write(t, dir, "s.yaml", "name: t\ndata: {path: t.csv, target: cnt, inputs: [temp, no]}\nsampler: {chains: 2, warmup: 10, draws: 20}\n"+
		"stop: {rhat: 100, ess: 1, max_draws: 20}\n")
	out := filepath.Join(dir, "out")
	good(t, "run", spec, "-q", "--out", out)
	moved := filepath.Join(dir, "moved.csv")
	if err := os.Rename(table, moved); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := ulisse(t, "", "predict", out, "--data", moved, "-q")
	if code != ExitBadInput || !strings.Contains(stderr, "the table that the run in "+out+" learnt from is not where it was") || !strings.Contains(stderr, "say where it is with --train") {
		t.Errorf("%d: %s", code, stderr)
	}
	other := write(t, dir, "other.csv", bike(41))
	if code, _, stderr := ulisse(t, "", "predict", out, "--data", moved, "--train", other, "-q"); code != ExitBadInput || !strings.Contains(stderr, "say where those are with --train") {
		t.Errorf("%d: %s", code, stderr)
	}
	good(t, "predict", out, "--data", moved, "--train", moved, "-q")

	var stdout, errs bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &errs, OutTTY: true, Now: time.Now}
	if code := a.Execute(t.Context(), []string{"draws", out}); code != ExitBadInput || stdout.Len() > 0 || !strings.Contains(errs.String(), "--out - to see them here") {
		t.Errorf("%d: %s", code, errs.String())
	}
	if code := a.Execute(t.Context(), []string{"draws", out, "--out", "-"}); code != 0 || strings.Count(stdout.String(), "\n") != 41 {
		t.Errorf("%d: %d lines", code, strings.Count(stdout.String(), "\n"))
	}
}
