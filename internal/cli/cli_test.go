package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// runMain makes the test binary the program itself, so that tests can start and
// kill real processes.
const runMain = "ULISSE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		os.Exit(NewApp().Execute(context.Background(), os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// ulisse runs a command line in this process.
func ulisse(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &App{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Now: time.Now}
	code = a.Execute(context.Background(), args)
	return code, out.String(), errs.String()
}

const smallSpec = `
name: small
data: {synthetic: {n: 120, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: fisher, chains: 2, warmup: 20, draws: 40, checkpoint: 10}
solver: {preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.5, ess: 10, max_draws: 40}
`

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func summaryHash(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Hash string `json:"draws_sha256"`
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Hash == "" {
		t.Fatal(err, s)
	}
	return s.Hash
}

func TestRunWritesItsResults(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	out := filepath.Join(dir, "out")
	code, stdout, stderr := ulisse(t, "", "run", spec, "--out", out)
	if code != ExitConverged {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, f := range []string{"draws/chain-1.csv", "draws/chain-2.csv", "summary.json", "summary.txt", "spec.yaml", "trace.svg", "density.svg", "rhat.svg", "log.jsonl"} {
		if st, err := os.Stat(filepath.Join(out, f)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	progress := stderr
	text, _ := os.ReadFile(filepath.Join(out, "summary.txt"))
	if !strings.HasPrefix(stdout, string(text)) {
		t.Errorf("the summary printed is not the file's:\n%s", stdout)
	}
	if !strings.Contains(stderr, "msg=sampling") {
		t.Errorf("no progress in\n%s", stderr)
	}
	if strings.Contains(stderr, "rhat=0") || strings.Contains(stderr, "ess=0") {
		t.Errorf("what is not known is told as 0 in\n%s", stderr)
	}

	if !strings.Contains(stderr, "msg=provisional") {
		t.Errorf("no provisional answer in\n%s", stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(out, "provisional.*")); len(left) > 0 {
		t.Errorf("%v is still there beside the results", left)
	}

	// Every gradient has a line with what it cost.
	log, _ := os.ReadFile(filepath.Join(out, "log.jsonl"))
	gradients := 0
	for _, line := range strings.Split(strings.TrimSpace(string(log)), "\n") {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e["msg"] != "gradient" || e["chain"].(float64) == 0 {
			continue
		}
		gradients++
		for _, key := range []string{"solves", "products", "pairs", "seconds", "solver_iterations", "residual"} {
			if v, ok := e[key].(float64); !ok || v <= 0 {
				t.Errorf("%s is %v in %s", key, e[key], line)
			}
		}
	}
	if gradients != 2*(20+40) {
		t.Errorf("%d gradients in the log", gradients)
	}

	// The specification written reads as the one that ran, and runs the same.
	again := filepath.Join(dir, "again")
	if code, _, stderr := ulisse(t, "", "run", filepath.Join(out, "spec.yaml"), "--out", again, "--quiet", "--threads", "1"); code != 0 || stderr != "" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if summaryHash(t, out) != summaryHash(t, again) {
		t.Error("the draws depend on the number of threads")
	}
	code, stdout, _ = ulisse(t, "", "run", spec, "--out", filepath.Join(dir, "json"), "--json", "--seed", "9", "-q")
	var sum map[string]any
	if err := json.Unmarshal([]byte(stdout), &sum); err != nil || code != 0 || sum["seed"].(float64) != 9 {
		t.Errorf("exit %d, %v\n%s", code, err, stdout)
	}
	if summaryHash(t, out) == summaryHash(t, filepath.Join(dir, "json")) {
		t.Error("the draws do not depend on the seed")
	}
	checkCache(t, out, string(text), progress)
}

// checkCache checks that what the calibration of the cache of K decided is in
// the results, and was done.
func checkCache(t *testing.T, out, text, stderr string) {
	var sum struct {
		Cache *cmvp.CachePlan `json:"cache"`
		Total chains.Cost     `json:"total"`
	}
	js, _ := os.ReadFile(filepath.Join(out, "summary.json"))
	if err := json.Unmarshal(js, &sum); err != nil || sum.Cache == nil || sum.Cache.Use != (sum.Total.PairsRead > 0) {
		t.Errorf("%v: cache %+v, cost %+v", err, sum.Cache, sum.Total)
	}
	if !strings.Contains(string(text), "cache of K "+sum.Cache.String()) || !strings.Contains(stderr, `msg="cache of K"`) {
		t.Errorf("no word of the cache in\n%s%s", text, stderr)
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	busy := filepath.Join(dir, "busy")
	os.Mkdir(busy, 0o700)
	write(t, busy, "x", "x")
	write(t, dir, "x.csv", "a,y\n1,2\n2,x\n")
	bad := write(t, dir, "bad.yaml", "name: a\ndata: {path: x.csv, target: y}\n")
	missing := write(t, dir, "missing.yaml", "name: a\ndata: {path: none.csv, target: y}\n")
	misspelt := write(t, dir, "misspelt.yaml", "nam: a\n")
	never := write(t, dir, "never.yaml", strings.ReplaceAll(smallSpec, "ess: 10", "ess: 1000000"))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run"}, 2, "ulisse: give a specification, or --demo\n"},
		{[]string{"run", "--demo", spec}, 2, "give a specification, or --demo"},
		{[]string{"run", spec, spec}, 2, `'ulisse run' takes [SPEC], and was given`},
		{[]string{"run", spec, "--colour"}, 2, "unknown flag: --colour; see 'ulisse run --help'"},
		{[]string{"run", spec, "--threads", "-1"}, 2, "--threads -1: give a positive number"},
		{[]string{"rnu"}, 2, `there is no command "rnu": did you mean "run"?`},
		{[]string{"run", filepath.Join(dir, "no.yaml")}, 2, "cannot read the specification: open"},
		{[]string{"run", misspelt}, 2, `line 1, column 1: nam: unknown field: did you mean "name"?`},
		{[]string{"run", bad}, 2, `x.csv: line 3, column "y" (field 2): "x" is not a number`},
		{[]string{"validate", bad}, 2, `x.csv: line 3, column "y" (field 2): "x" is not a number`},
		{[]string{"run", missing}, 2, "cannot read the data: open " + filepath.Join(dir, "none.csv")},
		{[]string{"run", spec, "--data", "x.csv"}, 2, "--data: the specification generates its data"},
		{[]string{"run", spec, "--out", busy}, 2, "is not empty: choose another with --out"},
		{[]string{"run", "--resume", busy}, 2, "there is no run to resume in " + busy},
		{[]string{"run", "--resume", busy, "--demo"}, 2, "--resume goes on with what is in its folder"},
		{[]string{"run", never, "--out", filepath.Join(dir, "never"), "-q"}, 3, ""},
		{[]string{"validate", spec}, 0, "120 rows, 2 inputs (0 held out)"},
		{[]string{"validate", bad, "--spec-only"}, 0, ""},
		{[]string{"version"}, 0, ""},
		{[]string{"completion", "bash"}, 0, ""},
		{[]string{"--help"}, 0, ""},
	} {
		code, _, stderr := ulisse(t, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || c.want == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\n%s", strings.Join(c.args, " "), code, c.code, stderr)
		}
		if strings.Count(stderr, "\n") > 1 {
			t.Errorf("%s: more than one line:\n%s", strings.Join(c.args, " "), stderr)
		}
	}
}

func TestValidatePrintsEveryDefault(t *testing.T) {
	code, stdout, _ := ulisse(t, "", "validate", write(t, t.TempDir(), "s.yaml", smallSpec))
	var m map[string]any
	if err := yaml.Unmarshal([]byte(stdout), &m); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	for _, key := range []string{"name", "data", "model", "sampler", "solver", "stop", "seed"} {
		if m[key] == nil {
			t.Errorf("no %s in\n%s", key, stdout)
		}
	}
}

func TestPlan(t *testing.T) {
	spec := write(t, t.TempDir(), "s.yaml", smallSpec)
	code, stdout, stderr := ulisse(t, "", "plan", spec, "--json")
	var e driver.Estimate
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || code != 0 {
		t.Fatal(code, err, stderr)
	}
	if e.N != 120 || e.PairsPerProduct != 14400 || !(e.PairsPerSecond > 0) || e.Gradients != 2*60+10+6 || e.MemoryBytes <= e.DataBytes {
		t.Errorf("%+v", e)
	}
	if e.Cache == nil || e.Cache.Kept != 1 || e.Cache.Use != (e.CacheBytes > 0) || e.Cache.Use && e.CacheBytes != 3*cmvp.CacheBytes(120, true) {
		t.Errorf("%+v, cache %+v", e, e.Cache)
	}
	for cache, kept := range map[string]float64{"off": -1, "512KiB": 2.0 / 3} { // of three operators
		spec := write(t, t.TempDir(), "s.yaml", strings.ReplaceAll(smallSpec, "solver: {", "solver: {cache: "+cache+", "))
		code, stdout, stderr := ulisse(t, "", "plan", spec, "--json")
		var e driver.Estimate
		if err := json.Unmarshal([]byte(stdout), &e); err != nil || code != 0 {
			t.Fatal(code, err, stderr)
		}
		if kept < 0 && e.Cache != nil || kept > 0 && (e.Cache == nil || math.Abs(e.Cache.Kept-kept) > 1e-5) {
			t.Errorf("%s: %+v", cache, e.Cache)
		}
	}
	staged := write(t, t.TempDir(), "s.yaml", stagedSpec)
	for _, x := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{"evaluation", "propose", "in all: a guess"}},
		{[]string{"--workers", "3"}, []string{"core-hours", "a guess", "Worth it"}},
		{[]string{"--workers", "3", "--json"}, []string{`"course": {`, `"core": null`}},
		{[]string{"--workers", "3", "--rows", "50000", "--inputs", "2", "--memory", "1MiB"}, []string{"50000 rows", "does not fit"}},
	} {
		code, stdout, stderr := ulisse(t, "", append([]string{"plan", staged}, x.flags...)...)
		for _, w := range x.want {
			if code != 0 || !strings.Contains(stdout, w) {
				t.Errorf("plan %v: exit %d, no %q in\n%s%s", x.flags, code, w, stdout, stderr)
			}
		}
	}
	for _, method := range []string{"fisher", "exact", "cholesky", "sgld"} {
		spec := write(t, t.TempDir(), "s.yaml", strings.ReplaceAll(strings.ReplaceAll(smallSpec, "method: fisher", "method: "+method), "checkpoint: 10", "checkpoint: 20"))
		code, stdout, stderr := ulisse(t, "", "plan", spec)
		if code != 0 || !strings.Contains(stdout, "memory") || !strings.Contains(stdout, "in all") {
			t.Errorf("%s: exit %d\n%s%s", method, code, stdout, stderr)
		}
	}
}

// A table through standard input is kept, so that the run can be resumed.
func TestStandardInput(t *testing.T) {
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("a\tb\ty\n")
	for i := range 60 {
		fmt.Fprintf(&table, "%d\t%d\t%g\n", i, i*i%17, float64(i%7)+0.1*float64(i))
	}
	spec := write(t, dir, "s.yaml", `
name: piped
data: {path: "-", target: y}
sampler: {chains: 2, warmup: 10, draws: 20, checkpoint: 10}
stop: {rhat: 9, ess: 1, max_draws: 20}
`)
	out := filepath.Join(dir, "out")
	code, stdout, stderr := ulisse(t, table.String(), "run", spec, "--out", out)
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	hash := summaryHash(t, out)
	os.Remove(filepath.Join(out, "summary.json"))
	if code, _, stderr := ulisse(t, "", "run", "--resume", out); code != 0 || summaryHash(t, out) != hash {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	// Other data are refused.
	write(t, filepath.Join(out, "state"), "data", strings.ReplaceAll(table.String(), "59\t", "58\t"))
	if code, _, stderr := ulisse(t, "", "run", "--resume", out); code != 2 || !strings.Contains(stderr, "are not those that the run") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// killed starts the program as a process, kills it with the given signal once
// its log has grown by a number of lines, and returns its exit code.
func killed(t *testing.T, sig syscall.Signal, log string, lines int, args ...string) int {
	t.Helper()
	lines += countLines(log)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), runMain+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-done:
			return cmd.ProcessState.ExitCode()
		case <-time.After(5 * time.Millisecond):
		}
		if countLines(log) >= lines {
			cmd.Process.Signal(sig)
			<-done
			return cmd.ProcessState.ExitCode()
		}
	}
}

func countLines(path string) int {
	text, _ := os.ReadFile(path)
	return bytes.Count(text, []byte("\n"))
}

// A real process killed with SIGKILL again and again, and resumed, ends with
// the draws of one that was left alone.
func TestKilledAndResumed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	for name, text := range map[string]string{"fisher": strings.ReplaceAll(smallSpec, "draws: 40", "draws: 80"), "auto": stagedSpec} {
		t.Run(name, func(t *testing.T) { killedAndResumed(t, text) })
	}
}

