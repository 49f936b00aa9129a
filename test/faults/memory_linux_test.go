package faults

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// largeSpec is a job whose preconditioner alone takes rows times rank numbers.
const largeSpec = `
name: large
data: {synthetic: {n: %d, d: 2, sigma: 1, tau: 0.3, lambda: 0.05, seed: 8}}
sampler: {method: fisher, chains: 1, warmup: 5, draws: 5, checkpoint: 5}
solver: {tolerance: 1e-4, preconditioner: {kind: rpcholesky, rank: %d}}
stop: {rhat: 1.01, ess: 1e9, max_draws: 5, max_time: 1h}
seed: 4
`

// ofProcess returns a number from /proc/PID/status, by its name.
func ofProcess(t *testing.T, pid int, name string) uint64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == name+":" {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no %s of process %d", name, pid)
	return 0
}

// limitData bounds the memory that a process has for its data, and that those have that it starts.
func limitData(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	var was unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &was)
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: was.Max}, nil)
	}
	if err != nil {
		t.Skipf("limits of others cannot be set here: %v", err)
	}
}

// A worker whose memory runs out, which did not know that it would, is lost with what it was computing, and
// with nothing that was acknowledged: its jobs go on elsewhere, or at the process that comes in its place, to
// the same draws. Workers that know how little they have refuse a job that needs more, which
// fails with one sentence, and other jobs go on.
func TestMemoryRunsOut(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	t.Parallel() // it mostly waits
	small, large := fmt.Sprintf(recoverSpec, "small", 60, 60), fmt.Sprintf(largeSpec, 1000, 1000)
	want, wantLarge := undisturbed(t, small), undisturbed(t, large)
	c := start(t, 1, 2)
	first := c.submitAs("first", small)
	c.until("some draws", 3*time.Minute, func() bool { j, ok := c.job(first); return ok && j.draws() > 0 })
	workers := c.processes("worker")
	for _, w := range workers {
		limitData(t, w.PID, ofProcess(t, w.PID, "VmData")<<10+4<<20)
	}
	second := c.submitAs("second", large)
	c.ends(second, wantLarge, 5*time.Minute)
	c.ends(first, want, 5*time.Minute)
	if died := c.ranOut(); died == 0 {
		t.Error("no worker ran out of memory: nothing was tried")
	} else {
		t.Logf("%d workers ran out of memory", died)
	}

	limitData(t, int(ofProcess(t, c.processes("coordinator")[0].PID, "PPid")), 512<<20) // who starts them again
	workers = c.processes("worker")
	for _, w := range workers {
		if err := unix.Kill(w.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	c.until("workers with less memory", 3*time.Minute, func() bool {
		for i, w := range c.processes("worker") {
			var l unix.Rlimit
			if w.PID == workers[i].PID || unix.Prlimit(w.PID, unix.RLIMIT_DATA, nil, &l) != nil || l.Cur != 512<<20 {
				return false
			}
		}
		return true
	})
	third := c.submitAs("third", fmt.Sprintf(largeSpec, 6000, 5000))
	fourth := c.submitAs("fourth", strings.Replace(small, "small", "fourth", 1))
	c.until("the job that is too large fails", 5*time.Minute, func() bool { j, ok := c.job(third); return ok && j.State == "failed" })
	out, err := c.run("logs", third)
	if err != nil || !regexp.MustCompile(`failed: .*it needs [0-9.]+ [GM]iB of memory at the least, and this worker has 512 MiB`).MatchString(out) {
		t.Errorf("the job's log: %v, %s", err, out)
	}
	c.ends(fourth, want, 5*time.Minute)
}

// ranOut returns how often workers ran out of memory, as their logs say.
func (c *cluster) ranOut() (n int) {
	c.t.Helper()
	for _, w := range c.processes("worker") {
		text, err := os.ReadFile(filepath.Join(c.dir, w.Name+".log"))
		if err != nil {
			c.t.Fatal(err)
		}
		n += strings.Count(string(text), "out of memory")
	}
	return n
}
