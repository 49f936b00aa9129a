package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// The draws of a job are those of ulisse run, before and after an extension, and
// with a certificate.
func TestExtendAndCertify(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	cluster(t, "w1")
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", tinySpec)
	longer := write(t, dir, "l.yaml", strings.NewReplacer("draws: 20", "draws: 30", "max_draws: 20", "max_draws: 30").Replace(tinySpec))
	here, more := filepath.Join(dir, "here"), filepath.Join(dir, "more")
	good(t, "run", spec, "--out", here, "-q")
	good(t, "run", longer, "--out", more, "-q")
	there := filepath.Join(dir, "there")
	good(t, "submit", spec, "--wait", "--out", there)
	if summaryHash(t, here) != summaryHash(t, there) {
		t.Error("the draws are not those of ulisse run")
	}
	jobs := asJSON[[]object](t, "jobs")
	if len(jobs) != 1 || jobs[0]["name"] != "tiny" || jobs[0]["state"] != "converged" || jobs[0]["draws_sha256"] != summaryHash(t, here) {
		t.Errorf("got %v", jobs)
	}
	id := jobs[0]["id"].(string)
	if out := good(t, "summary", id[:4]); !strings.HasPrefix(out, "tiny: converged\n") {
		t.Error(out)
	}
	if w := asJSON[[]object](t, "workers"); len(w) != 1 || w[0]["id"] != "w1" || w[0]["state"] != "ready" {
		t.Errorf("got %v", w)
	}
	if code, _, stderr := ulisse(t, "", "pause", id); code != ExitFailure || !strings.Contains(stderr, "converged") {
		t.Error(code, stderr)
	}
	good(t, "extend", id, "--draws", "10")
	good(t, "watch", id)
	if sum := asJSON[object](t, "summary", id); sum["draws_sha256"] != summaryHash(t, more) {
		t.Error("the draws of the extended job are not those of a longer run")
	}
	good(t, "extend", id, "--certify")
	good(t, "watch", id)
	sum := asJSON[object](t, "summary", id)
	if c, ok := sum["certificate"].(object); !ok || c["draws"] != 250. || sum["draws_sha256"] != summaryHash(t, more) {
		t.Errorf("the certificate of the job is %v", sum["certificate"])
	}
	good(t, "delete", id)
	if jobs := asJSON[[]object](t, "jobs"); len(jobs) != 0 {
		t.Errorf("got %v", jobs)
	}
}
