package server

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestGroupLimit(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{"memory.max": "max\n", "a/memory.max": "4294967296\n", "a/b/memory.max": "8589934592\n", "c/memory.max": "nonsense"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]int64{
		"0::/a/b\n": 4 << 30, "0::/a\n": 4 << 30, "0::/\n": math.MaxInt64, "0::/c\n": math.MaxInt64, "": math.MaxInt64,
		"5:memory:/a\n0::/d/e\n": math.MaxInt64, "0::/../a\n": 4 << 30,
	} {
		if got := groupLimit(root, groups); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
	if m := memory(); m < 64<<20 {
		t.Errorf("this machine has %d bytes", m)
	}
}
