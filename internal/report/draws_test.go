package report

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

func TestDrawsAreReadBack(t *testing.T) {
	for _, ard := range []bool{false, true} {
		s, d, m, r := testRun(ard, 20)
		dir := t.TempDir()
		if err := WriteAll(dir, Summarize(s, d, m, r, time.Second, "portable"), d, m, r); err != nil {
			t.Fatal(err)
		}
		got, err := ReadDraws(dir, m)
		if err != nil || len(got) != len(r.Chains) {
			t.Fatalf("%d chains: %v", len(got), err)
		}
		for c, ch := range r.Chains {
			if !slices.EqualFunc(got[c], ch.Draws, slices.Equal) {
				t.Errorf("chain %d is read otherwise", c+1)
			}
		}
		if _, err := ReadDraws(dir, kernel.Model{Dim: 3, ARD: true}); err == nil || !strings.Contains(err.Error(), "there is no column log_tau.") {
			t.Errorf("draws of another model: %v", err)
		}
		path := filepath.Join(dir, "draws", "chain-2.csv")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "# nothing\n", strings.Replace(string(text), "\n", "\nx,", 12), string(bytes.ReplaceAll(text, []byte("1"), []byte("NaN")))} {
			if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadDraws(dir, m); err == nil {
				t.Errorf("broken draws %.20q were read", bad)
			}
		}
	}
	if _, err := ReadDraws(t.TempDir(), kernel.Model{Dim: 2}); err == nil {
		t.Error("draws out of nowhere")
	}
}
