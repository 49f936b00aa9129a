package cluster

import (
	"io"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// fsm is what raft sees of the state.
type fsm struct {
	*state
	took func(time.Duration) // to apply a batch; nil if nobody asks
}

var _ raft.BatchingFSM = fsm{}

// Apply applies one entry (raft calls it in recovery only).
func (f fsm) Apply(l *raft.Log) any { return f.apply([]*raft.Log{l})[0] }

// ApplyBatch applies entries in one transaction.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	if f.took != nil {
		defer func(began time.Time) { f.took(time.Since(began)) }(time.Now())
	}
	return f.apply(logs)
}

// Snapshot opens a read transaction; the copying is Persist's, beside Apply.
// After a restart raft hands over again what the state has, and would label a
// snapshot with how far it is: until it has caught up there is nothing new.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.handed < f.pos.index {
		return nil, raft.ErrNothingNewToSnapshot
	}
	return f.snapshot()
}

func (f fsm) snapshot() (raft.FSMSnapshot, error) {
	g, err := f.acquire()
	if err != nil {
		return nil, err
	}
	tx, err := g.db.Begin(false)
	if err != nil {
		g.readers.Done()
		return nil, err
	}
	return &stateSnapshot{g: g, tx: tx}, nil
}

// Restore replaces the state by a snapshot.
func (f fsm) Restore(r io.ReadCloser) error {
	return f.restore(r, labelOf(r))
}

type stateSnapshot struct {
	g  *generation
	tx *bbolt.Tx
}

func (s *stateSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := s.tx.WriteTo(sink); err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}

func (s *stateSnapshot) Release() {
	s.tx.Rollback()
	s.g.readers.Done()
}
