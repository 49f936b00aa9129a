// Package faults runs a cluster of real processes, breaks it in every way that
// the machine offers, and looks whether the draws come out the same.
package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/dev"
)

var binary string

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(program())
	}
	dir, err := os.MkdirTemp("", "ulisse-faults")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "ulisse")
	out, err := exec.Command("go", "build", "-tags", "faults", "-o", binary, "github.com/ulisse-gp/ulisse/cmd/ulisse").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "building ulisse: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// specText is a job of some ten seconds on two cores.
const specText = `
name: faults
data: {synthetic: {n: 600, d: 3, sigma: 1, tau: 0.3, lambda: 0.05, seed: 5}}
sampler: {method: fisher, chains: 4, warmup: 40, draws: %d, checkpoint: 20}
solver: {tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.01, ess: 1e9, max_draws: %d, max_time: 1h}
seed: %d
`

// cluster is a cluster of child processes.
type cluster struct {
	t       *testing.T
	dir     string
	prefix  []string // of the client's command line
	keys    *keys    // of clusters that 'ulisse dev' does not run
	program string   // in place of the binary, if set
	more    []string // of its environment
}

// run runs ulisse and returns what it printed.
func (c *cluster) run(args ...string) (string, error) {
	c.t.Helper()
	var out, errs bytes.Buffer
	argv := append(slices.Clone(c.prefix), c.executable())
	argv = append(argv, args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = c.env()
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("ulisse %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

func (c *cluster) executable() string {
	if c.program != "" {
		return c.program
	}
	return binary
}

func (c *cluster) env() []string {
	env := append(os.Environ(), c.more...)
	if text, err := os.ReadFile(filepath.Join(c.dir, "env")); err == nil {
		for line := range strings.Lines(string(text)) {
			env = append(env, strings.TrimPrefix(strings.TrimSpace(line), "export "))
		}
	}
	return env
}

// processes returns the children, by role if one is given.
func (c *cluster) processes(role string) []dev.Process {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "processes.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var all, out []dev.Process
	if err := json.Unmarshal(text, &all); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range all {
		if role == "" || p.Role == role {
			out = append(out, p)
		}
	}
	return out
}

// start runs a cluster, over TLS and with tokens, until the test ends.
func start(t *testing.T, coordinators, workers int) *cluster {
	t.Helper()
	return startProgram(t, binary, coordinators, workers)
}

func startProgram(t *testing.T, program string, coordinators, workers int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "dev", "--dir", c.dir, "--coordinators", strconv.Itoa(coordinators),
		"--workers", strconv.Itoa(workers), "--cores", "1", "--grace", "2s", "--tls", "--auth", "tokens")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("dev said:\n%s", log.String())
			c.showLogs()
		}
	})
	c.answers()
	return c
}

// answers waits until the cluster answers.
func (c *cluster) answers() {
	c.t.Helper()
	c.until("the cluster answers", 3*time.Minute, func() bool {
		_, err := c.run("jobs", "--json")
		return err == nil
	})
}

// showLogs logs the ends of the processes' logs.
func (c *cluster) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		c.t.Logf("%s ends with:\n%s", filepath.Base(name), text[max(0, len(text)-3000):])
	}
}

func (c *cluster) until(what string, most time.Duration, f func() bool) {
	c.t.Helper()
	for end := time.Now().Add(most); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within %v", what, most)
		}
	}
}

// job is what ulisse jobs --json tells of one.
type job struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	DrawsSHA256 string `json:"draws_sha256"`
	Chains      []struct {
		Draws   int    `json:"draws"`
		Worker  string `json:"worker"`
		Attempt int64  `json:"attempt"`
	} `json:"chains"`
}

func (j job) draws() int {
	n := 0
	for _, c := range j.Chains {
		n += c.Draws
	}
	return n
}

