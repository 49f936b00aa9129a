package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// spreadSpec is a job of one chain, whose preconditioner, in five chunks of rows, its group builds and keeps.
const spreadSpec = `
name: spread
data: {synthetic: {n: 1100, d: 2, sigma: 1, tau: 0.3, lambda: 0.05, seed: 9}}
sampler: {method: fisher, chains: 1, probes: 4, warmup: 20, draws: 300, checkpoint: 5}
solver: {tolerance: 1e-5, preconditioner: {kind: rpcholesky, rank: 150}}
stop: {rhat: 1.01, ess: 1e9, max_draws: 300, max_time: 1h}
seed: 6
`

// A preconditioner that a cluster's workers build and keep together gives the draws of one process, though a member is killed with kill -9 while they build it, another one
// while the chain is under way, and then who drives it: the last one left goes on alone.
func TestMembersOfASpreadPreconditionerAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	t.Parallel() // it mostly waits
	want := undisturbed(t, spreadSpec)
	c := &cluster{t: t, dir: t.TempDir(), keys: newKeys(t, "127.0.0.1"), more: []string{"ULISSE_SPREAD=1"}}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
	})
	m := newCoordinator(t, c, "c1")
	m.start(c, "--bootstrap-expect", "1", "--split-rows", "1")
	c.use(m)
	c.answers()
	workers := map[string]*exec.Cmd{}
	for _, id := range []string{"w1", "w2", "w3", "w4"} {
		workers[id] = c.background(id, append([]string{"worker", "--id", id, "--dir", filepath.Join(c.dir, id), "--coordinators", m.grpc,
			"--listen", "127.0.0.1:0", "--metrics", "", "--cores", "1", "--min-rows", "1"}, c.keys.args("worker")...)...)
	}
	c.until("four workers", 3*time.Minute, func() bool {
		for id := range workers {
			if c.worker(id).State != "ready" {
				return false
			}
		}
		return true
	})
	id := c.submit(spreadSpec)

	building := func() string { // who builds one with a group
		for w := range workers {
			text, err := os.ReadFile(filepath.Join(c.dir, w+".log"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "the group builds a preconditioner") {
				return w
			}
		}
		return ""
	}
	killOther := func(but string) {
		for w, cmd := range workers {
			if w != but {
				end(cmd)
				delete(workers, w)
				return
			}
		}
	}
	driver := func() string {
		if j, ok := c.job(id); ok && len(j.Chains) > 0 {
			return j.Chains[0].Worker
		}
		return ""
	}
	for end := time.Now().Add(3 * time.Minute); building() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no group builds a preconditioner")
		}
	}
	killOther(building())
	draws := func(n int) func() bool {
		return func() bool { j, ok := c.job(id); return ok && (j.draws() >= n || j.State == "unconverged") }
	}
	c.until("some draws", 3*time.Minute, draws(5))
	killOther(driver())
	c.until("more draws", 3*time.Minute, draws(10))
	c.until("a driver that is left", 3*time.Minute, func() bool {
		w := driver()
		if workers[w] == nil {
			j, ok := c.job(id)
			return ok && j.State == "unconverged"
		}
		end(workers[w])
		delete(workers, w)
		return true
	})
	c.ends(id, want, 3*time.Minute)
	if len(workers) != 1 {
		t.Errorf("%d workers are left: the job ended before they were killed", len(workers))
	}
}