// stagedSpec is of a run whose work is items of stages.
const stagedSpec = `
name: staged
data: {synthetic: {n: 120, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: auto, chains: 2, draws: 200, auto: {starts: 3, density: learnt}}
stop: {rhat: 1.5, ess: 10, max_draws: 200}
`

func killedAndResumed(t *testing.T, text string) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", text)
	calm := filepath.Join(dir, "calm")
	if code, _, stderr := ulisse(t, "", "run", spec, "--out", calm, "-q"); code != 0 {
		t.Fatal(stderr)
	}
	out := filepath.Join(dir, "out")
	log := filepath.Join(out, "log.jsonl")
	if code := killed(t, syscall.SIGKILL, log, 30, "run", spec, "--out", out); code != -1 {
		t.Fatalf("exit %d: it ended before it was killed", code)
	}
	kills := 1
	for {
		// Two checkpoints and a bit; more every time, so that a slow machine ends, too.
		code := killed(t, syscall.SIGKILL, log, 45+3*kills, "run", "--resume", out)
		if code == 0 {
			break
		}
		if kills++; code != -1 || kills > 60 {
			t.Fatalf("exit %d after %d kills", code, kills)
		}
	}
	if kills < 3 {
		t.Errorf("killed %d times only", kills)
	}
	if summaryHash(t, out) != summaryHash(t, calm) {
		t.Error("the draws are not those of an undisturbed run")
	}
}

