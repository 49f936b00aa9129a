package joblog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string, limit int64) *Store {
	t.Helper()
	s, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func texts(t *testing.T, s *Store, job string, chain int32) (out []string) {
	t.Helper()
	entries, _, err := s.Read(job, chain)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Text)
	}
	return out
}

func TestAppendAndRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	odd := "\x00\u00e9<&>\"\n{" // a line is what it was, whatever is in it
	long := strings.Repeat("\x01", MaxLine+10)
	want := []Entry{{epoch, 1, "w", "one"}, {epoch, 2, "w", odd}, {epoch.Add(time.Second), 1, "v", long[:MaxLine]}, {epoch, 2, "w", "last"}}
	_, changed, err := s.Read("a", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append("a", []Entry{want[0], want[1]}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("a reader is not woken")
	}
	if err := s.Append("a", []Entry{{epoch.Add(time.Second), 1, "v", long}, want[3]}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append("b", []Entry{{Text: "other"}}); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 1<<30)
	got, _, err := s.Read("a", 0)
	if err != nil || !slices.EqualFunc(got, want, func(a, b Entry) bool { return a.key() == b.key() }) {
		t.Errorf("%d lines, %v", len(got), err)
	}
	if got := texts(t, s, "a", 2); !slices.Equal(got, []string{odd, "last"}) {
		t.Errorf("chain 2: %q", got)
	}
	s.Remove("a")
	if got := texts(t, s, "a", 0); got != nil {
		t.Errorf("after removal: %q", got)
	}
	if got := texts(t, s, "b", 0); !slices.Equal(got, []string{"other"}) {
		t.Errorf("another job: %q", got)
	}
	if got := texts(t, s, "unknown", 0); got != nil {
		t.Errorf("an unknown job: %q", got)
	}
}

// A line that a crash has cut is passed over; those around it are there.
func TestCutLine(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	if err := s.Append("a", []Entry{{Text: "one"}, {Text: "two"}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.jsonl")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text[:len(text)-5], '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append("a", []Entry{{Text: "three"}}); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, s, "a", 0); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("%q", got)
	}
}

// A job's log is two files at most: the latest lines are there, and the count of
// bytes is right.
func TestRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 40 MB")
	}
	dir := t.TempDir()
	s := open(t, dir, 1<<30)
	line := strings.Repeat("x", MaxLine-100)
	n := 0
	for range 5 * fileBytes / MaxLine / 8 {
		var batch []Entry
		for range 8 {
			batch = append(batch, Entry{Text: fmt.Sprintf("%06d%s", n, line)})
			n++
		}
		if err := s.Append("a", batch); err != nil {
			t.Fatal(err)
		}
	}
	got := texts(t, s, "a", 0)
	if len(got) < fileBytes/MaxLine || len(got) > 2*(fileBytes/MaxLine+10) {
		t.Errorf("%d of %d lines are left", len(got), n)
	}
	for i, text := range got {
		if want := fmt.Sprintf("%06d", n-len(got)+i); text[:6] != want {
			t.Fatalf("line %d is %s, want %s", i, text[:6], want)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 || size(t, s) != s.total {
		t.Errorf("%d files, %v, %d bytes, counted %d", len(files), err, size(t, s), s.total)
	}
}

func size(t *testing.T, s *Store) (n int64) {
	t.Helper()
	files, err := s.files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		n += f.size
	}
	return n
}

// The logs of all jobs together stay within their limit: what was written to
// longest ago goes, also after a restart.
func TestMakeRoom(t *testing.T) {
	dir := t.TempDir()
	const limit = 10_000
	s := open(t, dir, limit)
	for i := range 30 {
		if i == 15 {
			s = open(t, dir, limit)
		}
		job := fmt.Sprintf("j%02d", i)
		if err := s.Append(job, []Entry{{Text: strings.Repeat("x", 1000)}}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-100) * time.Minute)
		if err := os.Chtimes(filepath.Join(dir, job+".jsonl"), old, old); err != nil {
			t.Fatal(err)
		}
		if n := size(t, s); n > limit || n != s.total {
			t.Fatalf("%d bytes after %d jobs, counted %d", n, i+1, s.total)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) < 7 || filepath.Base(left[len(left)-1]) != "j29.jsonl" || filepath.Base(left[0]) != fmt.Sprintf("j%02d.jsonl", 30-len(left)) {
		t.Errorf("%v %v", left, err)
	}
	s.Remove("j29")
	if size(t, s) != s.total {
		t.Errorf("%d bytes, counted %d", size(t, s), s.total)
	}
}

// A merged log has every line that any copy has, as often as the copy that has it
// most often, in the order of time.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var copies [][]Entry
		want := map[Entry]int{}
		for range rapid.IntRange(1, 4).Draw(t, "copies") {
			var c []Entry
			n := map[Entry]int{}
			for range rapid.IntRange(0, 12).Draw(t, "lines") {
				e := Entry{Time: epoch.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "time")) * time.Second), Text: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "text")}
				if rapid.Bool().Draw(t, "zone") {
					e.Time = e.Time.In(time.FixedZone("x", 3600))
				}
				c = append(c, e)
				n[e.key()]++
				want[e.key()] = max(want[e.key()], n[e.key()])
			}
			slices.SortStableFunc(c, func(a, b Entry) int { return a.Time.Compare(b.Time) })
			copies = append(copies, c)
		}
		got := Merge(copies[0], copies[1:]...)
		have := map[Entry]int{}
		for i, e := range got {
			have[e.key()]++
			if i > 0 && e.Time.Before(got[i-1].Time) {
				t.Fatalf("line %d is older than the one before", i)
			}
		}
		for e, n := range want {
			if have[e] != n {
				t.Fatalf("%v is there %d times, want %d", e, have[e], n)
			}
		}
		if len(have) != len(want) {
			t.Fatalf("%d lines, want %d", len(have), len(want))
		}
	})
}
