package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var (
	logBucket    = []byte("log")
	stableBucket = []byte("stable")

	// errKeyNotFound has the text by which raft knows a missing key.
	errKeyNotFound = errors.New("not found")
)

// logStore keeps raft's log and its votes in one bbolt file: keys are
// big-endian indices, values encodeLog. Every write is durable when it returns.
//
// The freelist is not written (NoFreelistSync): after a burst and a truncation
// it would be megabytes, rewritten with every append. It is rebuilt at open.
//
// Entries and values carry checksums. The file is looked through before it is
// opened: raft would stop at a damaged entry with a panic, and believe a damaged
// vote.
type logStore struct {
	path    string
	mu      sync.RWMutex // guards db, which shrink replaces
	db      *bbolt.DB
	lost    error // why nothing may be written any more
	writes  *writes
	seam    seam
	damaged uint64 // the last entry that is, 0 for none
}

// update is a transaction that writes.
func (s *logStore) update(point string, f func(*bbolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.lost != nil {
		return s.lost
	}
	defer s.writes.begin()()
	if err := s.seam.at(point); err != nil {
		return err
	}
	if err := s.db.Update(f); err != nil {
		return err
	}
	return s.seam.at("log done")
}

// view is a transaction that reads.
func (s *logStore) view(f func(*bbolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db.View(f)
}

// stats returns what the file is made of.
func (s *logStore) stats() bbolt.Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db.Stats()
}

func openLogStore(path string, log *slog.Logger) (*logStore, error) {
	bad, used, err := checkLog(path)
	if err == nil && used > 0 {
		err = shrink(path, used, log)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", path, err)
	}
	db, err := openBolt(path, 0)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, b := range [][]byte{logBucket, stableBucket} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		return sealAll(tx.Bucket(stableBucket))
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("cluster: %s: %w", path, err)
	}
	return &logStore{path: path, db: db, damaged: bad}, nil
}

// checkLog looks through the file of a log that nobody has open, and returns the
// last of its entries that is damaged, and the bytes in use. Any other damage is an
// error.
func checkLog(path string) (bad uint64, used int64, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	var before uint64
	marked := false
	var stable [][2][]byte
	sight, err := lookThrough(path, func(path [][]byte, key, value []byte) error {
		switch {
		case len(path) == 1 && bytes.Equal(path[0], stableBucket):
			marked = marked || bytes.Equal(key, sealedKey)
			stable = append(stable, [2][]byte{bytes.Clone(key), bytes.Clone(value)})
			return nil
		case len(path) != 1 || !bytes.Equal(path[0], logBucket) || len(key) != 8:
			return damaged("it holds what it does not")
		}
		index := binary.BigEndian.Uint64(key)
		if before != 0 && index != before+1 {
			return damaged("after entry %d comes %d", before, index)
		}
		before = index
		if err := decodeLog(index, value, &raft.Log{}); err != nil {
			bad = index
		}
		return nil
	})
	if err == nil && sight.halves < 2 {
		err = damaged("what was written last may be missing: one of its two first pages is not right")
	}
	for _, s := range stable {
		if _, bad := unseal(s[0], s[1]); err == nil && marked && bad != nil {
			err = damaged("its term and vote: %v", bad)
		}
	}
	return bad, sight.used, err
}

// sealedKey says that the values beside it carry checksums.
var sealedKey = []byte("_sealed")

// sealAll adds checksums to the values of a bucket that has none yet.
func sealAll(b *bbolt.Bucket) error {
	if b.Get(sealedKey) != nil {
		return nil
	}
	all := map[string][]byte{}
	err := b.ForEach(func(k, v []byte) error {
		all[string(k)] = seal(k, v)
		return nil
	})
	for k, v := range all {
		err = errors.Join(err, b.Put([]byte(k), v))
	}
	return errors.Join(err, b.Put(sealedKey, seal(sealedKey, nil)))
}

// seal returns a value followed by a checksum of it and its key.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, len(value)+4), value...), checksum(key, value))
}

// unseal returns what was sealed.
func unseal(key, sealed []byte) ([]byte, error) {
	n := len(sealed) - 4
	if n < 0 || binary.BigEndian.Uint32(sealed[n:]) != checksum(key, sealed[:n]) {
		return nil, damaged("the value of %q has another checksum", key)
	}
	return sealed[:n], nil
}

// openBolt opens a bbolt file as both stores want it. A file that another
// process holds is an error after a second, not a wait.
func openBolt(path string, mmap int) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:         time.Second,
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mmap,
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("cluster: %s is in use by another process: stop it first", path)
	case err != nil:
		return nil, fmt.Errorf("cluster: open %s: %w", path, err)
	}
	return db, nil
}

