package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// Machine is the replicated state: the caller's buckets in a bbolt file.
//
// Apply must be a function of its arguments and the transaction alone (no
// clock, no map order, no randomness), have no effect outside the transaction,
// and keep neither tx nor command. It returns a result for the proposer, or an
// error: then none of the command's effects stay. Because a batch that holds a
// failed command is run again without it, Apply may see a command twice; only
// one run is ever committed. A panic stops the process.
//
// Init creates the buckets that are missing, with nothing in them that
// commands did not put there. It runs at open and after every restore.
// Bucket names that begin with an underscore belong to this package.
type Machine interface {
	Init(tx *bbolt.Tx) error
	Apply(tx *bbolt.Tx, index uint64, command []byte) any
}

var (
	ownBucket     = []byte("_cluster")
	membersBucket = []byte("members")
	sumsBucket    = []byte("sums") // checksums of the values of this package
	appliedKey    = []byte("applied")
)

// putOwn writes a value of this package's, in a bucket of its own or (nil) beside
// those, and its checksum. An older version of this program does not know of these:
// what it wrote since looks damaged, and is made anew.
func putOwn(tx *bbolt.Tx, bucket, key, value []byte) error {
	own := tx.Bucket(ownBucket)
	b := own
	if bucket != nil {
		b = own.Bucket(bucket)
	}
	return errors.Join(b.Put(key, value), own.Bucket(sumsBucket).Put(sumKey(bucket, key), binary.BigEndian.AppendUint32(nil, checksum(bucket, key, value))))
}

func deleteOwn(tx *bbolt.Tx, bucket, key []byte) error {
	own := tx.Bucket(ownBucket)
	return errors.Join(own.Bucket(bucket).Delete(key), own.Bucket(sumsBucket).Delete(sumKey(bucket, key)))
}

func sumKey(bucket, key []byte) []byte { return bytes.Join([][]byte{bucket, key}, []byte("/")) }

// ownSums compares the values of this package with their checksums.
type ownSums struct{ want, have map[string]uint32 }

// note takes a value of this package's, or a checksum.
func (s *ownSums) note(path [][]byte, key, value []byte) error {
	if s.want == nil {
		s.want, s.have = map[string]uint32{}, map[string]uint32{}
	}
	switch {
	case len(path) == 1:
		s.have[string(sumKey(nil, key))] = checksum(nil, key, value)
	case bytes.Equal(path[1], sumsBucket):
		if len(value) != 4 {
			return damaged("a checksum of %d bytes", len(value))
		}
		s.want[string(key)] = binary.BigEndian.Uint32(value)
	case bytes.Equal(path[1], membersBucket):
		s.have[string(sumKey(path[1], key))] = checksum(path[1], key, value)
	default:
		return damaged("there is no bucket %q", path[1])
	}
	return nil
}

// check returns an error if a value has another checksum than is kept of it. None
// are kept by older versions.
func (s *ownSums) check() error {
	if len(s.want) == 0 {
		return nil
	}
	for key, sum := range s.have {
		if want, ok := s.want[key]; !ok || want != sum {
			return damaged("the value of %q has another checksum", key)
		}
	}
	if len(s.want) != len(s.have) {
		return damaged("of %d values %d are there", len(s.want), len(s.have))
	}
	return nil
}

// stateMmap reserves address space, not memory: a write that outgrows the map
// has to wait for all readers, and a snapshot is a long reader. Up to this size
// nobody waits.
const stateMmap = 1 << 30

// position names a log entry.
type position struct{ index, term uint64 }

// covers says whether a state at p contains everything up to q. A later term
// at a lower index is another history.
func (p position) covers(q position) bool { return p.index >= q.index && p.term >= q.term }

