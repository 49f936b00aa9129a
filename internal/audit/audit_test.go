package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

type event struct {
	N int `json:"n"`
}

func lines(t *testing.T, path string) (out []int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatalf("%s: %q: %v", path, sc.Text(), err)
		}
		out = append(out, e.N)
	}
	return out
}

// Lines are whole, in order, in files of bounded size that nobody else reads,
// and go on in the same file after a restart.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	const most = 100
	n := 0
	for range 2 {
		l, err := open(path, most)
		if err != nil {
			t.Fatal(err)
		}
		for range 150 {
			if err := l.Append(event{n}); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	next := n
	for i := range Kept + 1 {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > most || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v", name, st.Size(), st.Mode())
		}
		in := lines(t, name)
		for j := len(in) - 1; j >= 0; j-- {
			if next--; in[j] != next {
				t.Fatalf("%s: event %d where %d should be", name, in[j], next)
			}
		}
	}
	if _, err := os.Stat(fmt.Sprintf("%s.%d", path, Kept+1)); err == nil {
		t.Error("one file too many is kept")
	}
}

func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // somebody made it readable
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if err := l.Append(event{50*i + j}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, n := range lines(t, path) {
		seen[n] = true
	}
	if len(seen) != 400 {
		t.Errorf("%d of 400 events", len(seen))
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := l.Append(event{}); err == nil {
		t.Error("a closed log takes events")
	}
}
