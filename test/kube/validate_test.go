package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
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

// needTier skips a test unless $KUBE_TIER allows it.
func needTier(t *testing.T, n int) {
	t.Helper()
	if allowed, _ := strconv.Atoi(os.Getenv("KUBE_TIER")); allowed < n {
		t.Skipf("tier %d: set KUBE_TIER=%d", n, n)
	}
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

// TestServerSide is tier 1: a real API server takes every overlay, as strictly as
// it can, without a warning; and refuses what is wrong with them on purpose.
func TestServerSide(t *testing.T) {
	p := startPlane(t)
	p.do("", "create", "-f", "testdata/crds.yaml")
	namespace, err := os.ReadFile(filepath.Join(deploy, "base", "namespace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p.do(string(namespace), "apply", "-f", "-")
	p.wait("the kinds", func() error {
		_, err := p.try("", "get", "podmonitors,issuers,certificates", "-A")
		return err
	})
	dry := []string{"apply", "--dry-run=server", "--validate=strict", "-f", "-"}
	for _, overlay := range overlays(t) {
		began := time.Now()
		out, err := p.try(string(render(t, overlay)), dry...)
		if err != nil {
			t.Errorf("%s: %v", overlay, err)
		}
		if n := strings.Count(out, "(server dry run)"); n < 8 {
			t.Errorf("%s: %d objects taken:\n%s", overlay, n, out)
		}
		p.since(overlay, began)
	}
	for name, stream := range map[string][]byte{
		"examples/webhooks": kustomize(t, filepath.Join(deploy, "examples", "webhooks")),
		"examples/oidc":     kustomize(t, filepath.Join(deploy, "examples", "oidc")),
		"a backup":          kustomize(t, "testdata/backup"),
		"a list":            kustomize(t, "testdata/revoked"),
		"the chart":         mustTemplate(t, values(t, "ha", map[string]any{"backup.enabled": true, "ingress.enabled": true, "monitoring.podMonitor": true, "tls.certManager.enabled": true, "tls.revokedConfigMap": "ulisse-revoked"})),
	} {
		if _, err := p.try(string(stream), dry...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, example := range []string{"ingress.yaml"} {
		b, err := os.ReadFile(filepath.Join(deploy, "examples", example))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.try(string(b), append(dry, "-n", "ulisse")...); err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
	good := string(render(t, "ha"))
	for from, to := range map[string]string{
		"podManagementPolicy":             "podManagmentPolicy",
		"containerPort: 7000":             "containerPort: 99999",
		"whenUnsatisfiable":               "whenUnsatisfied",
		"allowPrivilegeEscalation: false": "allowPrivilegeEscalation: 7",
		"clusterIP: None":                 "clusterIP: Never",
	} {
		if bad := strings.Replace(good, from, to, 1); bad == good {
			t.Errorf("there is no %s to be spoilt", from)
		} else if _, err := p.try(bad, dry...); err == nil {
			t.Errorf("the server takes %s for %s", to, from)
		}
	}
	// A pod that may run as root is warned of.
	bad := strings.ReplaceAll(good, "runAsNonRoot: true", "runAsNonRoot: false")
	if _, err := p.try(bad, dry...); err == nil || !strings.Contains(err.Error(), "runAsNonRoot") {
		t.Errorf("pods that may be root pass without a warning: %v", err)
	}
}