func (s *logStore) Close() error { return s.db.Close() }

// FirstIndex returns the lowest index stored, 0 for an empty log.
func (s *logStore) FirstIndex() (uint64, error) {
	return s.end((*bbolt.Cursor).First)
}

// LastIndex returns the highest index stored, 0 for an empty log.
func (s *logStore) LastIndex() (uint64, error) {
	return s.end((*bbolt.Cursor).Last)
}

func (s *logStore) end(move func(*bbolt.Cursor) (key, value []byte)) (index uint64, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		if k, _ := move(tx.Bucket(logBucket).Cursor()); k != nil {
			index = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return index, err
}

// GetLog reads one entry, or returns raft.ErrLogNotFound.
func (s *logStore) GetLog(index uint64, log *raft.Log) error {
	return s.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(logBucket).Get(indexKey(index))
		if v == nil {
			return raft.ErrLogNotFound
		}
		if err := decodeLog(index, v, log); err != nil {
			return fmt.Errorf("cluster: log entry %d: %w", index, err)
		}
		return nil
	})
}

// StoreLog stores one entry, over any with its index.
func (s *logStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries in one transaction.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	return s.update("log store", func(tx *bbolt.Tx) error {
		b := tx.Bucket(logBucket)
		b.FillPercent = 0.9 // keys grow: pages need no room in the middle
		for _, l := range logs {
			if err := b.Put(indexKey(l.Index), encodeLog(l)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange deletes the entries lo to hi, both included.
func (s *logStore) DeleteRange(lo, hi uint64) error {
	return s.update("log delete", func(tx *bbolt.Tx) error {
		b := tx.Bucket(logBucket)
		var doomed []uint64 // a cursor must not be moved over what it deletes
		c := b.Cursor()
		for k, _ := c.Seek(indexKey(lo)); k != nil; k, _ = c.Next() {
			i := binary.BigEndian.Uint64(k)
			if i > hi {
				break
			}
			doomed = append(doomed, i)
		}
		for _, i := range doomed {
			if err := b.Delete(indexKey(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set stores a value of raft's own (term, vote).
func (s *logStore) Set(key, value []byte) error {
	return s.update("log set", func(tx *bbolt.Tx) error {
		return tx.Bucket(stableBucket).Put(key, seal(key, value))
	})
}

// Get reads a value of raft's own, or fails with "not found".
func (s *logStore) Get(key []byte) (value []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(stableBucket).Get(key)
		if v == nil {
			return errKeyNotFound
		}
		v, err := unseal(key, v)
		value = append([]byte{}, v...)
		return err
	})
	return value, err
}

// SetUint64 is Set for a number.
func (s *logStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, indexKey(value))
}

// GetUint64 is Get for a number.
func (s *logStore) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("cluster: value of %q has %d bytes, not 8", key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

func indexKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }

// The first byte of a stored entry says how the rest is written.
const (
	plainFormat  = 1 // without a checksum
	sealedFormat = 2
)

// encodeLog writes an entry without its index, which is the key:
//
//	format(1) type(1) term(8) appendedAt(8, ns since 1970, 0 unknown) len(extensions)(uvarint) extensions data crc32c(4, of key and all before)
func encodeLog(l *raft.Log) []byte {
	b := make([]byte, 0, 32+len(l.Extensions)+len(l.Data))
	b = append(b, sealedFormat, byte(l.Type))
	b = binary.BigEndian.AppendUint64(b, l.Term)
	var at int64
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = binary.AppendUvarint(b, uint64(len(l.Extensions)))
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	return binary.BigEndian.AppendUint32(b, checksum(indexKey(l.Index), b))
}

// decodeLog reads what encodeLog wrote; the slices are copies.
func decodeLog(index uint64, b []byte, l *raft.Log) error {
	if len(b) < 19 || b[0] != plainFormat && b[0] != sealedFormat {
		return damaged("or it was written by another version")
	}
	if b[0] == sealedFormat {
		var err error
		if b, err = unseal(indexKey(index), b); err != nil || len(b) < 19 {
			return damaged("it has another checksum")
		}
	}
	*l = raft.Log{Index: index, Type: raft.LogType(b[1]), Term: binary.BigEndian.Uint64(b[2:])}
	if at := int64(binary.BigEndian.Uint64(b[10:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	b = b[18:]
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return damaged("extensions are longer than the entry")
	}
	b = b[w:]
	if n > 0 {
		l.Extensions = append([]byte{}, b[:n]...)
	}
	if b = b[n:]; len(b) > 0 {
		l.Data = append([]byte{}, b...)
	}
	return nil
}
