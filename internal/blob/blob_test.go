package blob

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

func TestMain(m *testing.M) {
	flag.Set("rapid.checks", "40") // each syncs files; more with -rapid.checks
	goleak.VerifyTestMain(m)
}

// random returns n bytes that depend on n and seed.
func random(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(uint64(n), seed))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// put stores data in pieces of the given size.
func put(t testing.TB, s *Store, data []byte, piece int) string {
	t.Helper()
	addr := Address(data)
	w, err := s.Append(addr, int64(len(data)), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for p := range slices.Chunk(data, piece) {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return addr
}

func get(s *Store, addr string) ([]byte, error) {
	r, err := s.Open(addr)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestStoreAndRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for _, n := range []int{0, 1, ChunkSize - 1, ChunkSize, ChunkSize + 1, 3*ChunkSize + 77} {
		data := random(n, 1)
		addr := put(t, s, data, 100_003)
		if err := s.Close(); err != nil { // a restart
			t.Fatal(err)
		}
		s = open(t, dir, Options{})
		in, err := s.Stat(addr)
		if err != nil || !in.Complete || in.Size != int64(n) || in.Present != int64(n) {
			t.Errorf("Stat of %d bytes: %+v, %v", n, in, err)
		}
		r, err := s.Open(addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(r, data); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Append(addr, int64(n), 0); !errors.Is(err, ErrExists) {
			t.Errorf("writing what is there: %v", err)
		}
	}
	all, err := s.List()
	if err != nil || len(all) != 6 {
		t.Errorf("List: %d blobs, %v", len(all), err)
	}
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, Options{})
	if _, err := Open(dir, Options{}); err == nil {
		t.Error("a store was opened twice")
	}
}

func TestRefused(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxSize: 1000})
	data := random(1000, 1)
	addr := Address(data)
	for _, bad := range []string{"", "x", addr[:63], addr + "0", "../" + addr[3:], "A" + addr[1:], addr[:63] + "/"} {
		if _, err := s.Append(bad, 10, 0); !errors.Is(err, ErrAddress) {
			t.Errorf("Append(%q): %v", bad, err)
		}
		if _, err := s.Open(bad); !errors.Is(err, ErrAddress) {
			t.Errorf("Open(%q): %v", bad, err)
		}
		if err := s.Delete(bad); !errors.Is(err, ErrAddress) {
			t.Errorf("Delete(%q): %v", bad, err)
		}
	}
	if _, err := s.Append(addr, 1001, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := s.Append(addr, 1000, 1); !errors.Is(err, ErrOffset) {
		t.Errorf("beyond what is there: %v", err)
	}
	for _, at := range [][2]int64{{-1, 0}, {10, -1}, {10, 11}} {
		if _, err := s.Append(addr, at[0], at[1]); err == nil {
			t.Errorf("size %d, offset %d: no error", at[0], at[1])
		}
	}
	if all, err := s.List(); err != nil || len(all) > 0 {
		t.Errorf("refusals left %v, %v", all, err)
	}
}

func TestWrongBytes(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	data := random(1000, 1)
	addr := Address(data)
	gone := func(what string) {
		t.Helper()
		if _, err := s.Stat(addr); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: still there: %v", what, err)
		}
	}
	w, _ := s.Append(addr, 1000, 0)
	w.Write(random(1000, 2))
	if err := w.Commit(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wrong bytes: %v", err)
	}
	gone("wrong bytes")
	w, _ = s.Append(addr, 1000, 0)
	w.Write(data)
	if _, err := w.Write([]byte{1}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("too long: %v", err)
	}
	gone("too long")
	w, _ = s.Append(addr, 999, 0) // a size that is not the blob's
	w.Write(data[:999])
	if err := w.Commit(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wrong size: %v", err)
	}
	gone("wrong size")
	if got := put(t, s, data, 10); got != addr {
		t.Error(got)
	}
	if s.claimed != 0 || len(s.writers) != 0 {
		t.Errorf("claims left: %d bytes, %d writers", s.claimed, len(s.writers))
	}
}

