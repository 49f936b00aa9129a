package blob

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

// Writer appends to a partial blob. It is used by one goroutine; a partial has at
// most one writer.
type Writer struct {
	s         *Store
	addr, key string
	size, off int64
	held      int64 // bytes of the disk that are promised for what comes next
	f         *os.File
	h         *sums
	closed    bool
}

// promise is how many bytes of the disk are promised to an upload at a time: who
// says that many will come and sends few keeps nobody else from the disk.
const promise = 64 << 20

// Append is that of uploads that are nobody's in particular.
func (s *Store) Append(addr string, size, offset int64) (*Writer, error) {
	return s.Of("").Append(addr, size, offset)
}

// Append returns a writer that goes on at offset of a blob of size bytes. What
// is there beyond the offset is dropped; to go on where it ended, use Present.
// The errors are ErrExists, ErrBusy, ErrOffset (there are fewer bytes),
// ErrTooLarge and ErrDiskFull.
func (u Uploads) Append(addr string, size, offset int64) (*Writer, error) {
	s := u.s
	if err := CheckAddress(addr); err != nil {
		return nil, err
	}
	if s.o.MaxSize > 0 && size > s.o.MaxSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, s.o.MaxSize)
	}
	if size < 0 || offset < 0 || offset > size {
		return nil, fmt.Errorf("offset %d is not in a blob of %d bytes", offset, size)
	}
	w := &Writer{s: s, addr: addr, key: u.key(addr), size: size, h: newSums()}
	if err := w.claim(offset); err != nil {
		return nil, err
	}
	if err := w.open(offset); err != nil {
		w.release()
		return nil, err
	}
	return w, nil
}

// claim makes w the partial's only writer and sets bytes to come aside.
func (w *Writer) claim(offset int64) error {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writers[w.key] != nil {
		return ErrBusy
	}
	if _, err := os.Stat(s.blobPath(w.addr)); err == nil {
		return ErrExists
	}
	w.off = offset
	if err := w.hold(); err != nil {
		return err
	}
	s.writers[w.key] = w
	return nil
}

// hold has bytes of the disk promised for what comes next; the lock is held.
func (w *Writer) hold() error {
	s := w.s
	free, err := s.o.Free(s.dir)
	if err != nil {
		return err
	}
	others, rest := s.claimed-w.held, w.size-w.off
	next := min(promise, rest)
	if free-s.o.Reserve < rest || free-others-s.o.Reserve < next {
		return fmt.Errorf("%w: %d bytes are to come, %d are free, %d are promised to other uploads and %d are kept free",
			ErrDiskFull, rest, free, others, s.o.Reserve)
	}
	w.held, s.claimed = next, others+next
	return nil
}

func (w *Writer) release() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.claimed -= w.held
	delete(w.s.writers, w.key)
	w.closed = true
	if w.f != nil {
		w.f.Close()
	}
}

// open opens the partial and hashes what it goes on from.
func (w *Writer) open(offset int64) error {
	path := w.s.partialPath(w.key)
	failpoint.At("blob create")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	w.f = f
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() < offset {
		if fi.Size() == 0 {
			os.Remove(path)
		}
		return fmt.Errorf("%w: %d, not %d", ErrOffset, fi.Size(), offset)
	}
	if err := f.Truncate(offset); err != nil {
		return err
	}
	if _, err := io.CopyN(w.h, f, offset); err != nil { // leaves f at offset
		return err
	}
	return nil
}

// Offset returns how many bytes are there.
func (w *Writer) Offset() int64 { return w.off }

// Write appends p. A blob that gets longer than its size is refused as
// ErrCorrupt and removed. On ErrDiskFull what came before stays.
func (w *Writer) Write(p []byte) (int, error) {
	if w.closed {
		return 0, os.ErrClosed
	}
	if int64(len(p)) > w.size-w.off {
		return 0, errors.Join(fmt.Errorf("%w: there are more than %d", ErrCorrupt, w.size), w.Abort())
	}
	if err := w.room(int64(len(p))); err != nil {
		return 0, err
	}
	if _, err := w.f.WriteAt(p, w.off); err != nil {
		if isNoSpace(err) {
			err = fmt.Errorf("%w: %w", ErrDiskFull, err)
		}
		return 0, errors.Join(err, w.f.Truncate(w.off))
	}
	w.h.Write(p)
	w.s.mu.Lock()
	w.off += int64(len(p))
	w.held -= int64(len(p))
	w.s.claimed -= int64(len(p))
	w.s.mu.Unlock()
	return len(p), nil
}

// room sees to it that n bytes are promised, and are there.
func (w *Writer) room(n int64) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if n > w.held {
		return w.hold()
	}
	free, err := w.s.o.Free(w.s.dir)
	if err == nil && free-n < w.s.o.Reserve {
		err = fmt.Errorf("%w: %d bytes are free, %d are kept free", ErrDiskFull, free, w.s.o.Reserve)
	}
	return err
}

// Close ends the writing. What was written is on disk and can be gone on from.
// After Commit or Abort it does nothing.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	failpoint.At("blob close")
	err := w.f.Sync()
	w.release()
	return err
}

// Abort ends the writing and removes what was written.
func (w *Writer) Abort() error {
	if w.closed {
		return nil
	}
	defer w.release() // after the removal, so that no other writer's file is removed
	return os.Remove(w.s.partialPath(w.key))
}

// Commit makes the blob visible, when it is durable, if it is whole (else
// ErrShort, and writing can go on) and its bytes are those of the address (else
// ErrCorrupt, and they are removed).
func (w *Writer) Commit() error {
	if w.closed {
		return os.ErrClosed
	}
	if w.off < w.size {
		return fmt.Errorf("%w: %d of %d bytes", ErrShort, w.off, w.size)
	}
	got, chunks := w.h.finish()
	if got != w.addr {
		return errors.Join(fmt.Errorf("%w: their SHA-256 is %s, not %s", ErrCorrupt, got, w.addr), w.Abort())
	}
	defer w.release()
	s, now := w.s, w.s.o.Now()
	steps := []func() error{
		func() error { return w.f.Sync() },
		func() error { return s.writeSums(w.addr, chunks) },
		func() error { return os.Chtimes(s.partialPath(w.key), now, now) },
		func() error { return os.Chtimes(s.sumsPath(w.addr), now, now) },
		func() error { return os.Rename(s.partialPath(w.key), s.blobPath(w.addr)) },
		func() error { return atomicfile.SyncDir(filepath.Join(s.dir, "blobs")) },
		func() error { return atomicfile.SyncDir(filepath.Join(s.dir, "partial")) },
	}
	for _, step := range steps {
		failpoint.At("blob commit")
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
