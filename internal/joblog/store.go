package joblog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// MaxLine bounds a line, in bytes: what is longer is cut.
const MaxLine = 64 << 10

// fileBytes is the size from which a job's file is put aside for a new one. One
// that was put aside is kept.
const fileBytes = 8 << 20

// Entry is a line of a job's log.
type Entry struct {
	Time   time.Time `json:"time"`
	Chain  int32     `json:"chain"`
	Worker string    `json:"worker"`
	Text   string    `json:"text"`
}

// Store keeps lines in a folder, two files a job.
type Store struct {
	dir   string
	limit int64 // bytes of all files; those that were written to longest ago make room

	mu      sync.Mutex
	changed chan struct{}
	total   int64 // bytes of all files
}

// Open returns the store in a folder, which is made if need be.
func Open(dir string, limit int64) (*Store, error) {
	s := &Store{dir: dir, limit: limit, changed: make(chan struct{})}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	files, err := s.files()
	for _, f := range files {
		s.total += f.size
	}
	return s, err
}

// file is a file of a job's lines.
type file struct {
	name    string
	size    int64
	written time.Time
}

// files returns all files, the one that was written to longest ago first.
func (s *Store) files() (out []file, err error) {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil { // else it is gone
			out = append(out, file{e.Name(), st.Size(), st.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.name, b.name)) })
	return out, err
}

// paths returns a job's files: the one that was put aside, and the one that is
// written to.
func (s *Store) paths(job string) (aside, current string) {
	current = filepath.Join(s.dir, job+".jsonl")
	return current + ".1", current
}

// Append adds lines to a job's log. The job's id is a part of a file's name.
func (s *Store) Append(job string, entries []Entry) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range entries {
		e.Text = e.Text[:min(len(e.Text), MaxLine)]
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rotate(job); err != nil {
		return err
	}
	_, path := s.paths(job)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	n, err := f.Write(b.Bytes())
	s.total += int64(n)
	close(s.changed)
	s.changed = make(chan struct{})
	return errors.Join(err, f.Close(), s.makeRoom(path))
}

// rotate puts a job's file aside if it is large.
func (s *Store) rotate(job string) error {
	aside, current := s.paths(job)
	if st, err := os.Stat(current); err != nil || st.Size() <= fileBytes {
		return nil
	}
	if old, err := os.Stat(aside); err == nil {
		s.total -= old.Size()
	}
	return os.Rename(current, aside)
}

// makeRoom removes files that were written to longest ago, but not the one that
// is written to, until a tenth of the limit is free.
func (s *Store) makeRoom(but string) error {
	if s.total <= s.limit {
		return nil
	}
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if s.total <= s.limit-s.limit/10 {
			break
		}
		if path := filepath.Join(s.dir, f.name); path != but && os.Remove(path) == nil {
			s.total -= f.size
		}
	}
	return nil
}

// Read returns the lines of a job, of one of its chains or, for chain 0, of all;
// and a channel that is closed when there are more lines of any job.
func (s *Store) Read(job string, chain int32) (entries []Entry, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	aside, current := s.paths(job)
	for _, path := range []string{aside, current} {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		for line := range bytes.Lines(text) {
			var e Entry
			if json.Unmarshal(line, &e) == nil && (chain == 0 || e.Chain == chain) { // else a crash cut it
				entries = append(entries, e)
			}
		}
	}
	return entries, s.changed, nil
}

// Remove removes a job's lines.
func (s *Store) Remove(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	aside, current := s.paths(job)
	for _, path := range []string{aside, current} {
		if st, err := os.Stat(path); err == nil && os.Remove(path) == nil {
			s.total -= st.Size()
		}
	}
}

// Merge returns the entries of several copies of a log in the order of time,
// each as often as the copy that has it most often.
func Merge(own []Entry, others ...[]Entry) []Entry {
	out := slices.Clone(own)
	have := map[Entry]int{}
	for _, e := range own {
		have[e.key()]++
	}
	for _, other := range others {
		seen := map[Entry]int{}
		for _, e := range other {
			k := e.key()
			if seen[k]++; seen[k] > have[k] {
				have[k]++
				out = append(out, e)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return out
}

// key is the entry with its time in a form that compares.
func (e Entry) key() Entry {
	e.Time = e.Time.UTC().Round(0)
	return e
}
