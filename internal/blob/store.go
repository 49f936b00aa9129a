package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

// Options of a store. The zero value sets no limits.
type Options struct {
	// Reserve is the number of bytes of the disk that uploads leave free.
	Reserve int64
	// MaxSize is the largest size of a blob in bytes; 0: no limit.
	MaxSize int64
	// Free returns the bytes that are free on the disk of dir; nil asks the system.
	Free func(dir string) (int64, error)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Store is a directory of blobs. Its methods can be used concurrently.
type Store struct {
	dir  string
	o    Options
	lock *flock.Flock

	mu      sync.Mutex
	writers map[string]*Writer // by partial
	readers map[string]int
	claimed int64 // bytes of the disk that are promised to open writers
}

// Open opens the store in dir, which is made if it is not there. Only one
// process at a time can have it open.
func Open(dir string, o Options) (*Store, error) {
	if o.Free == nil {
		o.Free = DiskFree
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{dir: dir, o: o, writers: map[string]*Writer{}, readers: map[string]int{}}
	for _, d := range []string{"blobs", "sums", "partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("blob store: %w", err)
		}
	}
	s.lock = flock.New(filepath.Join(dir, "lock"))
	ok, err := s.lock.TryLock()
	if err == nil && !ok {
		err = errors.New("another process has it open")
	}
	if err == nil {
		err = s.clean()
	}
	if err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("blob store %s: %w", dir, err)
	}
	return s, nil
}

// Close lets go of the directory. Writers and readers are to be closed before.
func (s *Store) Close() error { return s.lock.Close() }

