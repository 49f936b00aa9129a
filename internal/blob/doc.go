// Package blob keeps blobs (data sets as they were uploaded) in a directory,
// addressed by content: the address is the SHA-256 of the bytes in lower-case hex.
//
// A blob comes in through a [Writer], which appends to a partial file that
// outlives crashes and can be resumed. When all bytes are there, Commit compares
// their hash with the address, and only then does the blob exist. It is read
// through a [Reader], which verifies every byte it hands out.
//
//	DIR/lock          held by the process that has the store open
//	DIR/blobs/ADDR    whole blobs; the modification time is that of the commit
//	DIR/sums/ADDR     hashes of their chunks; the modification time is that of the last use
//	DIR/partial/ADDR  the first bytes of blobs to come; ADDR-TAG, of an owner's upload
//
// Chunk hashes are kept beside the blob, rather than the blob hashed once after
// a start, because data are read again long after they were opened, and a disk
// may decay at any time: so verification costs one hash of what is read, when
// it is read, at any offset. The file of hashes carries its own hash, and one
// that is lost or broken is made anew from a blob that still matches its address.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// ChunkSize is the number of bytes that are verified at a time, and a good size
// for messages that carry a blob.
const ChunkSize = 512 << 10

var (
	ErrNotFound = errors.New("there is no such blob here")
	ErrExists   = errors.New("the blob is here already")
	ErrCorrupt  = errors.New("the bytes are not those of the address")
	ErrBusy     = errors.New("another upload of this blob is under way")
	ErrInUse    = errors.New("the blob is being read")
	ErrOffset   = errors.New("the blob does not reach that far yet")
	ErrShort    = errors.New("the blob is not whole yet")
	ErrTooLarge = errors.New("the blob is larger than the limit")
	ErrDiskFull = errors.New("the disk is full up to what has to stay free")
	ErrAddress  = errors.New("not an address: 64 lower-case hexadecimal digits, the SHA-256 of the bytes")
)

// Info tells what there is of a blob.
type Info struct {
	Addr     string
	Owner    string // tag of whose partial it is; empty: nobody's in particular
	Size     int64  // of the whole blob; 0 if it is not Complete
	Present  int64  // bytes that are here
	Complete bool   // whole and verified
	Stored   time.Time
	Used     time.Time // last opened or committed
}

// Address returns the address of data.
func Address(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// CheckAddress returns ErrAddress unless addr is one. It keeps names that come
// from outside from being anything else than a file name in the store.
func CheckAddress(addr string) error {
	if len(addr) != 2*sha256.Size {
		return ErrAddress
	}
	for _, c := range []byte(addr) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ErrAddress
		}
	}
	return nil
}
