package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/report"
)

func certificate(t *testing.T, dir string) *report.Certificate {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Certificate *report.Certificate }
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s.Certificate
}

// A run is certified as it ends or afterwards, with the same result, and an
// exact run is not to be certified.
func TestCertify(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", smallSpec)
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if code, _, stderr := ulisse(t, "", "run", spec, "--out", one, "-q", "--certify"); code != ExitConverged && code != ExitUnconverged {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	c := certificate(t, one)
	if c == nil || len(c.Parameters) != 3 || len(c.Text) == 0 || c.Draws != 250 || !(c.Acceptance > 0.2) || c.Rank == 0 {
		t.Fatalf("%+v", c)
	}
	for _, p := range c.Parameters {
		if !(p.ShiftError > 0 && p.ShiftError < 0.5 && p.SDRatio > 0.5 && p.SDRatio < 2) {
			t.Errorf("%+v", p)
		}
	}
	ulisse(t, "", "run", spec, "--out", two, "-q")
	if certificate(t, two) != nil {
		t.Error("a certificate that was not asked for")
	}
	ulisse(t, "", "run", "--resume", two, "-q", "--certify")
	if diff := cmp.Diff(c, certificate(t, two), cmpopts.IgnoreFields(chains.Cost{}, "Seconds")); diff != "" {
		t.Error(diff)
	}
	exact := write(t, dir, "e.yaml", strings.Replace(smallSpec, "method: fisher", "method: exact", 1))
	if code, _, _ := ulisse(t, "", "run", exact, "--out", filepath.Join(dir, "three"), "--certify"); code != ExitBadInput {
		t.Errorf("exit %d for an exact run to be certified", code)
	}
}
