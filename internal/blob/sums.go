package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// sumsMagic begins a file of chunk hashes; its last byte is the version.
const sumsMagic = "ulisums\x01"

// sums hashes a stream as a whole and in chunks.
type sums struct {
	whole, chunk hash.Hash
	in           int    // bytes in chunk
	done         []byte // hashes of full chunks, one after the other
}

func newSums() *sums { return &sums{whole: sha256.New(), chunk: sha256.New()} }

func (s *sums) Write(p []byte) (int, error) {
	s.whole.Write(p)
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), ChunkSize-s.in)
		s.chunk.Write(p[:k])
		p, s.in = p[k:], s.in+k
		if s.in == ChunkSize {
			s.flush()
		}
	}
	return n, nil
}

func (s *sums) flush() {
	s.done = s.chunk.Sum(s.done)
	s.chunk.Reset()
	s.in = 0
}

// finish ends the stream and returns its address and the chunk hashes.
func (s *sums) finish() (addr string, chunks []byte) {
	if s.in > 0 {
		s.flush()
	}
	return hex.EncodeToString(s.whole.Sum(nil)), s.done
}

// writeSums puts a file of chunk hashes in place at once.
func (s *Store) writeSums(addr string, chunks []byte) error {
	data := append([]byte(sumsMagic), chunks...)
	own := sha256.Sum256(data)
	return atomicfile.WriteBytes(s.sumsPath(addr), 0o644, append(data, own[:]...))
}

// readSums returns the chunk hashes of a blob of the given size.
func (s *Store) readSums(addr string, size int64) ([]byte, error) {
	data, err := os.ReadFile(s.sumsPath(addr))
	if err != nil {
		return nil, err
	}
	body := len(data) - sha256.Size
	if body < len(sumsMagic) || string(data[:len(sumsMagic)]) != sumsMagic {
		return nil, ErrCorrupt
	}
	own := sha256.Sum256(data[:body])
	chunks := data[len(sumsMagic):body]
	if !bytes.Equal(own[:], data[body:]) || int64(len(chunks)) != (size+ChunkSize-1)/ChunkSize*sha256.Size {
		return nil, ErrCorrupt
	}
	return chunks, nil
}

// makeSums hashes a blob that is there but whose chunk hashes are not.
func (s *Store) makeSums(addr string, f *os.File) ([]byte, error) {
	h := newSums()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return nil, err
	}
	got, chunks := h.finish()
	if got != addr {
		return nil, ErrCorrupt
	}
	return chunks, s.writeSums(addr, chunks)
}
