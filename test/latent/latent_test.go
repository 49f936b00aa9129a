// Package latent runs chains that carry latent vectors on real processes, which are
// the test's own binary: the method of the cluster's test (samplertest) is in them and in no
// other.
package latent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cli"
	"github.com/ulisse-gp/ulisse/internal/dev"
	_ "github.com/ulisse-gp/ulisse/internal/sampler/samplertest"
)

// asProgram makes the test binary the program.
const asProgram = "ULISSE_LATENT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.NewApp().Execute(context.Background(), os.Args[1:]))
	}
	os.Setenv(asProgram, "1") // of all children, and theirs
	os.Exit(m.Run())
}

// chaotic loses no bit without a trace.
const chaotic = `
name: latent
data: {synthetic: {n: 500, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: chaotic, chains: 3, warmup: 50, draws: %d, checkpoint: 10, subset: 50}
solver: {method: cg, preconditioner: {kind: none}}
stop: {rhat: 1.0001, ess: 1e9, max_draws: %d}
`

// augmented draws from a posterior, and carries the latent function.
const augmented = `
name: latent
data: {synthetic: {n: 12, d: 1, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
model: {likelihood: student-t}
sampler: {chains: 3, warmup: 50, draws: %d, checkpoint: 10}
stop: {rhat: 1.0001, ess: 1e9, max_draws: %d}
`

// program returns a command line of the program.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(exe, args...)
}

// specification writes a specification to a file.
func specification(t *testing.T, text string, draws int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spec.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, text, draws, draws), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// drawsOf returns the hash of the draws in what ulisse run --json printed.
func drawsOf(t *testing.T, out []byte, err error) string {
	t.Helper()
	if e, ok := err.(*exec.ExitError); err != nil && (!ok || e.ExitCode() != 3) { // 3: not converged
		t.Fatalf("ulisse run: %v: %s", err, out)
	}
	var sum struct {
		DrawsSHA256 string `json:"draws_sha256"`
	}
	if err := json.Unmarshal(out, &sum); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return sum.DrawsSHA256
}

// undisturbed returns the hash of the draws of a run that nothing happens to.
func undisturbed(t *testing.T, text string, draws int) string {
	t.Helper()
	out, err := program(t, "run", specification(t, text, draws), "--json", "--quiet", "--out", filepath.Join(t.TempDir(), "out")).Output()
	return drawsOf(t, out, err)
}

// cluster is a cluster of real processes.
type cluster struct {
	t   *testing.T
	dir string
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	cmd := program(t, "dev", "--dir", c.dir, "--coordinators", "3", "--workers", "3", "--cores", "1", "--grace", "2s", "--tls", "--auth", "tokens")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("dev said:\n%s", log.String())
			logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
			for _, name := range logs {
				text, _ := os.ReadFile(name)
				t.Logf("%s ends with:\n%s", filepath.Base(name), text[max(0, len(text)-2000):])
			}
		}
	})
	c.until("the cluster answers", func() bool { _, err := c.run("jobs", "--json"); return err == nil })
	return c
}

// run runs a client.
func (c *cluster) run(args ...string) ([]byte, error) {
	cmd := program(c.t, args...)
	cmd.Env = os.Environ()
	if text, err := os.ReadFile(filepath.Join(c.dir, "env")); err == nil {
		for line := range strings.Lines(string(text)) {
			cmd.Env = append(cmd.Env, strings.TrimPrefix(strings.TrimSpace(line), "export "))
		}
	}
	return cmd.Output()
}

func (c *cluster) until(what string, f func() bool) {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within three minutes", what)
		}
	}
}

// processes returns the children of a role, of all if it is empty.
func (c *cluster) processes(role string) []dev.Process {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "processes.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var all []dev.Process
	if err := json.Unmarshal(text, &all); err != nil {
		c.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p dev.Process) bool { return role != "" && p.Role != role })
}

// worker returns the process that drives a chain.
func (c *cluster) worker(name string) dev.Process {
	c.t.Helper()
	for _, p := range c.processes("worker") {
		if p.Name == name {
			return p
		}
	}
	c.t.Fatalf("there is no worker %q", name)
	return dev.Process{}
}

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

