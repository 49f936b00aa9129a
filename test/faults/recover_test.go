package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// recoverSpec is a job of a second or two.
const recoverSpec = `
name: %s
data: {synthetic: {n: 300, d: 2, sigma: 1, tau: 0.3, lambda: 0.05, seed: 7}}
sampler: {method: fisher, chains: 2, warmup: 20, draws: %d, checkpoint: 5}
solver: {tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.01, ess: 1e9, max_draws: %d, max_time: 1h}
seed: 4
`

// coordinator is a coordinator's process, which nobody starts again.
type coordinator struct {
	id, dir, grpc, raft string
	cmd                 *exec.Cmd
}

func newCoordinator(t *testing.T, c *cluster, id string) *coordinator {
	t.Helper()
	var free []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		free = append(free, l.Addr().String())
	}
	return &coordinator{id: id, dir: filepath.Join(c.dir, id), grpc: free[0], raft: free[1]}
}

// background runs a process until the test ends, or it is killed.
func (c *cluster) background(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(c.executable(), args...)
	cmd.Env = append(os.Environ(), c.more...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { end(cmd) })
	return cmd
}

// end kills a process and waits for its end.
func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
	}
}

func (m *coordinator) start(c *cluster, more ...string) {
	c.t.Helper()
	m.cmd = c.background(m.id, slices.Concat([]string{"coordinator", "--id", m.id, "--dir", m.dir, "--listen", m.grpc, "--raft", m.raft, "--http", "", "--metrics", "", "--grace", "2s",
		"--auth", "tokens", "--bootstrap-token-file", c.keys.token}, c.keys.args("coordinator"), more)...)
}

// use points the client at coordinators.
func (c *cluster) use(ms ...*coordinator) {
	c.t.Helper()
	var list []string
	for _, m := range ms {
		list = append(list, m.grpc)
	}
	c.keys.env(filepath.Join(c.dir, "env"), list)
}

// members returns who leads, and the voters that are alive.
func (c *cluster) members() (leader string, voters []string) {
	out, err := c.run("cluster", "members", "--json")
	if err != nil {
		return "", nil
	}
	var m struct {
		Leader  string `json:"leader"`
		Members []struct {
			ID      string `json:"id"`
			Role    string `json:"role"`
			Healthy bool   `json:"healthy"`
		} `json:"members"`
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, x := range m.Members {
		if x.Healthy && x.Role != "non-voter" {
			voters = append(voters, x.ID)
		}
	}
	return m.Leader, voters
}

// Two of three coordinators are lost for good. The third one is recovered, goes
// on with all jobs and draws, and new ones join it.
func TestRecover(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: half a minute")
	}
	t.Parallel() // it mostly waits
	short, long := fmt.Sprintf(recoverSpec, "short", 20, 20), fmt.Sprintf(recoverSpec, "long", 400, 400)
	wantShort, wantLong := undisturbed(t, short), undisturbed(t, long)
	c := &cluster{t: t, dir: t.TempDir(), keys: newKeys(t, "127.0.0.1")}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
	})
	byID := map[string]*coordinator{}
	var old []*coordinator
	var raft, grpc []string
	for _, id := range []string{"c1", "c2", "c3"} {
		m := newCoordinator(t, c, id)
		byID[id] = m
		old, raft, grpc = append(old, m), append(raft, m.raft), append(grpc, m.grpc)
	}
	for _, m := range old {
		m.start(c, "--bootstrap-expect", "3", "--peers", strings.Join(raft, ","))
	}
	c.use(old...)
	c.answers()
	c.background("w1", append([]string{"worker", "--id", "w1", "--dir", filepath.Join(c.dir, "w1"), "--coordinators", strings.Join(grpc, ","), "--listen", "127.0.0.1:0", "--cores", "1"},
		c.keys.args("worker")...)...)
	first := c.submitAs("first", short)
	c.ends(first, wantShort, 3*time.Minute)
	second := c.submitAs("second", long)
	c.until("some draws", 3*time.Minute, func() bool { j, ok := c.job(second); return ok && j.draws() >= 20 })

	var survivor *coordinator
	c.until("a leader", 3*time.Minute, func() bool { id, _ := c.members(); survivor = byID[id]; return survivor != nil })
	for _, m := range old {
		end(m.cmd)
		if m != survivor {
			if err := os.RemoveAll(m.dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := c.run("cluster", "recover", "--dir", survivor.dir, "--id", survivor.id, "--servers", survivor.id+"="+survivor.raft); err != nil {
		t.Fatal(out, err)
	}
	survivor.start(c, "--bootstrap-expect", "0")
	c.use(survivor)
	c.answers()
	if out, err := c.run("cluster", "recover", "--dir", survivor.dir, "--id", survivor.id, "--servers", survivor.id+"="+survivor.raft); err == nil || !strings.Contains(err.Error(), "stop") {
		t.Errorf("a coordinator that runs was recovered: %s, %v", out, err)
	}
	c.ends(first, wantShort, 3*time.Minute)

	// New ones join; then the old one is not needed any more.
	fresh := []*coordinator{newCoordinator(t, c, "c4"), newCoordinator(t, c, "c5")}
	for _, m := range fresh {
		m.start(c, "--bootstrap-expect", "0", "--peers", survivor.raft)
	}
	c.until("three voters", 3*time.Minute, func() bool { _, voters := c.members(); return len(voters) == 3 })
	c.ends(second, wantLong, 5*time.Minute)
	end(survivor.cmd)
	c.use(fresh...)
	c.answers()
	c.ends(first, wantShort, 3*time.Minute)
	c.ends(second, wantLong, 3*time.Minute)
}

// A backup holds all jobs and draws; restoring it brings them back on all
// coordinators, and a damaged one changes nothing.
func TestBackupAndRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: half a minute")
	}
	t.Parallel() // it mostly waits
	spec := fmt.Sprintf(recoverSpec, "kept", 20, 20)
	want := undisturbed(t, spec)
	c := start(t, 3, 1)
	id := c.submitAs("kept", spec)
	c.ends(id, want, 3*time.Minute)
	must := func(args ...string) string {
		t.Helper()
		out, err := c.run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	draws := must("draws", id)
	file := filepath.Join(t.TempDir(), "backup")
	must("cluster", "backup", file)
	later := c.submitAs("later", strings.Replace(spec, "kept", "later", 1))
	c.ends(later, want, 3*time.Minute)
	must("delete", id)

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.run("cluster", "restore", damaged, "--yes"); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a damaged backup: %s, %v", out, err)
	}
	c.ends(later, want, 3*time.Minute)

	var follower string // passes it on
	c.until("a leader", 3*time.Minute, func() bool {
		l, ok := c.leader()
		for _, p := range c.processes("coordinator") {
			if p.Name != l.Name {
				follower = p.Addresses.GRPC
			}
		}
		return ok
	})
	must("cluster", "restore", file, "--yes", "--coordinators", follower)
	check := func() {
		t.Helper()
		c.ends(id, want, 3*time.Minute)
		var jobs []job
		if err := json.Unmarshal([]byte(must("jobs", "--json")), &jobs); err != nil || len(jobs) != 1 {
			t.Fatalf("there are %v (%v), want one job", jobs, err)
		}
		if must("draws", id) != draws {
			t.Fatal("the restored draws are others")
		}
	}
	check()
	kill(c.processes("coordinator")...)
	c.answers()
	check()
	c.ends(c.submitAs("after", strings.Replace(spec, "kept", "after", 1)), want, 3*time.Minute)
}
