package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
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
type snapshotStore struct {
	raft.SnapshotStore
	logs   raft.LogStore // the one that raft uses, cache and all
	newest atomic.Pointer[position]
}

func newSnapshotStore(inner raft.SnapshotStore, logs raft.LogStore) (*snapshotStore, error) {
	s := &snapshotStore{SnapshotStore: inner, logs: logs}
	if p, err := s.last(); err != nil || p.index == 0 {
		return s, err
	} else {
		return s, s.completed(p) // a crash may have come between Close and the mending
	}
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
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, store: s, pos: position{index, term}}, nil
}

// Open opens a snapshot; its reader carries its position to fsm.Restore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
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
	if err := s.SnapshotSink.Close(); err != nil {
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
