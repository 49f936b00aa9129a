package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program returns the path of one of the binaries that hack/kubebox.sh builds, or
// skips the test.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("KUBEBOX_BIN")
	if dir == "" {
		t.Skip("no control plane: build one with hack/kubebox.sh and name its folder by KUBEBOX_BIN")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: build it with hack/kubebox.sh", err)
	}
	return path
}

// TestKubeScore: the checker's advice is followed, or refused in an annotation
// beside which the reason stands.
func TestKubeScore(t *testing.T) {
	score := program(t, "kube-score")
	for _, overlay := range overlays(t) {
		out, err := exec.Command(score, "score", "--kubernetes-version", "v1.34", "-o", "ci", write(t, overlay, render(t, overlay))).CombinedOutput()
		checks := 0
		for line := range strings.Lines(string(out)) {
			switch {
			case strings.HasPrefix(line, "[OK]"):
				checks++
			case strings.HasPrefix(line, "[SKIPPED]"): // not for this object, or by annotation
			default:
				t.Errorf("%s: %s", overlay, strings.TrimSpace(line))
			}
		}
		if err != nil || checks < 20 {
			t.Errorf("%s: %d checks passed, %v", overlay, checks, err)
		}
	}
}
