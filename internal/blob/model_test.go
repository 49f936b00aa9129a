package blob

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is written, cut short, decayed and restarted in whatever order, a
// blob that is visible has the bytes of its address, and all of them.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "blob")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { s.Close() }()
		blobs := [][]byte{random(300, 1), random(301, 1), random(ChunkSize+3, 1)}
		stored := map[string]bool{} // that were committed and not harmed since
		writers := map[string]*Writer{}
		pick := func() (string, []byte) {
			data := rapid.SampledFrom(blobs).Draw(t, "blob")
			return Address(data), data
		}
		closeAll := func() {
			for addr, w := range writers {
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				delete(writers, addr)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				addr, data := pick()
				in, _ := s.Stat(addr)
				off := rapid.Int64Range(0, in.Present).Draw(t, "offset")
				w, err := s.Append(addr, int64(len(data)), off)
				switch {
				case stored[addr] && !errors.Is(err, ErrExists), writers[addr] != nil && !errors.Is(err, ErrBusy):
					t.Fatalf("a second writer: %v", err)
				case !stored[addr] && writers[addr] == nil && err != nil:
					t.Fatal(err)
				case err == nil:
					writers[addr] = w
				}
			},
			"write": func(t *rapid.T) {
				addr, data := pick()
				if w := writers[addr]; w != nil {
					rest := data[w.Offset():]
					if _, err := w.Write(rest[:rapid.IntRange(0, len(rest)).Draw(t, "n")]); err != nil {
						t.Fatal(err)
					}
				}
			},
			"commit": func(t *rapid.T) {
				addr, data := pick()
				w := writers[addr]
				if w == nil {
					return
				}
				err := w.Commit()
				switch {
				case w.Offset() < int64(len(data)):
					if !errors.Is(err, ErrShort) {
						t.Fatalf("a short blob: %v", err)
					}
					return
				case err == nil:
					stored[addr] = true
				case !errors.Is(err, ErrCorrupt):
					t.Fatal(err)
				}
				delete(writers, addr)
			},
			"close": func(t *rapid.T) { closeAll() },
			"crash": func(t *rapid.T) {
				// The tail of a partial that was not synced may be lost or be zeros.
				addr, data := pick()
				closeAll()
				if fi, err := os.Stat(s.partialPath(addr)); err == nil {
					n := rapid.Int64Range(0, fi.Size()).Draw(t, "durable")
					os.Truncate(s.partialPath(addr), n)
					if rapid.Bool().Draw(t, "zeros") {
						os.Truncate(s.partialPath(addr), min(fi.Size()+1, int64(len(data))))
					}
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = Open(dir, Options{}); err != nil {
					t.Fatal(err)
				}
			},
			"decay": func(t *rapid.T) {
				addr, data := pick()
				if !stored[addr] {
					return
				}
				i := rapid.IntRange(0, len(data)-1).Draw(t, "byte")
				f, err := os.OpenFile(s.blobPath(addr), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				f.WriteAt([]byte{data[i] ^ 0x10}, int64(i))
				f.Close()
				if _, err := get(s, addr); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("byte %d: %v", i, err)
				}
				stored[addr] = false
			},
			"delete": func(t *rapid.T) {
				addr, _ := pick()
				err := s.Delete(addr)
				if writers[addr] != nil && !errors.Is(err, ErrBusy) {
					t.Fatalf("deleted under a writer: %v", err)
				}
				if err == nil {
					stored[addr] = false
				}
			},
			"": func(t *rapid.T) {
				for _, data := range blobs {
					addr := Address(data)
					got, err := get(s, addr)
					if stored[addr] != (err == nil) || err == nil && !bytes.Equal(got, data) {
						t.Fatalf("stored %v, but %d of %d bytes and %v", stored[addr], len(got), len(data), err)
					}
				}
				if n := len(s.writers); n != len(writers) {
					t.Fatal(fmt.Sprint(n, " writers, not ", len(writers)))
				}
			},
		})
		closeAll()
	})
}