// A commit that is cut short at any step leaves the blob as it was before or
// whole, and it can then be brought to its end.
func TestCrashInCommit(t *testing.T) {
	data := random(ChunkSize+5, 1)
	addr := Address(data)
	crashed := 0
	errCrash := errors.New("crashed")
	t.Cleanup(func() { failpoint.Hook = nil })
	for at := range 7 {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		w, err := s.Append(addr, int64(len(data)), 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(data)
		step := 0
		failpoint.Hook = func(point string) {
			if point == "blob commit" {
				if step++; step > at {
					panic(errCrash)
				}
			}
		}
		func() {
			defer func() {
				if got := recover(); got != errCrash {
					t.Fatalf("step %d: %v", at, got)
				}
				crashed++
			}()
			err = w.Commit()
		}()
		failpoint.Hook = nil
		s.Close()
		os.WriteFile(filepath.Join(dir, "sums", addr+".tmp"), []byte("half"), 0o644)

		s = open(t, dir, Options{})
		if got, err := get(s, addr); err == nil {
			if !bytes.Equal(got, data) {
				t.Errorf("step %d: visible, with other bytes", at)
			}
		} else if !errors.Is(err, ErrNotFound) {
			t.Errorf("step %d: %v", at, err)
		} else {
			w, err := s.Append(addr, int64(len(data)), int64(len(data)))
			if err != nil {
				t.Fatalf("step %d: %v", at, err)
			}
			if err := w.Commit(); err != nil {
				t.Fatalf("step %d: %v", at, err)
			}
		}
		if got, err := get(s, addr); err != nil || !bytes.Equal(got, data) {
			t.Errorf("step %d: in the end %d bytes, %v", at, len(got), err)
		}
		for d, want := range map[string]int{"blobs": 1, "sums": 1, "partial": 0} {
			if files, err := os.ReadDir(filepath.Join(dir, d)); err != nil || len(files) != want {
				t.Errorf("step %d: %d files in %s, %v", at, len(files), d, err)
			}
		}
	}
	if crashed != 7 {
		t.Errorf("%d crashes", crashed)
	}
}

// A process that ends when an upload is put aside, or a blob is removed, leaves what can be gone on
// from.
func TestCrashes(t *testing.T) {
	t.Cleanup(func() { failpoint.Hook = nil })
	data := random(ChunkSize+5, 2)
	addr := Address(data)
	errCrash := errors.New("crashed")
	crash := func(point string, at int, do func()) {
		t.Helper()
		failpoint.Hook = func(p string) {
			if p == point {
				if at--; at < 0 {
					panic(errCrash)
				}
			}
		}
		defer func() {
			failpoint.Hook = nil
			if got := recover(); got != errCrash {
				t.Fatalf("at %s: %v", point, got)
			}
		}()
		do()
	}
	dir := t.TempDir()
	s := open(t, dir, Options{})
	w, err := s.Append(addr, int64(len(data)), 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(data[:ChunkSize])
	crash("blob close", 0, func() { w.Close() })
	w.f.Close()
	for at := range 3 { // of the three files that a blob may have
		s.Close()
		s = open(t, dir, Options{})
		there, err := s.Of("").Present(addr)
		if err != nil || at == 0 && there != ChunkSize {
			t.Fatalf("%d bytes are there, %v", there, err)
		}
		if w, err = s.Append(addr, int64(len(data)), there); err != nil {
			t.Fatal(err)
		}
		w.Write(data[there:])
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		crash("blob remove", at, func() { s.Delete(addr) })
		s.mu.TryLock() // as the process is over
		s.mu.Unlock()
		s.Close()
		s = open(t, dir, Options{})
		switch got, err := get(s, addr); {
		case err == nil && !bytes.Equal(got, data):
			t.Errorf("crash %d: other bytes", at)
		case err != nil && !errors.Is(err, ErrNotFound):
			t.Errorf("crash %d: %v", at, err)
		case err == nil:
			if err := s.Delete(addr); err != nil {
				t.Errorf("crash %d: %v", at, err)
			}
		}
	}
}

func TestDecayIsFound(t *testing.T) {
	data := random(3*ChunkSize, 1)
	for name, harm := range map[string]func(f *os.File){
		"flipped":   func(f *os.File) { f.WriteAt([]byte{data[ChunkSize+9] ^ 1}, ChunkSize+9) },
		"truncated": func(f *os.File) { f.Truncate(2*ChunkSize + 5) },
		"extended":  func(f *os.File) { f.WriteAt([]byte{1}, 3*ChunkSize) },
	} {
		s := open(t, t.TempDir(), Options{})
		addr := put(t, s, data, ChunkSize)
		f, err := os.OpenFile(s.blobPath(addr), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		harm(f)
		f.Close()
		got, err := get(s, addr)
		if !errors.Is(err, ErrCorrupt) || !bytes.HasPrefix(data, got) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := s.Stat(addr); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: still there: %v", name, err)
		}
		put(t, s, data, ChunkSize)
		if got, err := get(s, addr); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: not repaired: %v", name, err)
		}
	}
}

// Chunk hashes that are lost or broken are made anew, but only from a good blob.
func TestSumsAreMadeAnew(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	data := random(2*ChunkSize+1, 1)
	addr := put(t, s, data, ChunkSize)
	os.Remove(s.sumsPath(addr))
	if got, err := get(s, addr); err != nil || !bytes.Equal(got, data) {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(s.sumsPath(addr))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 4
		os.WriteFile(s.sumsPath(addr), bad, 0o644)
		if _, err := s.readSums(addr, int64(len(data))); err == nil {
			t.Fatalf("byte %d changed: not noticed", i)
		}
	}
	if got, err := get(s, addr); err != nil || !bytes.Equal(got, data) {
		t.Fatal(err)
	}
	os.Remove(s.sumsPath(addr))
	os.WriteFile(s.blobPath(addr), random(2*ChunkSize+1, 2), 0o644)
	if _, err := get(s, addr); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestDiskFull(t *testing.T) {
	free := int64(5000)
	dir := t.TempDir()
	s := open(t, dir, Options{Reserve: 1000, Free: func(string) (int64, error) { return free, nil }})
	a, b := random(2500, 1), random(2000, 2)
	wa, err := s.Append(Address(a), 2500, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer wa.Close()
	// 5000 free, 1000 kept, 2500 promised: 1500 remain.
	if _, err := s.Append(Address(b), 2000, 0); !errors.Is(err, ErrDiskFull) {
		t.Errorf("promised twice: %v", err)
	}
	if _, err := wa.Write(a[:1000]); err != nil {
		t.Fatal(err)
	}
	free = 1400 // others have used the disk
	if _, err := wa.Write(a[1000:]); !errors.Is(err, ErrDiskFull) {
		t.Errorf("reserve used: %v", err)
	}
	free = 5000
	if _, err := wa.Write(a[1000:]); err != nil { // there is room again
		t.Fatal(err)
	}
	if err := wa.Commit(); err != nil {
		t.Fatal(err)
	}
	put(t, s, b, 2000)
	if s.claimed != 0 {
		t.Errorf("%d bytes are still promised", s.claimed)
	}
	if n, err := DiskFree(dir); err != nil || n <= 0 {
		t.Errorf("free on this disk: %d, %v", n, err)
	}
}

func TestConcurrentWriters(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var wg sync.WaitGroup
	for b := range 4 {
		data := random(100_000+b, 3)
		addr := Address(data)
		for range 4 {
			wg.Go(func() {
				for {
					in, err := s.Stat(addr)
					if err == nil && in.Complete {
						return
					}
					w, err := s.Append(addr, int64(len(data)), in.Present)
					if errors.Is(err, ErrBusy) || errors.Is(err, ErrExists) || errors.Is(err, ErrOffset) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					w.Write(data[w.Offset():min(w.Offset()+30_000, int64(len(data)))])
					if err := w.Commit(); err != nil && !errors.Is(err, ErrShort) {
						t.Error(err)
					}
					w.Close()
				}
			})
		}
	}
	wg.Wait()
	for b := range 4 {
		data := random(100_000+b, 3)
		if got, err := get(s, Address(data)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("blob %d: %v", b, err)
		}
	}
}

func TestCollect(t *testing.T) {
	now := time.Now()
	s := open(t, t.TempDir(), Options{Now: func() time.Time { return now }})
	kept, unused, open := put(t, s, random(10, 1), 10), put(t, s, random(11, 1), 10), put(t, s, random(12, 1), 10)
	part := Address(random(13, 1))
	w, err := s.Append(part, 13, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(random(13, 1)[:5])
	w.Close()
	r, err := s.Open(open)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	keep := func(addr string) bool { return addr == kept }
	if gone, err := s.Collect(keep, time.Hour); err != nil || len(gone) > 0 {
		t.Errorf("too early: %v, %v", gone, err)
	}
	now = now.Add(2 * time.Hour)
	fresh := put(t, s, random(14, 1), 10)
	if gone, err := s.ExpirePartials(time.Hour); err != nil || !slices.Equal(gone, []string{part}) {
		t.Errorf("partials: %v, %v", gone, err)
	}
	if gone, err := s.Collect(keep, time.Hour); err != nil || !slices.Equal(gone, []string{unused}) {
		t.Errorf("unused: %v, %v", gone, err)
	}
	if err := s.Delete(open); !errors.Is(err, ErrInUse) {
		t.Errorf("deleted while read: %v", err)
	}
	for _, addr := range []string{kept, open, fresh} {
		if _, err := s.Stat(addr); err != nil {
			t.Error(err)
		}
	}
	if n, err := s.Usage(); err != nil || n != 10+12+14 {
		t.Errorf("usage %d, %v", n, err)
	}
	if _, err := os.Stat(s.sumsPath(unused)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("hashes stay: %v", err)
	}
}

func BenchmarkRead(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	data := random(64<<20, 1)
	addr := put(b, s, data, ChunkSize)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := s.Open(addr)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}