// file writes a file for a command.
func (c *cluster) file(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// submit submits the specification once, whatever happens to the coordinators.
func (c *cluster) submit(spec string) string {
	c.t.Helper()
	return c.submitAs(c.t.Name(), spec)
}

func (c *cluster) submitAs(clientID, spec string) string {
	c.t.Helper()
	out, err := c.run("submit", c.file("spec.yaml", spec), "--json", "--client-id", clientID)
	if err != nil {
		c.t.Fatal(err)
	}
	var j job
	if err := json.Unmarshal([]byte(out), &j); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return j.ID
}

// job returns a job, or false while nobody answers.
func (c *cluster) job(id string) (job, bool) {
	c.t.Helper()
	out, err := c.run("jobs", "--json")
	if err != nil {
		return job{}, false
	}
	var all []job
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, j := range all {
		if j.ID == id {
			return j, true
		}
	}
	c.t.Fatalf("job %s is lost; there are %v", id, all)
	return job{}, false
}

// ends waits for the end of a job and checks the hash of its draws.
func (c *cluster) ends(id, want string, most time.Duration) {
	c.t.Helper()
	var j job
	c.until("the job ends", most, func() bool {
		var ok bool
		j, ok = c.job(id)
		return ok && (j.State == "converged" || j.State == "unconverged" || j.State == "failed" || j.State == "cancelled")
	})
	if j.State != "unconverged" || j.DrawsSHA256 != want {
		c.t.Fatalf("the job ended %s with draws %s, want %s", j.State, j.DrawsSHA256, want)
	}
}

// undisturbed returns the hash of the draws as ulisse run computes them.
func undisturbed(t *testing.T, spec string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "spec.yaml")
	if err := os.WriteFile(path, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "run", path, "--json", "--quiet", "--out", filepath.Join(dir, "out")).Output()
	if e, ok := err.(*exec.ExitError); err != nil && (!ok || e.ExitCode() != 3) {
		t.Fatalf("ulisse run: %v: %s", err, out)
	}
	return hashIn(t, string(out))
}

// hashIn returns the hash of the draws in a summary.
func hashIn(t *testing.T, summary string) string {
	t.Helper()
	var sum struct {
		DrawsSHA256 string `json:"draws_sha256"`
	}
	if err := json.Unmarshal([]byte(summary), &sum); err != nil {
		t.Fatalf("%v: %s", err, summary)
	}
	return sum.DrawsSHA256
}

// lasting returns a job of at least so many draws for each chain, and more where
// the machine is fast, so that much can happen while it is at work; and the hash
// of its draws.
func lasting(t *testing.T, least, seed int) (spec, want string, draws int) {
	t.Helper()
	const enough = 18 * time.Second
	run := func() string {
		spec = fmt.Sprintf(specText, draws, draws, seed)
		return undisturbed(t, spec)
	}
	draws = least
	began := time.Now()
	want = run()
	if took := time.Since(began); took < enough {
		draws = int(float64(least) * enough.Seconds() / took.Seconds())
		want = run()
	}
	return spec, want, draws
}

func kill(ps ...dev.Process) {
	for _, p := range ps {
		syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

// leader returns the coordinator that leads.
func (c *cluster) leader() (dev.Process, bool) {
	out, err := c.run("cluster", "members", "--json")
	if err != nil {
		return dev.Process{}, false
	}
	var members struct {
		Leader string `json:"leader"`
	}
	if err := json.Unmarshal([]byte(out), &members); err != nil {
		return dev.Process{}, false
	}
	for _, p := range c.processes("coordinator") {
		if p.Name == members.Leader {
			return p, true
		}
	}
	return dev.Process{}, false
}

// The draws on one worker and on several are those of ulisse run.
func TestAnyNumberOfWorkers(t *testing.T) {
	draws := 100
	moved, staged := fmt.Sprintf(specText, draws, draws, 1), stagedText
	wantMoved, wantStaged := undisturbed(t, moved), undisturbed(t, staged)
	numbers := []int{1, 4}
	if testing.Short() {
		numbers = []int{2}
	}
	for _, n := range numbers {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			c := start(t, 1, n)
			c.ends(c.submitAs("moved", moved), wantMoved, 3*time.Minute)
			c.ends(c.submitAs("staged", staged), wantStaged, 3*time.Minute)
		})
	}
}

// stagedText is of a run whose work is items of stages, which any worker computes.
const stagedText = `
name: staged
data: {synthetic: {n: 150, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: auto, chains: 2, draws: 200, auto: {starts: 3}}
stop: {rhat: 1.01, ess: 1e6, max_draws: 200}
`

