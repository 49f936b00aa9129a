package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// wrongSpec is a job of a second or two, of one chain whose products are shared.
const wrongSpec = `
name: wrong
data: {synthetic: {n: 800, d: 2, sigma: 1, tau: 0.3, lambda: 0.05, seed: 7}} # six units
sampler: {method: fisher, chains: 1, warmup: 20, draws: 20, checkpoint: 10}
solver: {precision: float64, tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.01, ess: 1e9, max_draws: 20, max_time: 1h}
seed: 6
`

// workerNow is what ulisse workers tells of one.
type workerNow struct {
	State         string   `json:"state"`
	Disagreements []string `json:"disagreements"`
}

// named reports whether a worker does not compute the same numbers as another.
func (w workerNow) named(other string) bool {
	return strings.Contains(strings.Join(w.Disagreements, "\n")+"\n", other+": chain ")
}

func (c *cluster) worker(id string) workerNow {
	c.t.Helper()
	out, err := c.run("workers", "--json")
	if err != nil {
		c.t.Fatal(err)
	}
	var all []struct {
		ID string `json:"id"`
		workerNow
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, w := range all {
		if w.ID == id {
			return w.workerNow
		}
	}
	return workerNow{}
}

// A worker that flips a bit in one of many units of products, or that has a stale θ for some,
// is found by whoever it computes for, and named; who shares with another one finds it, too, and
// it is put aside; all draws are those of an undisturbed run. A stale θ is found in the same
// way once the worker was started again, which clears it. ULISSE_SPOIL_EVERY says of how many
// units one is spoilt (20 unless told).
func TestWrongNumbersAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: ten seconds")
	}
	t.Parallel() // it mostly waits for processes to start
	want := undisturbed(t, wrongSpec)
	c := &cluster{t: t, dir: t.TempDir(), keys: newKeys(t, "127.0.0.1")}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
	})
	m := newCoordinator(t, c, "c1")
	m.start(c, "--bootstrap-expect", "1", "--split-rows", "1")
	c.use(m)
	c.answers()
	metrics := map[string]string{"z": ""}
	for _, id := range []string{"w1", "w2"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		metrics[id] = l.Addr().String()
		l.Close()
	}
	worker := func(id, spoil string) *exec.Cmd {
		return c.spoilt(id, spoil, append([]string{"worker", "--id", id, "--dir", filepath.Join(c.dir, id), "--coordinators", m.grpc,
			"--listen", "127.0.0.1:0", "--metrics", metrics[id], "--cores", "1", "--min-rows", "1"}, c.keys.args("worker")...))
	}
	worker("w1", "yield/1000")
	worker("w2", "yield/1000")
	every := number(t, "ULISSE_SPOIL_EVERY", 20)
	bad := worker("z", fmt.Sprintf("bit/%d", every))
	c.until("three workers", 3*time.Minute, func() bool {
		return c.worker("w1").State == "ready" && c.worker("w2").State == "ready" && c.worker("z").State == "ready"
	})

	// Who is idle and first drives, and the others share its products.
	jobs := 0
	jobsUntil := func(what string, found func() bool) (last string) {
		t.Helper()
		for end := time.Now().Add(time.Duration(every) * 15 * time.Second); !found(); {
			if time.Now().After(end) {
				t.Fatalf("%s: not within %d jobs", what, jobs)
			}
			jobs++
			last = c.submitAs(fmt.Sprint("wrong", jobs), wrongSpec)
			c.ends(last, want, 3*time.Minute)
		}
		t.Logf("%s after %d jobs", what, jobs)
		return last
	}
	by := func() []string { // whom z does not agree with
		z := c.worker("z")
		return slices.DeleteFunc([]string{"w1", "w2"}, func(w string) bool { return !z.named(w) })
	}
	id := jobsUntil("z is found", func() bool { return len(by()) > 0 })
	first := by()
	if out, err := c.run("logs", id); err != nil || !strings.Contains(out, "workers "+first[0]+" and z do not compute the same numbers") {
		t.Errorf("the job's log: %v, %s", err, out)
	}
	if n := wrongUnits(t, metrics[first[0]]); n == "" || n == "0" {
		t.Errorf("the metrics of %s tell of %q wrong units", first[0], n)
	}
	if len(first) == 1 { // the other one has to do with z when this one is gone
		if z := c.worker("z"); z.State != "ready" {
			t.Errorf("one worker alone has put z aside: %+v", z)
		}
		if out, err := c.run("drain", first[0]); err != nil {
			t.Fatal(out, err)
		}
		c.until("it is gone", 3*time.Minute, func() bool { return c.worker(first[0]).State == "lost" })
		jobsUntil("z is found by both", func() bool { return len(by()) == 2 })
	}
	if z := c.worker("z"); z.State != "aside" {
		t.Errorf("two have found z: %+v", z)
	}

	end(bad)
	worker("z", "theta/3")
	c.until("z is back", 3*time.Minute, func() bool { z := c.worker("z"); return z.State == "ready" && len(z.Disagreements) == 0 })
	jobsUntil("the stale θ is found", func() bool { return len(by()) > 0 })
}

// spoilt runs a process that computes wrongly for others.
func (c *cluster) spoilt(id, spoil string, args []string) *exec.Cmd {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, id+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), "ULISSE_SPOIL="+spoil)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { end(cmd) })
	return cmd
}

// wrongUnits returns what a worker's metrics tell of wrong units.
func wrongUnits(t *testing.T, address string) string {
	t.Helper()
	if f := regexp.MustCompile(`(?m)^ulisse_tile_wrong_total (\S+)$`).FindStringSubmatch(metrics(t, address)); f != nil {
		return f[1]
	}
	return ""
}