// state is the applied state on disk: one bbolt transaction a batch, with the
// position of its last entry inside, so that what a restart replays is known
// to have been applied.
type state struct {
	path    string
	machine Machine
	writes  *writes
	seam    seam
	log     *slog.Logger
	stop    <-chan struct{} // the node ends
	full    func()          // ends the wait for room on the disk, nil if there is none; its goroutine only

	// mu guards the fields below. Only the goroutine that applies and restores
	// changes them.
	mu      sync.RWMutex
	cur     *generation
	pos     position
	changed chan struct{}
	closed  bool // there are no more readers

	applying sync.Mutex         // held while entries are applied, or the file is replaced
	check    func(index uint64) // is told of a check, by the goroutine that applies; nil for nobody

	knows   uint64         // the newest format of commands
	handed  uint64         // last entry that raft handed over; its goroutine only
	retired sync.WaitGroup // generations whose last readers are awaited
}

// generation is one open file. A restore puts a new one in its place; the old
// one is closed when its last reader is done, because bbolt's Close waits for
// readers and the restore must not (the reader may be a snapshot that waits for
// raft, which waits for the restore).
type generation struct {
	db      *bbolt.DB
	readers sync.WaitGroup
}

// A Verifier is a Machine that knows when a value of its buckets is not as it was
// written. Verify is given every value, with its key and the names of the buckets
// that it is in; an error says that the value is damaged.
type Verifier interface {
	Verify(path [][]byte, key, value []byte) error
}

// verify returns an error for a value of the state that is damaged.
func verify(m Machine, path [][]byte, key, value []byte) error {
	v, ok := m.(Verifier)
	if !ok {
		return nil
	}
	if err := v.Verify(path, key, value); err != nil {
		return damaged("%s/%q: %v", bytes.Join(path, []byte("/")), key, err)
	}
	return nil
}

// checkState looks through a file of the state that nobody has open.
func checkState(path string, m Machine) (sight, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return sight{halves: 2}, nil
	}
	var own ownSums
	is, err := lookThrough(path, func(path [][]byte, key, value []byte) error {
		if len(path) > 0 && bytes.Equal(path[0], ownBucket) {
			return own.note(path, key, value)
		}
		return verify(m, path, key, value)
	})
	if err == nil {
		err = own.check()
	}
	return is, err
}

func openState(path string, m Machine, knows uint64) (*state, error) {
	s := &state{path: path, machine: m, knows: knows, changed: make(chan struct{})}
	db, pos, err := s.open(path, position{})
	if err != nil {
		return nil, err
	}
	s.cur, s.pos = &generation{db: db}, pos
	return s, nil
}

// open opens a state file, creates what is missing in it, and returns its
// position, moved on to floor if it is before that.
func (s *state) open(path string, floor position) (*bbolt.DB, position, error) {
	db, err := openBolt(path, stateMmap)
	if err != nil {
		return nil, position{}, err
	}
	var pos position
	err = db.Update(func(tx *bbolt.Tx) error {
		own, err := tx.CreateBucketIfNotExists(ownBucket)
		if err != nil {
			return err
		}
		if _, err := own.CreateBucketIfNotExists(membersBucket); err != nil {
			return err
		}
		if err := sumOwn(tx); err != nil {
			return err
		}
		if pos, err = readPosition(tx); err != nil {
			return err
		}
		if err := s.known(usedFormat(tx)); err != nil {
			return err
		}
		if floor.index > pos.index {
			pos = floor
			if err := writePosition(tx, pos); err != nil {
				return err
			}
		}
		return s.machine.Init(tx)
	})
	if err != nil {
		db.Close()
		return nil, position{}, fmt.Errorf("cluster: %s: %w", path, err)
	}
	return db, pos, nil
}

func readPosition(tx *bbolt.Tx) (position, error) {
	switch v := tx.Bucket(ownBucket).Get(appliedKey); len(v) {
	case 0:
		return position{}, nil
	case 16:
		return position{binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])}, nil
	default:
		return position{}, errors.New("the applied index is damaged")
	}
}

func writePosition(tx *bbolt.Tx, p position) error {
	v := binary.BigEndian.AppendUint64(nil, p.index)
	return putOwn(tx, nil, appliedKey, binary.BigEndian.AppendUint64(v, p.term))
}

