package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// edit replaces text in a file.
func edit(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), from) {
		t.Fatalf("%q is not in %s: %v", from, text, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// However a run comes to 80 draws of each chain, they are those of a run that was asked for 80 at
// the start.
func TestExtendFolder(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, "long")
	good(t, "run", write(t, dir, "long.yaml", strings.ReplaceAll(smallSpec, "40", "80")), "--out", long, "-q")
	want := summaryHash(t, long)
	spec := write(t, dir, "s.yaml", smallSpec)
	for name, extend := range map[string]func(folder string){
		"by draws": func(folder string) { good(t, "extend", folder, "--draws", "40", "-q") },
		"by draws and ESS": func(folder string) {
			if code, _, stderr := ulisse(t, "", "extend", folder, "--ess", "1e9"); code != ExitBadInput || !strings.Contains(stderr, "give --draws too") {
				t.Errorf("exit %d, %s", code, stderr)
			}
			if code, out, stderr := ulisse(t, "", "extend", folder, "--draws", "40", "--ess", "1e9", "-q"); code != ExitUnconverged || !strings.Contains(out, "below 1e+09") {
				t.Errorf("exit %d, %s%s", code, out, stderr)
			}
		},
		"by its specification": func(folder string) {
			edit(t, filepath.Join(folder, "spec.yaml"), "max_draws: 40", "max_draws: 80")
			edit(t, filepath.Join(folder, "spec.yaml"), "draws: 40", "draws: 80")
			good(t, "run", "--resume", folder, "-q")
			if code, _, stderr := ulisse(t, "", "run", "--resume", folder, "-q"); code != 0 || !strings.Contains(stderr, "has come to its end; 'ulisse extend") {
				t.Errorf("exit %d, %s", code, stderr)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "out")
			good(t, "run", spec, "--out", folder, "-q")
			if summaryHash(t, folder) == want {
				t.Fatal("there is nothing to extend")
			}
			extend(folder)
			if got := summaryHash(t, folder); got != want {
				t.Errorf("the draws are other ones")
			}
			edit(t, filepath.Join(folder, "spec.yaml"), "step: auto", "step: 0.5")
			if code, _, stderr := ulisse(t, "", "run", "--resume", folder); code == 0 || !strings.Contains(stderr, "sampler.step is not what") || strings.Contains(stderr, "rpc error") {
				t.Errorf("exit %d, %s", code, stderr)
			}
		})
	}
	for _, args := range [][]string{{}, {"--draws", "-1"}, {"--ess", "-1"}, {"--rhat", "0.5"}, {"--max-time", "-1s"}} {
		if code, _, stderr := ulisse(t, "", append([]string{"extend", long}, args...)...); code != ExitBadInput {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
}

// A run whose time is up goes on with more of it: 20 draws of warm-up are made in any time, so that
// the first run ends by its time because that is so short.
func TestExtendTime(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	calm, short := filepath.Join(dir, "calm"), filepath.Join(dir, "short")
	good(t, "run", write(t, dir, "s.yaml", smallSpec), "--out", calm, "-q")
	spec := write(t, dir, "short.yaml", strings.Replace(smallSpec, "max_draws: 40", "max_draws: 40, max_time: 1ms", 1))
	if code, out, stderr := ulisse(t, "", "run", spec, "--out", short, "-q"); code != ExitUnconverged || !strings.Contains(out+stderr, "max_time") {
		t.Fatalf("exit %d\n%s%s", code, out, stderr)
	}
	good(t, "extend", short, "--max-time", "5m", "-q")
	if summaryHash(t, short) != summaryHash(t, calm) {
		t.Error("the draws are other ones")
	}
}

// A job of a cluster goes on to another ESS, and its specification says so.
func TestExtendJob(t *testing.T) {
	cluster(t, "w1")
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", strings.NewReplacer("draws: 20", "draws: 10", "max_draws: 20", "max_draws: 30").Replace(tinySpec))
	folder := filepath.Join(dir, "out")
	good(t, "submit", spec, "--wait", "-q")
	good(t, "extend", "tiny", "--ess", "1e9", "--max-time", "1h")
	if code, _, stderr := ulisse(t, "", "watch", "tiny"); code != ExitUnconverged {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	good(t, "results", "tiny", "--out", folder)
	text := string(must(os.ReadFile(filepath.Join(folder, "summary.txt"))))
	resolved := string(must(os.ReadFile(filepath.Join(folder, "spec.yaml"))))
	if !strings.Contains(text, "60 draws kept") || !strings.Contains(text, "below 1e+09") || !strings.Contains(resolved, "ess: 1e+09") {
		t.Errorf("%s\n%s", text, resolved)
	}
	if code, _, stderr := ulisse(t, "", "extend", "tiny", "--ess", "5"); code != ExitBadInput || !strings.Contains(stderr, "give --draws too") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	good(t, "extend", "tiny", "--draws", "10")
}
