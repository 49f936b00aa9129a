// Package latent writes the latent vectors that a chain's state holds beside ψ as
// bytes that are kept by content, out of the log: the state names them by a Ref.
//
//	8 bytes   "ulatent1"
//	8 bytes   number of vectors k
//	8 bytes   length of each, n
//	8kn bytes the numbers, vector by vector
//
// All numbers are little endian, 64 bits. The same vectors have one encoding, so
// the same state has one address.
package latent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"
)

// Ref names latent vectors by their encoding. The zero value names none.
type Ref struct {
	SHA256 string `json:"sha256,omitempty"` // in hex
	Size   int64  `json:"size,omitempty"`   // of the encoding, in bytes
}

// Superseded is how long a cluster keeps latent vectors that no chain goes on from any
// more: a backup copies them after the state that names them.
const Superseded = 2 * time.Minute

// IsZero reports whether r names none.
func (r Ref) IsZero() bool { return r == Ref{} }

// Sane reports whether r is what RefOf may have returned for an encoding of size bytes,
// or names none where size is 0.
func (r Ref) Sane(size int64) bool {
	if size == 0 {
		return r.IsZero()
	}
	sum, err := hex.DecodeString(r.SHA256)
	return err == nil && len(sum) == sha256.Size && hex.EncodeToString(sum) == r.SHA256 && r.Size == size
}

// RefOf returns what names an encoding.
func RefOf(b []byte) Ref {
	sum := sha256.Sum256(b)
	return Ref{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(b))}
}

const (
	magic  = "ulatent1"
	header = len(magic) + 16
)

// Size returns the length of the encoding of k vectors of length n, 0 for none.
func Size(k, n int) int64 {
	if k == 0 {
		return 0
	}
	return int64(header) + 8*int64(k)*int64(n)
}

// Encode returns the encoding of vectors, which are of one length.
func Encode(vectors [][]float64) []byte {
	n := 0
	if len(vectors) > 0 {
		n = len(vectors[0])
	}
	b := make([]byte, 0, Size(len(vectors), n))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(vectors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	for i, v := range vectors {
		if len(v) != n {
			panic(fmt.Sprintf("latent: vector %d has %d numbers, and the first %d", i, len(v), n))
		}
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

// ErrMalformed is returned for bytes that are no encoding of the vectors expected.
var ErrMalformed = errors.New("the latent vectors are malformed")

// Decode reads the encoding of k vectors of length n into new ones.
func Decode(b []byte, k, n int) ([][]float64, error) {
	if len(b) < header || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: these %d bytes are none", ErrMalformed, len(b))
	}
	haveK, haveN := binary.LittleEndian.Uint64(b[len(magic):]), binary.LittleEndian.Uint64(b[len(magic)+8:])
	if haveK != uint64(k) || haveN != uint64(n) || int64(len(b)) != Size(k, n) {
		return nil, fmt.Errorf("%w: %d bytes of %d of length %d, and they should be %d of length %d", ErrMalformed, len(b), haveK, haveN, k, n)
	}
	out := New(k, n)
	for i, b := 0, b[header:]; i < k; i++ {
		for j := range out[i] {
			out[i][j] = math.Float64frombits(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
	}
	return out, nil
}

// New returns k vectors of n zeros, nil for none.
func New(k, n int) [][]float64 {
	if k == 0 {
		return nil
	}
	all, out := make([]float64, k*n), make([][]float64, k)
	for i := range out {
		out[i] = all[i*n : (i+1)*n : (i+1)*n]
	}
	return out
}
