package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
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
	for {
		err := n.Barrier(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, ErrNotLeader) || !sleep(ctx, n.cfg.HeartbeatTimeout/4) {
			return
		}
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
