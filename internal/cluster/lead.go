package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// monitor starts and stops lead. LeaderCh keeps the latest value only, so a
// "true" while leading means that leadership was lost and regained in between:
// what ran under the old term must end before the new one begins.
func (n *Node) monitor() {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case leads := <-n.raft.LeaderCh():
			stop()
			stop = func() {}
			if leads {
				ctx, cancel := context.WithCancel(n.ctx)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					n.lead(ctx)
				}()
				stop = func() {
					cancel()
					<-ended
				}
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// lead is what the leader does, until ctx ends.
func (n *Node) lead(ctx context.Context) {
	n.peers.beginTerm(time.Now())
	if !n.beginTerm(ctx) {
		return
	}
	n.log.Info("leading", "term", n.Term(), "applied", n.Applied())
	var wg sync.WaitGroup
	wg.Go(func() { n.housekeep(ctx) })
	if n.cfg.CheckEvery > 0 {
		wg.Go(func() { n.checks(ctx) })
	}
	if n.cfg.Lead != nil {
		n.cfg.Lead(ctx)
	}
	wg.Wait()
	n.log.Info("no longer leading")
}

// beginTerm waits until the state has all that earlier leaders committed, and reports whether this one
// still leads then.
//
// A leader that loses its place while it hands over may hold the transfer for unfinished for ever. When
// it is elected again it refuses all commands (hashicorp/raft #696), and only another process does not.
func (n *Node) beginTerm(ctx context.Context) bool {
	for began := time.Now(); ; {
		err := n.Barrier(ctx)
		refused := errors.Is(err, ErrNotLeader)
		switch {
		case err == nil:
			n.mute.Store(nil)
			return true
		case refused && n.raft.State() != raft.Leader:
			return false
		case refused && time.Since(began) >= n.cfg.StallTimeout && n.mute.Load() == nil:
			err := errors.New("cluster: this node leads and refuses all commands, since an earlier transfer of leadership has not ended: it has to be started again")
			n.mute.Store(&err)
			n.log.Error("a leader takes no commands", "error", err)
			if n.cfg.Stalled != nil && n.replaceable() {
				n.cfg.Stalled(err)
			}
		}
		if !sleep(ctx, n.cfg.HeartbeatTimeout/4) {
			return false
		}
	}
}

// sleep waits for d and says whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
