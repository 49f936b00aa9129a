package cluster

import (
	"context"
	"fmt"
	"time"
)

// enqueueTimeout bounds the wait for raft to take a command.
const enqueueTimeout = 10 * time.Second

// Apply replicates a command and returns what Machine.Apply returned on this
// node, with the command's index. Only the leader can. If the machine rejects
// the command its error comes back as it is, and nothing was changed. With
// ErrUnknownOutcome the command may have been applied, or may yet be.
func (n *Node) Apply(ctx context.Context, cmd []byte) (result any, index uint64, err error) {
	return n.ApplyFormat(ctx, 1, cmd)
}

func (n *Node) propose(ctx context.Context, entry []byte) (result any, index uint64, err error) {
	if err := n.alive(ctx); err != nil {
		return nil, 0, err
	}
	type outcome struct {
		result any
		index  uint64
	}
	done := make(chan outcome, 1)
	defer n.proposals.begin()()
	err = n.await(ctx, func() error {
		f := n.raft.Apply(entry, enqueueTimeout)
		if err := f.Error(); err != nil {
			return err
		}
		done <- outcome{f.Response(), f.Index()}
		return nil
	})
	if err != nil {
		return nil, 0, n.classify(err)
	}
	o := <-done
	if rejected, ok := o.result.(error); ok {
		return nil, o.index, rejected
	}
	return o.result, o.index, nil
}

func (n *Node) alive(ctx context.Context) error {
	if n.ctx.Err() != nil {
		return ErrClosed
	}
	return ctx.Err()
}

// ReadIndex returns an index such that a View after it sees every command whose
// Apply had returned anywhere when ReadIndex was called; on this node the state
// has been applied that far. Another node gives a linearizable read after
// WaitApplied of the same index. Only the leader can; it asks a majority.
//
// A leader's commit index is behind what its predecessor acknowledged until it
// has committed an entry of its own term, hence the barrier.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	if err := n.alive(ctx); err != nil {
		return 0, err
	}
	if !n.IsLeader() {
		return 0, n.notLeader()
	}
	term := n.raft.CurrentTerm()
	if n.barrier.Load() != term {
		if err := n.Barrier(ctx); err != nil {
			return 0, err
		}
	}
	index := n.raft.CommitIndex()
	if err := n.await(ctx, n.raft.VerifyLeader().Error); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, n.notLeader()
	}
	if n.raft.CurrentTerm() != term {
		return 0, n.notLeader()
	}
	return index, n.WaitApplied(ctx, index)
}

// Barrier commits an empty command and waits until it is applied, and with it
// everything before.
func (n *Node) Barrier(ctx context.Context) error {
	term := n.raft.CurrentTerm()
	if _, _, err := n.propose(ctx, []byte{cmdNoop}); err != nil {
		return err
	}
	if n.raft.CurrentTerm() == term {
		n.barrier.Store(term)
	}
	return nil
}

// WaitApplied waits until the state here contains the entry at index.
func (n *Node) WaitApplied(ctx context.Context, index uint64) error {
	for {
		pos, changed := n.state.applied()
		if pos.index >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cluster: applied %d, waiting for %d: %w", pos.index, index, ctx.Err())
		case <-n.ctx.Done():
			return ErrClosed
		}
	}
}
