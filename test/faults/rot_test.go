package faults

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bit that flips in any file of a run that was interrupted is found, and the run says so in a sentence;
// or the run goes on, to the same draws. ULISSE_ROT says how many bits of each file (none but of a few
// files unless told).
func TestRotOfARun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	flips := number(t, "ULISSE_ROT", 0)
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	spec := specification(t, dir)
	_, errs, err := itself(t, []string{dieAt + "=log done#20"}, "run", spec, "--json", "--quiet", "--out", out)
	if !killed(t, err, errs) {
		t.Fatal("the run was over before it was to die")
	}
	want := undisturbedItself(t, dir)
	again := func(dir string) (hash, errs string, err error) {
		text, errs, err := itself(t, nil, "run", "--resume", dir, "--json", "--quiet")
		if text != "" {
			hash = hashIn(t, text)
		}
		return hash, errs, err
	}
	var files []string
	err = filepath.WalkDir(out, func(path string, e fs.DirEntry, err error) error {
		if info, _ := e.Info(); err == nil && e.Type().IsRegular() && info.Size() > 0 {
			name, _ := filepath.Rel(out, path)
			files = append(files, name)
		}
		return err
	})
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	found, harmless := 0, 0
	for i, name := range files {
		n := flips
		if flips == 0 && (i%4 == 0 || strings.HasSuffix(name, "state.db")) {
			n = 1
		}
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			bad := filepath.Join(t.TempDir(), "out")
			if err := os.CopyFS(bad, os.DirFS(out)); err != nil {
				t.Fatal(err)
			}
			at, bit := r.IntN(len(text)), r.IntN(8)
			spoilt := bytes.Clone(text)
			spoilt[at] ^= 1 << bit
			if err := os.WriteFile(filepath.Join(bad, name), spoilt, 0o600); err != nil {
				t.Fatal(err)
			}
			hash, errs, err := again(bad)
			switch {
			case hash != "" && hash != want:
				t.Errorf("%s, bit %d of byte %d of %d: other draws, %s: %s", name, bit, at, len(text), hash, errs)
			case hash != "":
				harmless++
			case err == nil || strings.Contains(errs, "panic") || strings.Contains(errs, "goroutine ") || strings.Count(strings.TrimSpace(errs), "\n") > 2 || errs == "":
				t.Errorf("%s, bit %d of byte %d of %d: %v, in place of a sentence: %s", name, bit, at, len(text), err, errs)
			default:
				found++
				t.Logf("%s: %s", name, strings.TrimSpace(errs))
			}
		}
	}
	t.Logf("%d files, %d flips were found, %d did no harm", len(files), found, harmless)
}
