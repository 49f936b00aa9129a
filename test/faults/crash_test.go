package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cli"
	"github.com/ulisse-gp/ulisse/internal/failpoint"
	_ "github.com/ulisse-gp/ulisse/internal/sampler/samplertest" // chains that carry latent vectors
)

// The test's own program is ulisse where failpoints are of use. It is told of them by the
// environment: to which file to write each point that is passed, and at which passing of which
// point to die, "point#passing", or for how long to sleep at each, "point=duration".
const (
	asProgram = "ULISSE_FAULTS_PROGRAM"
	traceTo   = "ULISSE_FAULTS_TRACE"
	dieAt     = "ULISSE_FAULTS_DIE"
	sleepAt   = "ULISSE_FAULTS_SLEEP"
)

// program is main of a test's own program.
func program() int {
	failpoint.Hook = hook()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.NewApp().Execute(ctx, os.Args[1:])
}

func hook() func(string) {
	var mu sync.Mutex
	passed := map[string]int{}
	die, number, _ := strings.Cut(os.Getenv(dieAt), "#")
	at, _ := strconv.Atoi(number)
	slow, text, _ := strings.Cut(os.Getenv(sleepAt), "=")
	pause, _ := time.ParseDuration(text)
	var trace *os.File
	if path := os.Getenv(traceTo); path != "" {
		trace, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	return func(point string) {
		if point == slow {
			time.Sleep(pause)
		}
		mu.Lock()
		defer mu.Unlock()
		passed[point]++
		if trace != nil {
			fmt.Fprintln(trace, os.Getpid(), point)
		}
		if point == die && passed[point] == at {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// points returns the names of all failpoints in the source.
func points(t *testing.T) []string {
	t.Helper()
	call := regexp.MustCompile(`(?:failpoint\.At|seam\.at|s\.update)\("([^"]*)"`)
	found := map[string]bool{}
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range call.FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(found) < 20 {
		t.Fatal(len(found), err)
	}
	return slices.Sorted(maps.Keys(found))
}

// elsewhere are the points that no workload here passes, and the tests that do.
var elsewhere = map[string]string{
	"blob close":           "internal/blob.TestCrashes",
	"blob remove":          "internal/blob.TestCrashes",
	"shrink":               "internal/cluster.TestFilesShrink",
	"shrink rename":        "internal/cluster.TestFilesShrink",
	"log shrink":           "internal/cluster.TestLogShrinks",
	"log shrink rename":    "internal/cluster.TestLogShrinks",
	"state shrink":         "internal/cluster.TestStateShrinks",
	"state shrink rename":  "internal/cluster.TestStateShrinks",
	"state take":           "internal/cluster.TestDivergedIsMadeAnew",
	"state replace":        "internal/cluster.TestDivergedIsMadeAnew",
	"state replace rename": "internal/cluster.TestDivergedIsMadeAnew",
}

// A workload is something that writes files, and is done again after a crash.
type workload struct {
	name string
	// do does it in a folder, with more in the environment of the process that may die, and again
	// until it is done. It fails if anything that was acknowledged is lost.
	do func(t *testing.T, dir string, env ...string)
}

// passings returns how often one process of a workload that nothing happens to passes each point, at
// most.
func (w workload) passings(t *testing.T) map[string]int {
	t.Helper()
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	w.do(t, dir, traceTo+"="+trace)
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	each, most := map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		_, point, _ := strings.Cut(line, " ")
		each[line]++
		most[point] = max(most[point], each[line])
	}
	return most
}

// A crash is the end of a process at a passing of a point.
type crash struct {
	point   string
	passing int
}

func (c crash) String() string { return fmt.Sprintf("%s#%d", c.point, c.passing) }

// crashes returns those to try of so many passings: the first three, the powers of two and the last.
func crashes(passings map[string]int) (all []crash) {
	for _, p := range slices.Sorted(maps.Keys(passings)) {
		n := passings[p]
		for k := 1; k <= n; k++ {
			if k <= 3 || k == n || k&(k-1) == 0 {
				all = append(all, crash{p, k})
			}
		}
	}
	return all
}

// A process that dies at any step of writing its files loses nothing that it acknowledged: it is
// started again, and the draws are the same. ULISSE_FAULTS=all walks through all steps, which takes
// some minutes (-parallel 8: it mostly waits); otherwise a few are tried.
func TestCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	all := thorough()
	walked := map[string]bool{}
	for _, w := range workloads(t) {
		var cases []crash
		if all {
			passings := w.passings(t)
			t.Logf("%s passes %v", w.name, passings)
			cases = crashes(passings)
			for p := range passings {
				walked[p] = true
			}
		} else {
			cases = sample[w.name]
		}
		for _, c := range cases {
			t.Run(w.name+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				w.do(t, t.TempDir(), dieAt+"="+c.String())
			})
		}
	}
	if !all {
		return
	}
	for _, p := range points(t) {
		if !walked[p] && elsewhere[p] == "" {
			t.Errorf("no workload passes the failpoint %q", p)
		}
	}
}

// sample are the crashes that are tried always.
var sample = map[string][]crash{
	"run":     {{"file rename", 1}, {"state apply", 3}, {"log done", 8}, {"blob commit", 5}, {"file rename", 12}},
	"cluster": {{"state rename", 1}},
	"export":  {{"export rename", 1}},
	"certs":   {{"file rename", 2}},
}

// Disks that take long for each write cost time, and nothing else.
func TestSlowDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	for _, w := range workloads(t) {
		slow := map[string]string{"run": "log store=150ms", "cluster": "state apply=500ms"}[w.name]
		if slow == "" || w.name == "cluster" && !thorough() {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.do(t, t.TempDir(), sleepAt+"="+slow)
		})
	}
}

