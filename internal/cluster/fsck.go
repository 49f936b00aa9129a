package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

// bbolt keeps no checksums but of its two meta pages, and takes whatever its pages
// hold: a bit that flips on the disk is a wrong answer, a panic or a fault of
// memory. So a file is looked through before it is opened, page by page, by what
// bbolt's format (version 2) says of them; what the pages hold carries checksums of
// our own.

// ErrDamaged is returned for a file that is not as it was written.
var ErrDamaged = errors.New("the file is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// castagnoli is the polynomial of the checksums: processors have it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of several pieces, each of which counts with its length.
func checksum(pieces ...[]byte) uint32 {
	sum := uint32(0)
	for _, p := range pieces {
		sum = crc32.Update(sum, castagnoli, binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// What bbolt's pages look like. All numbers are the machine's, which is
// little-endian wherever this program runs.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	pageHead    = 16 // id(8) flags(2) count(2) overflow(4)
	elementSize = 16 // of a branch: pos(4) ksize(4) pgid(8); of a leaf: flags(4) pos(4) ksize(4) vsize(4)
	bucketHead  = 16 // root(8) sequence(8); then, if root is 0, a page
	branchPage  = 0x01
	leafPage    = 0x02
	bucketFlag  = 0x01
)

// boltFile is a bbolt file that is looked through.
type boltFile struct {
	io.ReaderAt
	page  int64 // bytes
	pages uint64
	used  int64 // bytes
	seen  map[uint64]bool
	visit func(path [][]byte, key, value []byte) error
}

// lookThrough reads every page of a bbolt file that is in use, and calls visit with
// every key and its value, and with the names of the buckets that it is in, in
// order. The sight tells what the file is otherwise.
func lookThrough(path string, visit func(path [][]byte, key, value []byte) error) (sight, error) {
	f, err := os.Open(path)
	if err != nil {
		return sight{}, err
	}
	defer f.Close()
	b := &boltFile{ReaderAt: f, seen: map[uint64]bool{}, visit: visit}
	root, halves, err := b.meta()
	if err == nil {
		err = b.walk(root, nil, nil, nil)
	}
	return sight{halves, b.used}, err
}

// sight is what a file is.
type sight struct {
	// halves is how many of the two meta pages are right: with one, the file may be
	// that of the transaction before the last.
	halves int
	used   int64 // bytes
}

// shrink writes a file anew that is large and mostly free: bbolt never gives space
// back.
func shrink(path string, used int64, log *slog.Logger) error {
	st, err := os.Stat(path)
	if err != nil || st.Size() < shrinkFrom || used > st.Size()/2 {
		return err
	}
	db, err := openBolt(path, 0)
	if err != nil {
		return err
	}
	defer db.Close()
	tmp := path + smallMark
	defer os.Remove(tmp) // gone by then unless something failed
	failpoint.At("shrink")
	if err = copyUsed(tmp, db); err == nil {
		failpoint.At("shrink rename")
		err = errors.Join(os.Rename(tmp, path), atomicfile.SyncDir(filepath.Dir(path)))
	}
	if noSpace(err) {
		log.Warn("there is no room to make a file smaller", "file", path)
		return nil
	}
	if err == nil {
		log.Info("a file was mostly free, and is smaller", "file", path, "from", st.Size(), "used", used)
	}
	return err
}

// copyUsed writes what a bbolt file uses to another one, durably.
func copyUsed(to string, db *bbolt.DB) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	small, err := openBolt(to, 0)
	if err != nil {
		return err
	}
	if err = bbolt.Compact(small, db, 64<<20); err == nil {
		err = small.Sync()
	}
	return errors.Join(err, small.Close())
}

// shrinkFrom is how large a file has to be for that.
const shrinkFrom = 64 << 20

// meta finds the newest of the two meta pages.
func (b *boltFile) meta() (root uint64, halves int, err error) {
	var newest uint64
	for i := range 2 {
		for _, size := range []int64{4096, 8192, 16384, 32768, 65536} { // where the second one is depends on the page's size
			at := int64(i) * size
			m := make([]byte, pageHead+64)
			if _, err := b.ReadAt(m, at); err != nil {
				continue
			}
			m = m[pageHead:]
			sum := fnv.New64a()
			sum.Write(m[:56])
			if binary.LittleEndian.Uint32(m) != boltMagic || binary.LittleEndian.Uint32(m[4:]) != boltVersion || sum.Sum64() != binary.LittleEndian.Uint64(m[56:]) {
				continue
			}
			page := int64(binary.LittleEndian.Uint32(m[8:]))
			if i == 1 && page != size {
				continue
			}
			halves++
			if tx := binary.LittleEndian.Uint64(m[48:]); halves == 1 || tx > newest {
				newest, b.page = tx, page
				root, b.pages = binary.LittleEndian.Uint64(m[16:]), binary.LittleEndian.Uint64(m[40:])
			}
			break
		}
	}
	if halves == 0 {
		return 0, 0, damaged("neither of its first pages is right")
	}
	return root, halves, nil
}

// walk looks through a page and those below it, whose keys are from lo on and
// before hi, where there are such.
func (b *boltFile) walk(id uint64, path [][]byte, lo, hi []byte) error {
	if id < 2 || id >= b.pages || b.seen[id] {
		return damaged("page %d is not, or not once", id)
	}
	b.seen[id] = true
	head := make([]byte, pageHead)
	if _, err := b.ReadAt(head, int64(id)*b.page); err != nil {
		return damaged("page %d cannot be read: %v", id, err)
	}
	size := (int64(binary.LittleEndian.Uint32(head[12:])) + 1) * b.page
	if own := binary.LittleEndian.Uint64(head); own != id || size > int64(b.pages-id)*b.page {
		return damaged("page %d calls itself %d", id, own)
	}
	b.used += size
	text := make([]byte, size)
	if _, err := b.ReadAt(text, int64(id)*b.page); err != nil {
		return damaged("page %d cannot be read: %v", id, err)
	}
	return b.elements(id, text, path, lo, hi)
}

// elements looks through what a page holds.
func (b *boltFile) elements(id uint64, text []byte, path [][]byte, lo, hi []byte) error {
	flags, count := binary.LittleEndian.Uint16(text[8:]), int(binary.LittleEndian.Uint16(text[10:]))
	if flags != branchPage && flags != leafPage || flags == branchPage && count == 0 || pageHead+count*elementSize > len(text) {
		return damaged("page %d is no page: flags %#x, %d elements", id, flags, count)
	}
	var keys [][]byte
	end := uint64(pageHead + count*elementSize)
	for i := range count {
		at := pageHead + i*elementSize
		e := text[at : at+elementSize]
		pos, ksize, vsize := binary.LittleEndian.Uint32(e[4:]), binary.LittleEndian.Uint32(e[8:]), binary.LittleEndian.Uint32(e[12:])
		if flags == branchPage {
			pos, ksize, vsize = binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:]), 0
		}
		from := uint64(at) + uint64(pos)
		if from != end || from+uint64(ksize)+uint64(vsize) > uint64(len(text)) { // one lies behind the other
			return damaged("page %d: element %d is not where it should be", id, i)
		}
		end = from + uint64(ksize) + uint64(vsize)
		key := text[from : from+uint64(ksize)]
		if i > 0 && bytes.Compare(keys[i-1], key) >= 0 || flags == leafPage && bytes.Compare(key, lo) < 0 || hi != nil && bytes.Compare(key, hi) >= 0 {
			return damaged("page %d: keys are out of order", id)
		}
		keys = append(keys, key)
	}
	for i, key := range keys {
		at := pageHead + i*elementSize
		e := text[at : at+elementSize]
		if flags == branchPage {
			next := hi
			if i+1 < count {
				next = keys[i+1]
			}
			from := key
			if i == 0 {
				from = lo // the first key of a branch may be behind what is below it
			}
			if err := b.walk(binary.LittleEndian.Uint64(e[8:]), path, from, next); err != nil {
				return err
			}
			continue
		}
		from := at + int(binary.LittleEndian.Uint32(e[4:])) + len(key)
		value := text[from : from+int(binary.LittleEndian.Uint32(e[12:]))]
		switch kind := binary.LittleEndian.Uint32(e); kind {
		case 0:
			if err := b.visit(path, key, value); err != nil {
				return err
			}
		case bucketFlag:
			if err := b.bucket(id, append(path[:len(path):len(path)], key), value); err != nil {
				return err
			}
		default:
			return damaged("page %d: element %d is of no kind", id, i)
		}
	}
	return nil
}

// bucket looks through a bucket.
func (b *boltFile) bucket(id uint64, path [][]byte, value []byte) error {
	if len(value) < bucketHead {
		return damaged("page %d: a bucket without a root", id)
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return b.walk(root, path, nil, nil)
	}
	if len(value) < bucketHead+pageHead {
		return damaged("page %d: a bucket without a page", id)
	}
	return b.elements(id, value[bucketHead:], path, nil, nil)
}