// Interrupted by the user, a run says how to go on.
func TestInterrupted(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	spec := write(t, t.TempDir(), "s.yaml", strings.ReplaceAll(strings.ReplaceAll(smallSpec, "max_draws: 40", "max_draws: 100000"), "ess: 10", "ess: 1e9"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stdout, stderr bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	done := make(chan int)
	go func() { done <- a.Execute(ctx, []string{"run", spec, "--out", out, "-q"}) }()
	for {
		if countLines(filepath.Join(out, "log.jsonl")) >= 600 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	// A second process keeps out of the folder.
	if code, _, errs := ulisse(t, "", "run", "--resume", out); code != ExitFailure || !strings.Contains(errs, "another process is at work") {
		t.Errorf("exit %d, %s", code, errs)
	}
	cancel()
	if code := <-done; code != ExitInterrupted || !strings.Contains(stderr.String(), "ulisse run --resume "+out) {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
	// What it has drawn can be looked at, by its bare name too.
	t.Chdir(filepath.Dir(out))
	rows := write(t, t.TempDir(), "new.csv", "x1,x2\n0,0\n")
	if text := good(t, "summary", "out"); !strings.Contains(text, "small: not ended, interrupted") || !strings.Contains(text, "the first ") {
		t.Error(text)
	}
	if page := good(t, "report", out, "-o", "-"); !strings.Contains(page, "not ended, interrupted") {
		t.Errorf("%.1000s", page)
	}
	if table := good(t, "draws", "out"); strings.Count(table, "\n1,") == 0 || strings.Count(table, "\n1,") != strings.Count(table, "\n2,") {
		t.Errorf("%.1000s", table)
	}
	if code, pred, errs := ulisse(t, "", "predict", "out", "--data", rows); code != 0 || strings.Count(pred, "\n") != 2 || !strings.Contains(errs, "has not ended") {
		t.Error(code, pred, errs)
	}
	good(t, "draws", "out", "--out", "draws.npz")
}

// So it does at any moment of its beginning, when the embedded cluster is founded and takes the job.
func TestInterruptedEarly(t *testing.T) {
	spec := write(t, t.TempDir(), "s.yaml", strings.ReplaceAll(strings.ReplaceAll(smallSpec, "max_draws: 40", "max_draws: 100000"), "ess: 10", "ess: 1e9"))
	for after := range 8 {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(time.Duration(10*after)*time.Millisecond, cancel)
		var stdout, stderr bytes.Buffer
		a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
		if code := a.Execute(ctx, []string{"run", spec, "--out", filepath.Join(t.TempDir(), "out"), "-q"}); code != ExitInterrupted {
			t.Errorf("after %d ms: exit %d\n%s", 10*after, code, stderr.String())
		}
		timer.Stop()
		cancel()
	}
}

// A run whose time is up before its chains have drawn leaves what it knows: the mode and the
// curvature there, marked as provisional, and predictions from them.
func TestEndedInWarmup(t *testing.T) {
	dir := t.TempDir()
	var out, text string
	for _, most := range []string{"2s", "20s", "2m"} { // a machine that is busy may not find the mode in less
		out = filepath.Join(dir, most)
		spec := write(t, dir, "s.yaml", strings.NewReplacer("warmup: 20", "warmup: 1000000", "max_draws: 40", "max_draws: 40, max_time: "+most).Replace(smallSpec))
		var code int
		var stderr string
		if code, text, stderr = ulisse(t, "", "run", spec, "--out", out, "-q"); code != ExitUnconverged {
			t.Fatal(code, stderr)
		}
		if _, err := os.Stat(filepath.Join(out, "provisional.txt")); err == nil {
			break
		}
	}
	page := good(t, "report", out, "-o", "-")
	for _, m := range []string{text, good(t, "summary", out), page, string(must(os.ReadFile(filepath.Join(out, "provisional.txt"))))} {
		if !strings.Contains(m, "provisional: ") || strings.Contains(m, "NaN") {
			t.Errorf("%.1500s", m)
		}
	}
	// The truth is σ = 1: the mode is within a factor of ten.
	var sum struct{ Provisional report.Provisional }
	if err := json.Unmarshal([]byte(good(t, "summary", out, "--json")), &sum); err != nil || len(sum.Provisional.Parameters) == 0 {
		t.Fatal(err)
	}
	if p := sum.Provisional.Parameters[0]; p.Name != "sigma" || !(p.Q50 > 0.1 && p.Q50 < 10) {
		t.Errorf("%+v", p)
	}
	rows := write(t, dir, "new.csv", "x1,x2\n0,0\n")
	if code, pred, errs := ulisse(t, "", "predict", out, "--data", rows); code != 0 || strings.Count(pred, "\n") != 2 || !strings.Contains(errs, "provisional predictions") {
		t.Error(code, pred, errs)
	}
}

// What looks like classes, counts or gross errors is said before anybody waits for a result.
func TestHints(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "t.csv", "a,b,class\n1,2,0\n2,3,1\n3,1,1\n4,4,0\n")
	spec := write(t, dir, "s.yaml", "name: c\ndata: {path: t.csv, target: class}\n")
	for _, command := range []string{"validate", "plan"} {
		code, out, stderr := ulisse(t, "", command, spec)
		if code != 0 || strings.Contains(stderr, "hint: the target class has two values, 0 and 1") == (command == "plan") || strings.Contains(out, "hint") {
			t.Errorf("%s: exit %d\n%s\n%s", command, code, out, stderr)
		}
	}
	for args, want := range map[string]string{
		"run " + filepath.Join(dir, "t.csv"):  "a table goes under data: path:",
		"run " + spec + " --seed abc":         `bad value "abc" for "--seed" flag; see`,
		"extend " + dir + " --max-time later": `bad value "later" for "--max-time" flag; see`,
	} {
		code, _, stderr := ulisse(t, "", strings.Fields(args)...)
		if code != ExitBadInput || !strings.Contains(stderr, want) || strings.Contains(stderr, "strconv") || len(stderr) > 400 {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}

// What is no folder of a run is told apart from one whose run has not ended.
func TestNoFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "spec.yaml", smallSpec)
	t.Setenv(client.EnvCoordinators, "127.0.0.1:1")
	for arg, want := range map[string]string{
		filepath.Join(dir, "nothing"):   "there is no folder " + filepath.Join(dir, "nothing"),
		filepath.Join(dir, "spec.yaml"): "is a file: give the folder of a run",
		t.TempDir():                     "it is not the folder of a run",
		dir:                             "its run has not found the mode; 'ulisse run --resume",
		"nothing":                       "there is no folder nothing here, and no job could be asked for",
	} {
		for _, command := range [][]string{{"summary"}, {"report", "-o", "-"}, {"draws"}, {"predict", "--data", "x.csv"}} {
			args := append(command, arg)
			if !isPath(arg) {
				args = append(args, "--timeout", "100ms")
			}
			code, _, errs := ulisse(t, "", args...)
			if code != ExitBadInput && isPath(arg) || code == 0 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("%s: exit %d: %s", strings.Join(args, " "), code, errs)
			}
		}
	}
}

// On a terminal there is a line for each chain.
func TestTerminalProgress(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, TTY: true, Now: time.Now}
	if code := a.Execute(context.Background(), []string{"run", write(t, dir, "s.yaml", smallSpec), "--out", filepath.Join(dir, "out")}); code != 0 {
		t.Fatal(stderr.String())
	}
	for _, want := range []string{"chain 1", "chain 2", "40 draws", "R-hat", "ESS/h", "its"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is not in\n%q", want, stderr.String())
		}
	}
}

// The demo is one of the examples, and all of those are good specifications.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile("../../examples/demo.yaml")
	if err != nil || !bytes.Equal(text, demoSpec) {
		t.Errorf("examples/demo.yaml is not what --demo runs (%v)", err)
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if code, _, stderr := ulisse(t, "", "validate", "--spec-only", f); code != 0 {
			t.Errorf("%s: %s", f, stderr)
		}
	}
}