// A fault does something bad to a cluster and returns what to undo later.
type fault struct {
	name string
	do   func(c *cluster, r *rand.Rand) (undo func())
}

func pick(r *rand.Rand, ps []dev.Process) dev.Process { return ps[r.IntN(len(ps))] }

var faults = []fault{
	{"a worker is killed", func(c *cluster, r *rand.Rand) func() {
		kill(pick(r, c.processes("worker")))
		return nil
	}},
	{"the leader is killed", func(c *cluster, r *rand.Rand) func() {
		if p, ok := c.leader(); ok {
			kill(p)
		}
		return nil
	}},
	{"a coordinator is killed", func(c *cluster, r *rand.Rand) func() {
		kill(pick(r, c.processes("coordinator")))
		return nil
	}},
	{"all workers are killed", func(c *cluster, r *rand.Rand) func() {
		kill(c.processes("worker")...)
		return nil
	}},
	{"all coordinators are killed", func(c *cluster, r *rand.Rand) func() {
		kill(c.processes("coordinator")...)
		return nil
	}},
	{"everything is killed", func(c *cluster, r *rand.Rand) func() {
		kill(c.processes("")...)
		return nil
	}},
	{"a worker is stopped for a while", func(c *cluster, r *rand.Rand) func() {
		p := pick(r, c.processes("worker"))
		syscall.Kill(p.PID, syscall.SIGSTOP)
		return func() { syscall.Kill(p.PID, syscall.SIGCONT) }
	}},
	{"the leader is stopped for a while", func(c *cluster, r *rand.Rand) func() {
		p, ok := c.leader()
		if !ok {
			return nil
		}
		syscall.Kill(p.PID, syscall.SIGSTOP)
		return func() { syscall.Kill(p.PID, syscall.SIGCONT) }
	}},
}

// Faults of all kinds, at random moments, with the same draws at the end.
// ULISSE_FAULTS says how many (8 unless told), ULISSE_SEED which.
func TestRandomFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: minutes")
	}
	n, seed := number(t, "ULISSE_FAULTS", len(faults)), number(t, "ULISSE_SEED", 1)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	draws := 100 * n
	c := start(t, 3, 3)
	jobs := 0
	var id, want string
	next := func() {
		if jobs == n {
			t.Fatalf("%d jobs were over before %d faults had come about", jobs, n)
		}
		spec := fmt.Sprintf(specText, draws, draws, seed+1000*jobs)
		jobs++
		want = undisturbed(t, spec)
		id = c.submitAs(fmt.Sprintf("%s-%d", t.Name(), jobs), spec)
	}
	next()
	order := r.Perm(len(faults))
	for i := 0; i < n; {
		// Some progress between faults, so that they fall into the whole run.
		var j job
		before := -1
		c.until("some progress", 2*time.Minute, func() bool {
			var ok bool
			if j, ok = c.job(id); !ok {
				return false
			}
			if before < 0 {
				before = j.draws()
			}
			return j.draws() > before || j.DrawsSHA256 != ""
		})
		if j.DrawsSHA256 != "" { // a fast machine: the rest happens to another job
			c.ends(id, want, 3*time.Minute)
			next()
			continue
		}
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
		f := faults[r.IntN(len(faults))]
		if i < len(order) { // each kind once
			f = faults[order[i]]
		}
		t.Logf("at %d draws: %s", j.draws(), f.name)
		undo := f.do(c, r)
		i++
		if undo != nil {
			time.Sleep(time.Duration(1000+r.IntN(5000)) * time.Millisecond)
			undo()
		}
	}
	c.ends(id, want, 10*time.Minute)
	t.Logf("%d faults in %d jobs, the last of draws %s", n, jobs, want)
}

// thorough reports whether all is to be tried: ULISSE_FAULTS=all.
func thorough() bool { return os.Getenv("ULISSE_FAULTS") == "all" }

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" || text == "all" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// metrics returns what a process tells at /metrics.
func metrics(t *testing.T, address string) string {
	t.Helper()
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
