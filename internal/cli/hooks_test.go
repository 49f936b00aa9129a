package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run on this machine tells its hook how it ended, once, before it returns.
func TestRunTellsItsHook(t *testing.T) {
	dir := t.TempDir()
	spec, told := write(t, dir, "s.yaml", smallSpec), filepath.Join(dir, "told")
	t.Setenv("TOLD", told)
	code, stdout, stderr := ulisse(t, "", "run", spec, "--out", filepath.Join(dir, "out"), "--quiet", "--hook-command", `echo "$ULISSE_EVENT $ULISSE_JOB_NAME" >> "$TOLD"`)
	if code != ExitConverged {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	if text, err := os.ReadFile(told); err != nil || string(text) != "converged small\n" {
		t.Errorf("told %q, %v", text, err)
	}
}

func TestHookFlags(t *testing.T) {
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec+"notify: {webhooks: [\"https://hooks.example.org/x\"]}\n")
	empty := write(t, dir, "empty", " \n")
	for what, args := range map[string][]string{
		"webhook-hosts":       {"run", spec},
		"not a URL":           {"run", spec, "--webhook", "example.org"},
		"is empty":            {"run", spec, "--webhook", "https://example.org", "--webhook-secret-file", empty},
		"webhook-secret-file": {"coordinator", "--webhook", "https://example.org", "--webhook-secret-file", filepath.Join(dir, "none")},
		"not a host":          {"coordinator", "--webhook-hosts", "*"},
		"notify.webhooks[0]:": {"run", spec, "--webhook-hosts", "example.org"},
	} {
		if code, _, stderr := ulisse(t, "", args...); code != ExitBadInput || !strings.Contains(stderr, what) {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}
