package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/client"
)

// twoTargets writes a table with two targets, the first of which every ninth row lacks, and a specification of both.
func twoTargets(t *testing.T, dir string) (spec string) {
	t.Helper()
	var table strings.Builder
	table.WriteString("x,w,strength (MPa),b\n")
	for i := range 40 {
		y := ""
		if i%9 != 4 {
			y = fmt.Sprint(math.Sin(float64(i)/9) + float64(i*7919%13)/20)
		}
		fmt.Fprintf(&table, "%v,%d,%s,%v\n", float64(i)/10, i*7%13, y, math.Exp(math.Cos(float64(i)/7)+float64(i*31%17)/30))
	}
	write(t, dir, "t.csv", table.String())
	return write(t, dir, "s.yaml", `
name: two
data: {path: t.csv, target: ["strength (MPa)", b], transform: yeo-johnson, missing: drop}
sampler: {method: fisher, chains: 2, warmup: 10, draws: 20, checkpoint: 5}
stop: {rhat: 9, ess: 1, max_draws: 20}
`)
}

// Each of several targets has the posterior that it has alone, to the last bit, in a folder of its own; rows that lack a
// target are left out of that one's alone.
func TestRunEachTarget(t *testing.T) {
	dir := t.TempDir()
	spec := twoTargets(t, dir)
	both, alone := filepath.Join(dir, "both"), filepath.Join(dir, "alone")
	code, stdout, stderr := ulisse(t, "", "run", spec, "--out", both)
	if code != ExitConverged || strings.Count(stdout, "results in ") != 2 || !strings.Contains(stderr, "target strength (MPa): 36 rows, 2 inputs") || !strings.Contains(stderr, "target b: 40 rows, 2 inputs") {
		t.Fatalf("%d: %s\n%s", code, stdout, stderr)
	}
	good(t, "run", spec, "--target", "strength (MPa)", "--out", alone, "-q")
	if a, b := summaryHash(t, filepath.Join(both, "strength-MPa")), summaryHash(t, alone); a != b {
		t.Error("a target among others has other draws than alone")
	}
	if out := good(t, "summary", filepath.Join(both, "b")); !strings.Contains(out, "two-b: converged") {
		t.Error(out)
	}
	var sums []struct{ Name string }
	if err := json.Unmarshal([]byte(good(t, "run", "--resume", both, "-q", "--json")), &sums); err != nil || len(sums) != 2 || sums[0].Name != "two-strength-MPa" || sums[1].Name != "two-b" {
		t.Errorf("%v: %v", err, sums)
	}
	rows := predictions(t, predicted(t, filepath.Join(both, "strength-MPa"), filepath.Join(dir, "t.csv")))
	if len(rows["mean"]) != 40 || !math.IsNaN(rows["target"][4]) || math.IsNaN(rows["mean"][4]) {
		t.Errorf("%v", rows)
	}
	for want, args := range map[string][]string{
		"is the folder of several targets: give that of one, of ":                             {"summary", both},
		"--target c: " + spec + " has no such target; it has strength (MPa), b":               {"run", spec, "--target", "c"},
		"has 2 targets, and this is about one: choose it with --target, of strength (MPa), b": {"cv", spec},
		"give no specification, --demo, --data, --target":                                     {"run", "--resume", both, "--target", "b"},
		"is not empty": {"run", spec, "--out", both},
		"target strength (MPa): " + filepath.Join(dir, "t.csv") + `: 4 values are missing`: {"run", write(t, dir, "e.yaml", strings.Replace(readFile(t, spec), "missing: drop", "missing: error", 1))},
	} {
		if code, _, stderr := ulisse(t, "", args...); code != ExitBadInput || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
	if out := good(t, "validate", spec); strings.Count(out, "\n---\n") != 1 {
		t.Error(out)
	}
}

// A run of several targets that was cut short goes on with those that are left.
func TestResumeEachTarget(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	spec := twoTargets(t, dir)
	cut := filepath.Join(dir, "cut")
	if code, _, stderr := ulisse(t, readFile(t, filepath.Join(dir, "t.csv")), "run", spec, "--data", "-", "--out", cut, "-q"); code != 0 { // standard input is read once
		t.Fatal(stderr)
	}
	gone := filepath.Join(cut, "b")
	draws := summaryHash(t, gone)
	if err := os.RemoveAll(filepath.Join(gone, "state", "raft")); err != nil { // as if it had not begun
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(gone, "summary.json")); err != nil {
		t.Fatal(err)
	}
	good(t, "run", "--resume", cut, "-q")
	if draws != summaryHash(t, gone) {
		t.Error("the draws are others")
	}
	if err := os.RemoveAll(filepath.Join(cut, "strength-MPa")); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := ulisse(t, "", "run", "--resume", cut, "-q"); code != ExitBadInput || !strings.Contains(stderr, "strength-MPa: there is no run to resume") || !strings.Contains(stdout, "two-b: converged") {
		t.Errorf("%d: %s\n%s", code, stdout, stderr)
	}
}

// On a cluster each target is a job, and the table is brought once.
func TestSubmitEachTarget(t *testing.T) {
	cluster(t, "w")
	dir := t.TempDir()
	spec := twoTargets(t, dir)
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	good(t, "run", spec, "--out", here, "-q")
	code, stdout, stderr := ulisse(t, "", "submit", spec, "--client-id", "mine", "--wait", "--out", there)
	if code != 0 || strings.Count(stderr, "t.csv: uploaded") != 1 || strings.Contains(stderr, "has it already") || !strings.Contains(stderr, "submitted two-strength-MPa as ") || !strings.Contains(stdout, "two-b: converged") {
		t.Fatalf("%d: %s\n%s", code, stdout, stderr)
	}
	for _, name := range []string{"strength-MPa", "b"} {
		if summaryHash(t, filepath.Join(here, name)) != summaryHash(t, filepath.Join(there, name)) {
			t.Errorf("%s: the draws are others", name)
		}
		if out := good(t, "summary", "two-"+name); !strings.Contains(out, "two-"+name+": converged") {
			t.Error(out)
		}
	}
	jobs := asJSON[[]client.JobView](t, "submit", spec, "--client-id", "mine")
	if len(jobs) != 2 || jobs[0].Name != "two-strength-MPa" || jobs[1].Name != "two-b" || len(asJSON[[]client.JobView](t, "jobs")) != 2 {
		t.Errorf("%v", jobs)
	}
	if !slices.Equal(strings.Fields(good(t, "submit", spec, "--client-id", "mine", "-q")), []string{jobs[0].ID, jobs[1].ID}) {
		t.Error("the ids are others")
	}
}

func predicted(t *testing.T, run, table string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "p.csv")
	good(t, "predict", run, "--data", table, "--out", path, "-q")
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