const crashSpec = `
name: crash
data: {%s}
sampler: {method: chaotic, chains: 2, warmup: 20, draws: 40, checkpoint: 10, subset: 20}
solver: {method: cg, preconditioner: {kind: none}}
stop: {rhat: 1.0001, ess: 1e9, max_draws: 40}
`

// table is one of 60 rows.
func table() []byte {
	var b bytes.Buffer
	b.WriteString("x,y\n")
	for i := range 60 {
		x := float64(i) / 10
		fmt.Fprintf(&b, "%g,%g\n", x, float64(i*i%17)/17-0.5)
	}
	return b.Bytes()
}

// specification writes a job and its table into a folder.
func specification(t *testing.T, dir string) string {
	t.Helper()
	data, spec := filepath.Join(dir, "table.csv"), filepath.Join(dir, "spec.yaml")
	err := errors.Join(os.WriteFile(data, table(), 0o600), os.WriteFile(spec, fmt.Appendf(nil, crashSpec, "path: "+data+", target: y"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// itself runs the test's own program.
func itself(t *testing.T, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), append(env, asProgram+"=1")...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// killed reports whether a process died of a failpoint; any other failure but that of draws that
// have not converged is the test's.
func killed(t *testing.T, err error, stderr string) bool {
	t.Helper()
	e, ok := err.(*exec.ExitError)
	switch {
	case err == nil || ok && e.ExitCode() == 3:
		return false
	case ok && e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return true
	}
	t.Fatalf("%v: %s", err, stderr)
	return false
}

// mustDie fails if a process that should have died has not. How often a point is passed depends on the
// time, but for the first.
func mustDie(t *testing.T, env []string, died bool) {
	t.Helper()
	for _, e := range env {
		at, ok := strings.CutPrefix(e, dieAt+"=")
		switch {
		case ok && !died && strings.HasSuffix(at, "#1"):
			t.Errorf("%s was not passed", at)
		case ok && !died:
			t.Logf("%s was not passed", at)
		}
	}
}

func workloads(t *testing.T) []workload {
	want := sync.OnceValue(func() string { return undisturbedItself(t, t.TempDir()) })
	source := sync.OnceValue(func() string {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		_, errs, err := itself(t, nil, "run", specification(t, dir), "--json", "--quiet", "--out", out)
		killed(t, err, errs)
		for _, name := range exports {
			_, errs, err := itself(t, nil, "draws", out, "--out", filepath.Join(dir, name))
			killed(t, err, errs)
		}
		return out
	})
	return []workload{
		{"run", func(t *testing.T, dir string, env ...string) { crashRun(t, dir, env, want()) }},
		{"cluster", func(t *testing.T, dir string, env ...string) { crashCluster(t, dir, env, want()) }},
		{"export", func(t *testing.T, dir string, env ...string) { crashExport(t, dir, env, source()) }},
		{"certs", crashCerts},
	}
}

// undisturbedItself returns the hash of the draws of a run that nothing happens to.
func undisturbedItself(t *testing.T, dir string) string {
	t.Helper()
	out, errs, err := itself(t, nil, "run", specification(t, dir), "--json", "--quiet", "--out", filepath.Join(dir, "undisturbed"))
	killed(t, err, errs)
	return hashIn(t, out)
}

// crashRun is a local run, which is resumed.
func crashRun(t *testing.T, dir string, env []string, want string) {
	spec, out := specification(t, dir), filepath.Join(dir, "out")
	first := []string{"run", spec, "--json", "--quiet", "--out", out}
	text, errs, err := itself(t, env, first...)
	died := killed(t, err, errs)
	mustDie(t, env, died)
	if died {
		text, errs, err = itself(t, nil, "run", "--resume", out, "--json", "--quiet")
		if err != nil && strings.Contains(errs, "there is no run to resume") { // it had not begun
			text, errs, err = itself(t, nil, first...)
		}
		killed(t, err, errs)
	}
	if got := hashIn(t, text); got != want {
		t.Errorf("the draws are %s, not %s", got, want)
	}
	text, errs, err = itself(t, nil, "summary", out, "--json") // and the folder has them
	if err != nil || hashIn(t, text) != want {
		t.Errorf("the folder's draws: %v %s %.300s", err, errs, text)
	}
}

// exports are a file and a folder.
var exports = []string{"draws.nc", "draws.zarr"}

// crashExport writes draws in formats that are a file and that are a folder.
func crashExport(t *testing.T, dir string, env []string, source string) {
	died := false
	for _, name := range exports {
		path := filepath.Join(dir, name)
		_, errs, err := itself(t, env, "draws", source, "--out", path)
		if killed(t, err, errs) {
			died = true
			if _, err := os.Lstat(path); err == nil {
				exported(t, path, filepath.Join(filepath.Dir(source), name)) // there, so whole
			}
			_, errs, err = itself(t, nil, "draws", source, "--out", path)
			killed(t, err, errs)
		}
		exported(t, path, filepath.Join(filepath.Dir(source), name))
	}
	mustDie(t, env, died)
}

// exported fails if an export does not hold the files of another one, with the same draws. (Both hold the time at which
// they were made.)
func exported(t *testing.T, got, want string) {
	t.Helper()
	files := func(root string) map[string]string {
		all := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, _ := filepath.Rel(root, path)
			text, err := os.ReadFile(path)
			if all[name] = "there"; len(text) == 0 {
				all[name] = "empty"
			}
			if strings.HasPrefix(name, "posterior/") && !strings.HasPrefix(filepath.Base(name), ".") {
				all[name] = string(text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if g, w := files(got), files(want); !maps.Equal(g, w) || len(w) == 0 {
		t.Errorf("%s holds other files, or other draws: %d files, not %d", got, len(g), len(w))
	}
}

// crashCerts makes an authority and a certificate.
func crashCerts(t *testing.T, dir string, env ...string) {
	died := false
	for _, args := range [][]string{{"certs", "init", "--dir", dir}, {"certs", "issue", "--role", "worker", "--name", "w1", "--dir", dir}} {
		_, errs, err := itself(t, env, args...)
		if killed(t, err, errs) {
			died = true
			_, errs, err = itself(t, nil, args...)
			if _, half, ok := strings.Cut(errs, "cut short: remove "); ok {
				if err := os.Remove(strings.TrimSpace(half)); err != nil {
					t.Fatal(err)
				}
				_, errs, err = itself(t, nil, args...)
			}
			if err == nil || !strings.Contains(errs, "not overwritten") { // else both are there
				killed(t, err, errs)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.crt"))
	if _, errs, err2 := itself(t, nil, append([]string{"certs", "show"}, files...)...); err != nil || err2 != nil || len(files) != 2 {
		t.Errorf("%v: %v %s", files, err2, errs)
	}
	mustDie(t, env, died)
}

// crashCluster is the life of a job on a coordinator that may die: its table is uploaded, it is
// computed, backed up, deleted and restored.
func crashCluster(t *testing.T, dir string, env []string, want string) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, program: exe, more: []string{asProgram + "=1"}, keys: newKeys(t, "127.0.0.1")}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
	})
	c.keys.token = filepath.Join(dir, "admin-token") // the coordinator makes it
	m := newCoordinator(t, c, "c1")
	stop := c.supervise(m, env)
	c.until("the first token", 3*time.Minute, func() bool { _, err := os.Stat(c.keys.token); return err == nil })
	c.use(m)
	c.answers()
	c.background("w1", append([]string{"worker", "--id", "w1", "--dir", filepath.Join(dir, "w1"), "--coordinators", m.grpc, "--listen", "127.0.0.1:0", "--metrics", "", "--cores", "1"},
		c.keys.args("worker")...)...)
	must := func(what string, args ...string) {
		t.Helper()
		var err error
		c.until(what, 3*time.Minute, func() bool { _, err = c.run(args...); return err == nil })
	}
	spec, copies := specification(t, dir), filepath.Join(dir, "backup")
	var id string
	c.until("the job is taken", 3*time.Minute, func() bool {
		out, err := c.run("submit", spec, "--json", "--client-id", "once")
		if err != nil {
			return false
		}
		var j job
		if err := json.Unmarshal([]byte(out), &j); err != nil || id != "" && id != j.ID {
			t.Fatalf("%s after %s: %v", out, id, err)
		}
		id = j.ID
		return true
	})
	most := 0
	c.until("the job ends", 2*time.Minute, func() bool {
		j, ok := c.job(id)
		if ok && j.draws() < most {
			t.Fatalf("%d draws were acknowledged, and %d are there", most, j.draws())
		}
		most = max(most, j.draws())
		return ok && j.DrawsSHA256 != ""
	})
	c.ends(id, want, 3*time.Minute)
	must("a backup", "cluster", "backup", "--data", copies)
	must("the job is deleted", "delete", id)
	must("the backup is restored", "cluster", "restore", "--data", copies, "--yes")
	c.ends(id, want, 3*time.Minute)
	mustDie(t, env, stop())
	c.supervise(m, nil) // once more, over what is on disk
	c.ends(id, want, 3*time.Minute)
	if text, err := os.ReadFile(filepath.Join(dir, "c1.log")); err != nil || bytes.Contains(text, []byte("damaged")) {
		t.Errorf("the coordinator found its files damaged: %v", err)
	}
}

// supervise runs a coordinator, with more in its environment, and again without that if it dies
// of a failpoint. What it returns stops it, and reports whether it died.
func (c *cluster) supervise(m *coordinator, env []string) (stop func() (died bool)) {
	c.t.Helper()
	more := c.more
	c.more = slices.Concat(more, env)
	m.start(c)
	c.more = more
	cmd := m.cmd
	var stopping, died atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := cmd.Wait()
		if e, ok := err.(*exec.ExitError); !stopping.Load() && ok && e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			died.Store(true)
			m.start(c)
		}
	}()
	return func() bool {
		stopping.Store(true)
		select {
		case <-done:
		default:
		}
		cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if died.Load() {
			m.cmd.Process.Signal(syscall.SIGTERM)
			m.cmd.Wait()
		}
		return died.Load()
	}
}