// draws returns those of the first chain, to which all happens.
func (j job) draws() int {
	if len(j.Chains) == 0 {
		return 0
	}
	return j.Chains[0].Draws
}

// job returns the one job; without chains while nobody answers.
func (c *cluster) job() job {
	var all []job
	out, err := c.run("jobs", "--json")
	if err != nil || json.Unmarshal(out, &all) != nil || len(all) != 1 {
		return job{}
	}
	return all[0]
}

// goesOn waits until the first chain has more draws, and a driver.
func (c *cluster) goesOn(than int) job {
	c.t.Helper()
	var j job
	c.until("more draws", func() bool {
		j = c.job()
		if j.DrawsSHA256 != "" {
			c.t.Fatal("the job was over before all had happened")
		}
		return j.draws() > than+30 && j.Chains[0].Worker != ""
	})
	return j
}

// A chain's latent vectors survive what its processes do not: the draws are those of
// a run that nothing happened to.
func TestLatentVectorsSurvive(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: a minute of real processes")
	}
	const draws = 5000
	want := undisturbed(t, chaotic, draws)
	c := start(t)
	if out, err := c.run("submit", specification(t, chaotic, draws), "--json"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	signal := func(s syscall.Signal, ps ...dev.Process) {
		for _, p := range ps {
			if err := syscall.Kill(p.PID, s); err != nil && err != syscall.ESRCH { // one that was drained has ended
				t.Error(err)
			}
		}
	}
	j := c.goesOn(0)
	signal(syscall.SIGKILL, c.worker(j.Chains[0].Worker)) // its successor has nothing but what was kept

	c.until("a driver anew", func() bool {
		now := c.job()
		return len(now.Chains) > 0 && (now.Chains[0].Attempt > j.Chains[0].Attempt || now.Chains[0].Draws > j.draws()+500)
	})
	j = c.goesOn(c.job().draws())
	stopped, attempt := c.worker(j.Chains[0].Worker), j.Chains[0].Attempt
	signal(syscall.SIGSTOP, stopped) // the chain moves, and its old driver comes back
	c.until("the move", func() bool {
		j := c.job()
		return len(j.Chains) > 0 && j.Chains[0].Attempt > attempt && j.Chains[0].Worker != "" && j.Chains[0].Worker != stopped.Name
	})
	j = c.goesOn(c.job().draws())
	signal(syscall.SIGCONT, stopped)

	j = c.goesOn(j.draws())
	if _, err := c.run("drain", j.Chains[0].Worker); err != nil { // a move in peace
		t.Error(err)
	}
	c.until("the move in peace", func() bool {
		now := c.job()
		return len(now.Chains) > 0 && now.Chains[0].Worker != "" && now.Chains[0].Worker != j.Chains[0].Worker
	})

	j = c.goesOn(c.job().draws())
	signal(syscall.SIGKILL, c.processes("")...)

	c.until("the end", func() bool { j = c.job(); return j.DrawsSHA256 != "" || j.State == "failed" })
	if j.State != "unconverged" || j.DrawsSHA256 != want {
		t.Errorf("the job ended %s with draws %s, want %s", j.State, j.DrawsSHA256, want)
	}
	for _, p := range c.processes("coordinator") {
		blobs, err := filepath.Glob(filepath.Join(c.dir, p.Name, "latents", "blobs", "*"))
		if err != nil || len(blobs) < 3 {
			t.Errorf("%s has %d encodings of latent vectors, %v", p.Name, len(blobs), err)
		}
	}
}

// A local run that is killed goes on with the same bits.
func TestLocalRunSurvives(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	const draws = 1000
	began := time.Now()
	want := undisturbed(t, augmented, draws)
	whole := time.Since(began)
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"run", specification(t, augmented, draws), "--json", "--quiet", "--out", out}
	for range 3 {
		cmd := program(t, args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(whole / 5)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || fmt.Sprint(err) != "signal: killed" {
			t.Fatalf("it was over before it was killed: %v: %s", err, said.String())
		}
		args = []string{"run", "--resume", out, "--json", "--quiet"}
	}
	text, err := program(t, args...).Output()
	if got := drawsOf(t, text, err); got != want {
		t.Errorf("draws %s, want %s", got, want)
	}
}
