package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// nightly returns what the CronJob of deploy/k8s runs, with another folder and
// another cluster.
func nightly(t *testing.T, folder, address string) []string {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/k8s/components/backup/cronjob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Spec struct {
			JobTemplate struct {
				Spec struct {
					Template struct {
						Spec struct {
							Containers []struct{ Args []string }
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	if err := yaml.NewDecoder(bytes.NewReader(manifest)).Decode(&job); err != nil {
		t.Fatal(err)
	}
	args := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
	for i, a := range args {
		args[i] = strings.NewReplacer("/backup", folder, "ulisse:7000", address).Replace(a)
	}
	return args
}

// What the CronJob copies of one cluster is all that another needs: it
// predicts the same, to the last bit, and draws more from the same data.
func TestNightlyBackupRestored(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "backup")
	table := write(t, dir, "t.csv", toyTable())
	spec := write(t, dir, "s.yaml", strings.Replace(smallSpec, "data: {synthetic: {n: 120, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}", "data: {path: "+table+", target: y}", 1))
	newRows := write(t, dir, "new.csv", "a,b\n0.5,0.5\n1,-1\n")
	predicted := func(c *liveCluster) string {
		t.Helper()
		out := filepath.Join(dir, "predicted.csv")
		good(t, "predict", "small", "--data", newRows, "--out", out, "--coordinators", c.address)
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	before := liveClusterOf(t, "before", "w1")
	if code, _, stderr := ulisse(t, "", "submit", spec, "--wait", "--out", filepath.Join(dir, "out"), "-q", "--coordinators", before.address); code != ExitConverged {
		t.Fatalf("code %d: %s", code, stderr)
	}
	want := predicted(before)
	good(t, nightly(t, folder, before.address)...)

	after := liveClusterOf(t, "after", "w2")
	good(t, "cluster", "restore", "--data", folder, "--yes", "--coordinators", after.address)
	if got := predicted(after); got != want {
		t.Errorf("the restored cluster predicts\n%s, not\n%s", got, want)
	}
	good(t, "extend", "small", "--draws", "10", "--coordinators", after.address)
	if code, _, stderr := ulisse(t, "", "watch", "small", "--coordinators", after.address); code != ExitConverged {
		t.Errorf("the extended job: code %d: %s", code, stderr)
	}
	// Of a folder or a file, the wrong one.
	for want, args := range map[string][]string{
		"is a folder":            {"cluster", "restore", folder},
		"there is no backup":     {"cluster", "restore", "--data", dir},
		"--at is for copies":     {"cluster", "restore", "--at", "x", filepath.Join(folder, "x")},
		"--keep is for copies":   {"cluster", "backup", "--keep", "2", filepath.Join(dir, "file")},
		`there is no backup "x"`: {"cluster", "restore", "--data", "--at", "x", folder},
	} {
		if code, _, stderr := ulisse(t, "", append(args, "--coordinators", after.address)...); code != ExitBadInput || !strings.Contains(stderr, want) {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
}

// toyTable is y = a − b and noise that repeats.
func toyTable() string {
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range 120 {
		x, z := float64(i%12)/4-1.4, float64(i%7)/3-1
		noise := float64((i*i*37+i*11)%101)/101 - 0.5
		fmt.Fprintf(&b, "%.6f,%.6f,%.6f\n", x, z, x-z+noise)
	}
	return b.String()
}
