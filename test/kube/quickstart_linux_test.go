package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// block returns the code that follows a mark in deploy/README.md.
func block(t *testing.T, mark string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "<!-- "+mark+" -->\n```sh\n")
	code, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatalf("deploy/README.md has no code after %q", mark)
	}
	return code
}

// TestQuickStart does what deploy/README.md says, from an empty cluster to a
// watched job, in real pods.
func TestQuickStart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	code := block(t, "quick start")
	if n := strings.Count(code, "\n"); n > 10 {
		t.Errorf("%d commands", n)
	}
	for _, name := range []string{"kube-apiserver", "kubelet", "kube-scheduler", "kube-controller-manager", "etcd", "kubectl"} {
		program(t, name)
	}
	findDebian(t)
	if !isolate(t) {
		return
	}
	sh(t, "ip", "link", "set", "lo", "up")
	began := time.Now()
	p := startPlane(t)
	p.manage()
	bin := filepath.Join(p.dir, "bin")
	archive := filepath.Join(p.dir, "ulisse.tar")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// One program, in the image and at hand.
	program := filepath.Join(bin, "ulisse-linux-"+goarch(t))
	for _, args := range [][]string{{"hack/build", program, release}, {"go", "run", "./hack/image", "--arch", goarch(t), "--binaries", bin, "--version", release, "--out", archive}} {
		c := exec.Command(args[0], args[1:]...)
		c.Dir = "../.."
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	for name, target := range map[string]string{"ulisse": program, "kubectl": p.bin("kubectl")} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.startNode(archive)
	// The test's kubelet measures no disks.
	p.do("", "patch", "node", "vm", "--subresource=status", "--type=merge", "-p", `{"status": {"capacity": {"ephemeral-storage": "100Gi"}, "allocatable": {"ephemeral-storage": "100Gi"}}}`)
	volume := filepath.Join(p.dir, "volume") // a storage class's work
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(volume, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	p.do(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {capacity: {storage: 20Gi}, accessModes: [ReadWriteOnce], hostPath: {path: %q}}}`, volume), "apply", "-f", "-")
	p.since("an empty cluster", began)

	began = time.Now()
	c := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", "trap 'kill $(jobs -p)' EXIT\n"+code+"curl -sk https://localhost:7002/login | grep -i token >/dev/null\n")
	c.Dir = "../.."
	c.Env = append(os.Environ(), "HOME="+p.dir, "KUBECONFIG="+p.kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "converged") {
		events, _ := p.try("", "-n", "ulisse", "get", "events", "--sort-by=.lastTimestamp")
		t.Fatalf("%v\n%s\n%s", err, out, events)
	}
	t.Logf("%s", out)
	p.since("from an empty cluster to the end of a job", began)
}

// TestBeforeTheFirstApply: what the table names is there to be set.
func TestBeforeTheFirstApply(t *testing.T) {
	text, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "<!-- settings -->\n")
	if !ok {
		t.Fatal("deploy/README.md has no table of settings")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	defaults := loadChart(t).Values
	rows := strings.Split(table, "\n")[2:]
	for _, row := range rows {
		cells := strings.Split(row, "|")
		for _, name := range quoted(cells[4]) {
			var at any = defaults
			for key := range strings.SplitSeq(name, ".") {
				m, _ := at.(map[string]any)
				if at, ok = m[key]; !ok {
					t.Errorf("the chart has no setting %s", name)
				}
			}
		}
		if strings.Contains(cells[5], "component") {
			for _, name := range quoted(cells[5]) {
				if _, err := os.Stat(filepath.Join(deploy, "components", name)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if len(rows) < 10 {
		t.Errorf("%d rows", len(rows))
	}
}

// quoted returns what stands between backquotes.
func quoted(s string) []string {
	var out []string
	for i, part := range strings.Split(s, "`") {
		if i%2 == 1 {
			out = append(out, part)
		}
	}
	return out
}
