package kube

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// secrets runs deploy/k8s/secrets and returns what it printed and what it said.
func secrets(t *testing.T, ulisse string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	c := exec.Command(filepath.Join(deploy, "secrets"), args...)
	c.Env = append(os.Environ(), "ULISSE="+ulisse)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err = c.Run()
	return out.String(), said.String(), err
}

// TestSecretsRefuse: no key comes to lie in a checkout, and a run that fails prints
// nothing that kubectl could apply.
func TestSecretsRefuse(t *testing.T) {
	checkout := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", checkout).CombinedOutput(); err != nil {
		t.Skipf("git: %v: %s", err, out)
	}
	inside := filepath.Join(checkout, "deploy", "ca")
	for _, c := range []struct {
		ulisse, folder, want string
	}{
		{"true", inside, "is in the checkout"},
		{"no-such-program", filepath.Join(t.TempDir(), "ca"), "no program no-such-program"},
	} {
		stdout, stderr, err := secrets(t, c.ulisse, c.folder)
		if err == nil || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s, %s: %v, printed %q, said %q", c.ulisse, c.folder, err, stdout, stderr)
		}
		if _, err := os.Stat(filepath.Join(c.folder, "admin-token")); err == nil {
			t.Errorf("%s holds a token", c.folder)
		}
	}
	// The token alone needs no program.
	folder := filepath.Join(t.TempDir(), "ca")
	stdout, stderr, err := secrets(t, "no-such-program", "--token", folder)
	o := decode(t, []byte(stdout))
	if err != nil || len(o.all) != 1 || o.all[0].GetName() != "ulisse-admin-token" {
		t.Errorf("%v: %s%s", err, stdout, stderr)
	}
	if info, err := os.Stat(filepath.Join(folder, "admin-token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
}
