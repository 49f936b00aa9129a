package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/dev"
)

// build builds ulisse under another version and arithmetic.
func build(t *testing.T, version, arithmetic string) string {
	t.Helper()
	const in = "github.com/ulisse-gp/ulisse/internal/version."
	path := filepath.Join(t.TempDir(), "ulisse-"+version)
	out, err := exec.Command("go", "build", "-ldflags", "-X "+in+"Version="+version+" -X "+in+"Arithmetic="+arithmetic,
		"-o", path, "github.com/ulisse-gp/ulisse/cmd/ulisse").CombinedOutput()
	if err != nil {
		t.Fatalf("building %s: %v\n%s", version, err, out)
	}
	return path
}

// versions returns the versions of coordinators and workers by name, and the
// workers that are ready.
func (c *cluster) versions() (all map[string]string, ready int) {
	c.t.Helper()
	all = map[string]string{}
	var m struct {
		Members []struct {
			ID, Version string
			Healthy     bool
		} `json:"members"`
	}
	var ws []struct{ ID, State, Version string }
	members, err1 := c.run("cluster", "members", "--json")
	workers, err2 := c.run("workers", "--json")
	if err1 != nil || err2 != nil || json.Unmarshal([]byte(members), &m) != nil || json.Unmarshal([]byte(workers), &ws) != nil {
		return nil, 0
	}
	for _, x := range m.Members {
		if x.Healthy {
			all[x.ID] = x.Version
		}
	}
	for _, w := range ws {
		if all[w.ID] = w.Version; w.State == "ready" {
			ready++
		}
	}
	return all, ready
}

// A cluster is upgraded under load, one process after the other, workers first,
// the leader last. The job goes on, the draws are the same, and a worker of a
// version that rounds otherwise gets no chain of it.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: a minute")
	}
	spec, want, draws := lasting(t, 900, 11)
	first, second, third := build(t, "0.8.0", "1"), build(t, "0.9.0", "1"), build(t, "0.9.1", "2")
	installed := filepath.Join(t.TempDir(), "ulisse")
	install := func(program string) {
		t.Helper()
		text, err := os.ReadFile(program)
		if err == nil {
			err = os.WriteFile(installed+".new", text, 0o755)
		}
		if err == nil {
			err = os.Rename(installed+".new", installed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install(first)
	c := startProgram(t, installed, 3, 2)
	c.until("the old version", 3*time.Minute, func() bool {
		v, ready := c.versions()
		return ready == 2 && v["worker-1"] == "0.8.0" && v["coordinator-1"] == "0.8.0"
	})
	id := c.submit(spec)
	c.until("the chains run", 3*time.Minute, func() bool { j, ok := c.job(id); return ok && (j.State == "warmup" || j.State == "sampling") })

	// One of the wrong arithmetic, on the side.
	cmd := exec.Command(third, "worker", "--id", "other", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics", "", "--cores", "1",
		"--tls-cert", filepath.Join(c.dir, "tls", "worker.crt"), "--tls-key", filepath.Join(c.dir, "tls", "worker.key"))
	cmd.Env = slices.DeleteFunc(c.env(), func(v string) bool { return strings.HasPrefix(v, "ULISSE_TOKEN=") }) // it has a certificate
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	c.until("the other worker", 3*time.Minute, func() bool { v, _ := c.versions(); return v["other"] == "0.9.1" })

	install(second)
	replace := func(p dev.Process) {
		t.Helper()
		syscall.Kill(p.PID, syscall.SIGTERM)
		c.until(p.Name+" to come back as another version", 2*time.Minute, func() bool {
			v, ready := c.versions()
			return v[p.Name] == "0.9.0" && ready == 3
		})
	}
	for _, p := range c.processes("worker") {
		replace(p)
	}
	leader, _ := c.leader()
	for _, p := range c.processes("coordinator") {
		if p.Name != leader.Name {
			replace(p)
		}
	}
	for _, p := range c.processes("coordinator") {
		if p.Name == leader.Name {
			replace(p)
		}
	}
	j, ok := c.job(id)
	if !ok {
		t.Fatal("the cluster does not answer")
	}
	t.Logf("%d of %d draws when the upgrade was over", j.draws(), 4*draws)
	if j.DrawsSHA256 != "" {
		t.Error("the job was over before the upgrade was: make it longer")
	}
	for i, ch := range j.Chains {
		if ch.Worker == "other" {
			t.Errorf("chain %d is driven by a worker of another arithmetic", i)
		}
	}
	c.ends(id, want, 5*time.Minute)
	log, _ := c.run("workers", "--json")
	if !strings.Contains(log, `/2"`) {
		t.Errorf("the other worker does not say that it rounds otherwise: %s", log)
	}
}