// clean removes what a crash left that is of no use: files that were not yet
// renamed, and hashes and partials whose blob is not, or is already, there.
func (s *Store) clean() error {
	if err := atomicfile.SyncDir(s.dir); err != nil {
		return err
	}
	whole, err := names(filepath.Join(s.dir, "blobs"))
	if err != nil {
		return err
	}
	for _, d := range []string{"sums", "partial"} {
		files, err := names(filepath.Join(s.dir, d))
		if err != nil {
			return err
		}
		for _, name := range files {
			addr, _, _ := strings.Cut(name, ownerMark)
			_, there := slices.BinarySearch(whole, addr)
			if CheckAddress(addr) != nil || there != (d == "sums") {
				if err := os.Remove(filepath.Join(s.dir, d, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *Store) blobPath(addr string) string   { return filepath.Join(s.dir, "blobs", addr) }
func (s *Store) sumsPath(addr string) string   { return filepath.Join(s.dir, "sums", addr) }
func (s *Store) partialPath(key string) string { return filepath.Join(s.dir, "partial", key) }

// Uploads are the partial blobs of one owner. Each owner has its own: what one has
// sent is neither shown to others nor finished, or begun anew, by them.
type Uploads struct {
	s   *Store
	tag string
}

// ownerMark stands in the name of a partial before its owner's tag.
const ownerMark = "-"

// Of returns the uploads of an owner; with no name those that are nobody's in
// particular, such as copies from other nodes.
func (s *Store) Of(owner string) Uploads {
	if owner == "" {
		return Uploads{s: s}
	}
	h := sha256.Sum256([]byte(owner))
	return Uploads{s, ownerMark + hex.EncodeToString(h[:8])}
}

// key returns the name of a partial.
func (u Uploads) key(addr string) string { return addr + u.tag }

// Present returns how many bytes of a blob are there that is not whole yet.
func (u Uploads) Present(addr string) (int64, error) {
	if err := CheckAddress(addr); err != nil {
		return 0, err
	}
	fi, err := os.Stat(u.s.partialPath(u.key(addr)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// Usage returns the bytes that the owner's partials take.
func (u Uploads) Usage() (n int64, err error) {
	all, err := u.s.List()
	for _, in := range all {
		if !in.Complete && in.Owner == u.tag {
			n += in.Present
		}
	}
	return n, err
}

// Stat tells what there is of a blob, of partials only of one that is nobody's in
// particular. If nothing is, the error is ErrNotFound.
func (s *Store) Stat(addr string) (Info, error) {
	if err := CheckAddress(addr); err != nil {
		return Info{}, err
	}
	return s.stat(addr)
}

// stat tells what there is under a key.
func (s *Store) stat(key string) (Info, error) {
	addr, tag, owned := strings.Cut(key, ownerMark)
	in := Info{Addr: addr}
	if owned {
		in.Owner = ownerMark + tag
		fi, err := os.Stat(s.partialPath(key))
		if errors.Is(err, fs.ErrNotExist) {
			return in, ErrNotFound
		}
		if err == nil {
			in.Present, in.Used = fi.Size(), fi.ModTime()
		}
		return in, err
	}
	fi, err := os.Stat(s.blobPath(addr))
	if err == nil {
		in.Complete, in.Size, in.Stored, in.Used = true, fi.Size(), fi.ModTime(), fi.ModTime()
		if u, err := os.Stat(s.sumsPath(addr)); err == nil {
			in.Used = u.ModTime()
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		fi, err = os.Stat(s.partialPath(addr))
		if errors.Is(err, fs.ErrNotExist) {
			return in, ErrNotFound
		}
	}
	if err != nil {
		return in, err
	}
	in.Present = fi.Size()
	if !in.Complete {
		in.Used = fi.ModTime()
	}
	return in, nil
}

// List returns all blobs and partials, sorted by address, then owner.
func (s *Store) List() ([]Info, error) {
	var all []string
	for _, d := range []string{"blobs", "partial"} {
		files, err := names(filepath.Join(s.dir, d))
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	slices.Sort(all)
	var out []Info
	for _, key := range slices.Compact(all) {
		addr, _, _ := strings.Cut(key, ownerMark)
		if CheckAddress(addr) != nil {
			continue // not ours
		}
		in, err := s.stat(key)
		if errors.Is(err, ErrNotFound) {
			continue // gone in the meantime
		}
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

// Delete removes a blob and what there is of it. It returns ErrInUse while the
// blob is being read and ErrBusy while it is being written.
func (s *Store) Delete(addr string) error {
	if err := CheckAddress(addr); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers[addr] > 0 {
		return ErrInUse
	}
	return s.remove(addr)
}

// remove removes the files of a key; s.mu is held. The blob goes first, so
// that it is either whole or not there.
func (s *Store) remove(key string) error {
	if s.writers[key] != nil {
		return ErrBusy
	}
	gone := false
	paths := []string{s.partialPath(key)}
	if CheckAddress(key) == nil {
		paths = []string{s.blobPath(key), s.sumsPath(key), s.partialPath(key)}
	}
	for _, path := range paths {
		failpoint.At("blob remove")
		err := os.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		gone = gone || err == nil
	}
	if !gone {
		return ErrNotFound
	}
	return atomicfile.SyncDir(filepath.Join(s.dir, "blobs"))
}

// Collect deletes the blobs and partials that were last used, written or stored
// longer ago than olderThan and that keep does not want to keep, and returns
// their addresses. What is being read or written stays.
func (s *Store) Collect(keep func(addr string) bool, olderThan time.Duration) ([]string, error) {
	return s.collect(func(in Info) bool { return keep(in.Addr) }, olderThan)
}

func (s *Store) collect(keep func(Info) bool, olderThan time.Duration) ([]string, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, in := range all {
		if s.o.Now().Sub(in.Used) < olderThan || keep(in) {
			continue
		}
		switch err := s.drop(in); {
		case err == nil:
			gone = append(gone, in.Addr)
		case !errors.Is(err, ErrInUse) && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotFound):
			return gone, err
		}
	}
	return gone, nil
}

// drop removes a blob, or a partial.
func (s *Store) drop(in Info) error {
	if in.Owner == "" {
		return s.Delete(in.Addr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(in.Addr + in.Owner)
}

// ExpirePartials removes the partials to which nothing was added for age.
func (s *Store) ExpirePartials(age time.Duration) ([]string, error) {
	return s.collect(func(in Info) bool { return in.Complete }, age)
}

// Usage returns the bytes that blobs and partials take, hashes not counted.
func (s *Store) Usage() (int64, error) {
	all, err := s.List()
	var n int64
	for _, in := range all {
		n += in.Present
	}
	return n, err
}

// touch notes that a blob was used.
func (s *Store) touch(addr string) {
	now := s.o.Now()
	os.Chtimes(s.sumsPath(addr), now, now) // if it fails, the blob counts as used earlier
}

// names returns the names of the files in dir, sorted.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Touch counts a blob as used now, as if it had been opened.
func (s *Store) Touch(addr string) {
	if CheckAddress(addr) == nil {
		s.touch(addr)
	}
}