// sumOwn makes the checksums of a state of a version that kept none.
func sumOwn(tx *bbolt.Tx) error {
	own := tx.Bucket(ownBucket)
	if own.Bucket(sumsBucket) != nil {
		return nil
	}
	if _, err := own.CreateBucket(sumsBucket); err != nil {
		return err
	}
	for bucket, b := range map[string]*bbolt.Bucket{"": own, string(membersBucket): own.Bucket(membersBucket)} {
		all := map[string][]byte{}
		err := b.ForEach(func(k, v []byte) error {
			if v != nil {
				all[string(k)] = bytes.Clone(v)
			}
			return nil
		})
		name := []byte(bucket)
		if bucket == "" {
			name = nil
		}
		for k, v := range all {
			err = errors.Join(err, putOwn(tx, name, []byte(k), v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close waits for readers and closes the file.
func (s *state) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.retired.Wait()
	s.cur.readers.Wait()
	return s.cur.db.Close()
}

// acquire returns the current generation, held open until readers.Done, or
// ErrClosed.
func (s *state) acquire() (*generation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.cur.readers.Add(1)
	return s.cur, nil
}

// view runs f in a read transaction.
func (s *state) view(f func(*bbolt.Tx) error) error {
	g, err := s.acquire()
	if err != nil {
		return err
	}
	defer g.readers.Done()
	return g.db.View(f)
}

// applied returns the position of the last applied entry, and a channel that
// is closed when there is another.
func (s *state) applied() (position, <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pos, s.changed
}

// moved publishes a new position, and a new generation where there is one.
func (s *state) moved(pos position, g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g != nil {
		old := s.cur
		s.cur = g
		s.retired.Go(func() {
			old.readers.Wait()
			old.db.Close()
		})
	}
	s.pos = pos
	close(s.changed)
	s.changed = make(chan struct{})
}

// apply runs entries, in as few transactions as can be: a check of the state sees
// it as it is after the entry that asks for it.
func (s *state) apply(logs []*raft.Log) (results []any) {
	s.applying.Lock()
	defer s.applying.Unlock()
	for len(logs) > 0 {
		n := 1 + slices.IndexFunc(logs, isCheck)
		if n == 0 {
			return append(results, s.applyAll(logs)...)
		}
		results = append(results, s.applyAll(logs[:n])...)
		if last := logs[n-1]; s.check != nil && last.Index == s.pos.index {
			s.check(last.Index)
		}
		logs = logs[n:]
	}
	return results
}

func isCheck(l *raft.Log) bool {
	return l.Type == raft.LogCommand && len(l.Data) > 0 && l.Data[0] == cmdCheck
}

// applyAll runs a batch of entries in one transaction. Those at or before the
// position of the state are passed over. A command that fails is left out and
// the rest of the batch run again, so that it changed nothing; bbolt has no
// nested transactions, and failures are rare.
func (s *state) applyAll(logs []*raft.Log) []any {
	results := make([]any, len(logs))
	last := logs[len(logs)-1]
	s.handed = last.Index
	if last.Index <= s.pos.index {
		return results
	}
	rejected := make([]bool, len(logs))
	for {
		i, err := s.try(logs, results, rejected)
		switch {
		case noSpace(err) && s.waitForRoom(err):
			continue
		case noSpace(err): // the node ends: the entries are applied when it is opened again
			for i := range results {
				results[i] = ErrUnknownOutcome
			}
			return results
		case err != nil:
			panic(fmt.Errorf("cluster: cannot apply entry %d to %s: %w", last.Index, s.path, err))
		}
		if i < 0 {
			break
		}
		rejected[i] = true
	}
	s.hasRoom()
	s.moved(position{last.Index, last.Term}, nil)
	return results
}

// waitForRoom waits a moment for room on the disk: what is committed has to be
// applied, and can be once there is room. As long as there is none a write is under
// way, as for a disk that hangs. False says that the node ends.
func (s *state) waitForRoom(err error) bool {
	if s.full == nil {
		s.full = s.writes.begin()
		s.log.Error("there is no room for the state: waiting for some", "file", s.path, "error", err)
	}
	select {
	case <-time.After(roomWait):
		return true
	case <-s.stop:
		return false
	}
}

// hasRoom notes that a write went through.
func (s *state) hasRoom() {
	if s.full != nil {
		s.full()
		s.full = nil
		s.log.Warn("there is room for the state again", "file", s.path)
	}
}

// roomWait is the pause between attempts to write to a disk that is full.
const roomWait = 200 * time.Millisecond

var errRejected = errors.New("command rejected")

// try commits the batch, or rolls it back and returns the place of the command
// that failed, its error in results.
func (s *state) try(logs []*raft.Log, results []any, rejected []bool) (failed int, err error) {
	failed = -1
	defer s.writes.begin()()
	if err := s.seam.at("state apply"); err != nil {
		return failed, err
	}
	err = s.cur.db.Update(func(tx *bbolt.Tx) error {
		for i, l := range logs {
			if rejected[i] || l.Index <= s.pos.index || l.Type != raft.LogCommand {
				continue
			}
			results[i] = s.applyOne(tx, l)
			if _, bad := results[i].(error); bad {
				failed = i
				return errRejected
			}
		}
		last := logs[len(logs)-1]
		return writePosition(tx, position{last.Index, last.Term})
	})
	if failed >= 0 {
		return failed, nil
	}
	if err == nil {
		err = s.seam.at("state apply done")
	}
	return failed, err
}

func (s *state) applyOne(tx *bbolt.Tx, l *raft.Log) any {
	c, err := decodeCommand(l.Data)
	switch {
	case errors.Is(err, errUnknownCommand):
		panic(fmt.Errorf("entry %d has type %d: %w", l.Index, l.Data[0], err))
	case err != nil:
		return err
	case c.kind == cmdUser:
		return s.machine.Apply(tx, l.Index, c.user)
	case c.kind == cmdFormat:
		if err := s.known(c.format); err != nil {
			panic(fmt.Errorf("entry %d: %w", l.Index, err)) // to go on would make this state differ
		}
		if err := useFormat(tx, c.format); err != nil {
			return err
		}
		return s.machine.Apply(tx, l.Index, c.user)
	case c.kind == cmdMember || c.kind == cmdForget:
		if err := applyMember(tx, c); err != nil {
			return err
		}
	}
	return nil
}

// restore replaces the state by a file's bytes. label is where raft takes the
// state to be: after the file's own position if raft's own entries followed it,
// or if it is a backup with another history's counting.
func (s *state) restore(r io.Reader, label position) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	tmp := s.path + restoreMark
	if err := s.seam.at("state restore"); err != nil {
		return err
	}
	if err := writeFile(tmp, r); err != nil {
		return err
	}
	defer os.Remove(tmp) // gone by then unless something failed
	db, pos, err := s.open(tmp, label)
	if err != nil {
		return err
	}
	err = s.seam.at("state rename")
	if err == nil {
		err = errors.Join(os.Rename(tmp, s.path), atomicfile.SyncDir(filepath.Dir(s.path)))
	}
	if err == nil {
		err = s.seam.at("state rename done")
	}
	if err != nil {
		db.Close()
		return err
	}
	s.handed = pos.index
	s.moved(pos, &generation{db: db})
	return nil
}

// members returns the records of all members ever heard of, by id.
func (s *state) members() (map[string]memberRecord, error) {
	out := map[string]memberRecord{}
	err := s.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(ownBucket).Bucket(membersBucket).ForEach(func(_, v []byte) error {
			var r memberRecord
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			out[r.ID] = r
			return nil
		})
	})
	return out, err
}

// writeFile writes r to a new file at path and syncs it.
func writeFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}
