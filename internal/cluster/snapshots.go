package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// snapshotStore mends what raft leaves behind when a follower installs a
// snapshot at K whose log is of another history (hashicorp/raft #697).
//
// raft keeps the old entries. Those up to K are dangerous: once this node leads
// it would replicate them as if they had been committed. Those at and after K
// make the check "my entry before yours is the same" fail at K forever, so
// that the leader sends the snapshot again, and again. So, when a snapshot is
// complete and the log does not hold its last entry, everything up to K is
// deleted here; and the transport, which asks holds, spares raft the check at K,
// whose outcome is known: the snapshot is the leader's history up to K. The
// conflicting entries after K then fall to raft's ordinary conflict check.
//
// raft's checksum of a snapshot does not cover what it says of it, so that has one
// of its own beside it; a snapshot that is damaged is as one that there is not.
type snapshotStore struct {
	raft.SnapshotStore
	dir    string        // of the snapshots
	logs   raft.LogStore // the one that raft uses, cache and all
	seam   seam
	newest atomic.Pointer[position]
}

// Files of a snapshot: raft's, and ours.
const (
	metaFile = "meta.json"
	sumFile  = "meta.sum"
)

func newSnapshotStore(inner raft.SnapshotStore, dir string, logs raft.LogStore, at seam) (*snapshotStore, error) {
	s := &snapshotStore{SnapshotStore: inner, dir: dir, logs: logs, seam: at}
	if p, err := s.last(); err != nil || p.index == 0 {
		return s, err
	} else {
		return s, s.completed(p) // a crash may have come between Close and the mending
	}
}

// List returns the snapshots that are not damaged, the newest first.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.SnapshotStore.List()
	return slices.DeleteFunc(all, func(m *raft.SnapshotMeta) bool { return s.sound(m.ID) != nil }), err
}

// sound returns why what raft says of a snapshot is not to be believed.
func (s *snapshotStore) sound(id string) error {
	meta, err := os.ReadFile(filepath.Join(s.dir, id, metaFile))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(s.dir, id, sumFile))
	if errors.Is(err, fs.ErrNotExist) { // of an older version, or a crash came before it
		return nil
	}
	if err == nil && string(sum) != sumOf(meta) {
		err = damaged("snapshot %s is not described as it was", id)
	}
	return err
}

func sumOf(meta []byte) string { return fmt.Sprintf("%08x\n", checksum(meta)) }

// describe keeps the checksum of what raft says of a snapshot.
func (s *snapshotStore) describe(id string) error {
	meta, err := os.ReadFile(filepath.Join(s.dir, id, metaFile))
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(s.dir, id, sumFile), strings.NewReader(sumOf(meta))); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Join(s.dir, id))
}

// last returns the position of the newest snapshot, zero if there is none.
func (s *snapshotStore) last() (position, error) {
	list, err := s.List()
	if err != nil {
		return position{}, fmt.Errorf("cluster: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return position{}, nil
	}
	return position{list[0].Index, list[0].Term}, nil
}

// holds says whether (index, term) is the last entry of the newest snapshot.
func (s *snapshotStore) holds(index, term uint64) bool {
	p := s.newest.Load()
	return p != nil && *p == position{index, term}
}

func (s *snapshotStore) completed(p position) error {
	var l raft.Log
	err := s.logs.GetLog(p.index, &l)
	switch {
	case err != nil && !errors.Is(err, raft.ErrLogNotFound):
		return err
	case err != nil || l.Term != p.term:
		first, err := s.logs.FirstIndex()
		if err != nil {
			return err
		}
		if first > 0 && first <= p.index {
			if err := s.logs.DeleteRange(first, p.index); err != nil {
				return fmt.Errorf("cluster: drop the log before the snapshot: %w", err)
			}
		}
	}
	s.newest.Store(&p)
	return nil
}

// Create begins a snapshot.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	if err := s.seam.at("snapshot create"); err != nil {
		return nil, err
	}
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, store: s, pos: position{index, term}}, nil
}

// Open opens a snapshot; its reader carries its position to fsm.Restore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.sound(id); err != nil {
		return nil, nil, err
	}
	meta, r, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	return meta, labelled{ReadCloser: r, pos: position{meta.Index, meta.Term}}, nil
}

type snapshotSink struct {
	raft.SnapshotSink
	store *snapshotStore
	pos   position
}

func (s *snapshotSink) Close() error {
	if err := s.store.seam.at("snapshot close"); err != nil {
		return errors.Join(err, s.Cancel())
	}
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	if err := s.store.seam.at("snapshot describe"); err != nil {
		return err
	}
	if err := s.store.describe(s.ID()); err != nil {
		return err
	}
	if err := s.store.seam.at("snapshot complete"); err != nil {
		return err
	}
	return s.store.completed(s.pos)
}

type labelled struct {
	io.ReadCloser
	pos position
}

// labelOf finds the position under raft's wrappers, zero if there is none.
func labelOf(r io.ReadCloser) position {
	for {
		switch v := r.(type) {
		case labelled:
			return v.pos
		case raft.ReadCloserWrapper:
			r = v.WrappedReadCloser()
		default:
			return position{}
		}
	}
}

// unmended is a store as raft has it, for the test that shows the need.
type unmended struct{ raft.SnapshotStore }

func (u unmended) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := u.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	return meta, labelled{ReadCloser: r, pos: position{meta.Index, meta.Term}}, nil
}
