package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Reader reads a blob and verifies all that it hands out. Bytes that are not
// those of the address are never returned: the error is ErrCorrupt, and the blob
// is removed from the store, so that it can be fetched anew. While a reader is
// open, its blob is not deleted or evicted. ReadAt can be used concurrently.
type Reader struct {
	s    *Store
	addr string
	f    *os.File
	size int64
	sums []byte
	off  int64 // of Read

	mu     sync.Mutex
	buf    []byte
	held   int64 // the chunk in buf; -1: none
	closed bool
}

var _ interface {
	io.ReadSeekCloser
	io.ReaderAt
} = (*Reader)(nil)

// Open opens a whole blob; ErrNotFound if it is not here.
func (s *Store) Open(addr string) (*Reader, error) {
	if err := CheckAddress(addr); err != nil {
		return nil, err
	}
	s.mu.Lock()
	f, err := os.Open(s.blobPath(addr))
	if err == nil {
		s.readers[addr]++
	}
	s.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	r := &Reader{s: s, addr: addr, f: f, held: -1}
	if err := r.load(); err != nil {
		r.Close()
		return nil, err
	}
	s.touch(addr)
	return r, nil
}

func (r *Reader) load() error {
	fi, err := r.f.Stat()
	if err != nil {
		return err
	}
	r.size = fi.Size()
	r.sums, err = r.s.readSums(r.addr, r.size)
	if err == nil {
		return nil
	}
	if r.sums, err = r.s.makeSums(r.addr, r.f); errors.Is(err, ErrCorrupt) {
		r.discard()
	}
	return err
}

// discard removes the blob that was read, unless another has taken its place.
func (r *Reader) discard() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	mine, err1 := r.f.Stat()
	now, err2 := os.Stat(r.s.blobPath(r.addr))
	if err1 == nil && err2 == nil && os.SameFile(mine, now) {
		r.s.remove(r.addr)
	}
}

// Size returns the number of bytes of the blob.
func (r *Reader) Size() int64 { return r.size }

// Path returns the blob's file, for programs that need one. What is read from it
// is not verified.
func (r *Reader) Path() string { return r.f.Name() }

// chunk brings chunk i into the buffer, verified; r.mu is held.
func (r *Reader) chunk(i int64) ([]byte, error) {
	if r.closed {
		return nil, os.ErrClosed
	}
	if i == r.held {
		return r.buf, nil
	}
	if r.buf == nil {
		r.buf = make([]byte, min(ChunkSize, r.size))
	}
	r.held = -1
	r.buf = r.buf[:min(ChunkSize, r.size-i*ChunkSize)]
	if _, err := r.f.ReadAt(r.buf, i*ChunkSize); err != nil && err != io.EOF {
		return nil, err
	}
	sum := sha256.Sum256(r.buf)
	if !bytes.Equal(sum[:], r.sums[i*sha256.Size:(i+1)*sha256.Size]) {
		r.discard()
		return nil, fmt.Errorf("%s: %w: decayed on disk at bytes %d to %d, removed", r.addr, ErrCorrupt, i*ChunkSize, i*ChunkSize+int64(len(r.buf)))
	}
	r.held = i
	return r.buf, nil
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("offset %d is negative", off)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(p) {
		if off >= r.size {
			return n, io.EOF
		}
		c, err := r.chunk(off / ChunkSize)
		if err != nil {
			return n, err
		}
		k := copy(p[n:], c[off%ChunkSize:])
		n, off = n+k, off+int64(k)
	}
	return n, nil
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if k := r.size - r.off; k > 0 && k < int64(len(p)) {
		p = p[:k]
	}
	n, err := r.ReadAt(p, r.off)
	r.off += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.off
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return r.off, fmt.Errorf("offset %d is negative", offset)
	}
	r.off = offset
	return offset, nil
}

// Close lets go of the blob.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	r.closed = true
	r.s.mu.Lock()
	if r.s.readers[r.addr]--; r.s.readers[r.addr] == 0 {
		delete(r.s.readers, r.addr)
	}
	r.s.mu.Unlock()
	return r.f.Close()
}

// ReadPartial reads bytes of a blob that is not yet whole, which therefore
// cannot be verified. It is how an upload moves to another node.
func (u Uploads) ReadPartial(addr string, p []byte, off int64) (int, error) {
	if err := CheckAddress(addr); err != nil {
		return 0, err
	}
	f, err := os.Open(u.s.partialPath(u.key(addr)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.ReadAt(p, off)
	if n > 0 {
		err = nil
	}
	return n, err
}
