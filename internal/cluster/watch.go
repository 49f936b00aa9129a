package cluster

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A leader whose disk does not answer goes on to lead: raft's heartbeats are other
// goroutines than the one that waits for the disk, so nobody stands for election,
// and no command goes through, for as long as it lasts (hashicorp/raft #503). So
// writes are timed: one that is out for Config.StallTimeout is a fault, of which
// the caller is told, who ends the process, as CockroachDB does. A disk that
// answers, but slowly, costs the leader its place alone.

// A disk is slow while it took long for slowWrites writes lately: within slowSpan
// times what is long.
const (
	slowWrites = 3
	slowSpan   = 20
)

// writes are those to the disk that are under way.
type writes struct {
	slowFrom time.Duration       // a write that takes so long is slow
	took     func(time.Duration) // is told of each; nil for nobody

	mu    sync.Mutex
	began map[uint64]time.Time
	next  uint64
	slow  [slowWrites]time.Time // the latest, the oldest of them first
}

// begin notes that a write begins, until the function returned is called.
func (w *writes) begin() (end func()) {
	if w == nil {
		return func() {}
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began == nil {
		w.began = map[uint64]time.Time{}
	}
	n := w.next
	w.next++
	w.began[n] = now
	return func() {
		took := time.Since(now)
		w.mu.Lock()
		delete(w.began, n)
		if took >= w.slowFrom {
			copy(w.slow[:], w.slow[1:])
			w.slow[slowWrites-1] = time.Now()
		}
		w.mu.Unlock()
		if w.took != nil {
			w.took(took)
		}
	}
}

// oldest returns for how long the oldest write has been under way, 0 if none is.
func (w *writes) oldest() (age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.began {
		age = max(age, time.Since(at))
	}
	return age
}

// isSlow reports whether the disk has been slow lately.
func (w *writes) isSlow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.slow[0]) < slowSpan*w.slowFrom
}

// WriteAge returns for how long the oldest write to the disk has been under way.
func (n *Node) WriteAge() time.Duration { return n.writes.oldest() }

// ProposalAge returns for how long the oldest command has been under way that was
// proposed here.
func (n *Node) ProposalAge() time.Duration { return n.proposals.oldest() }

// Fault returns what is wrong with this node, nil for nothing.
func (n *Node) Fault() error {
	for _, f := range []*atomic.Pointer[error]{&n.stalled, &n.differs, &n.mute} {
		if err := f.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// watchDisk looks after the disk, beside whatever waits for it.
func (n *Node) watchDisk() {
	var handed time.Time
	for sleep(n.ctx, min(n.cfg.StallTimeout/20, n.cfg.HeartbeatTimeout/2)) {
		age := n.writes.oldest()
		switch stalled := n.stalled.Load() != nil; {
		case age >= n.cfg.StallTimeout && !stalled:
			err := fmt.Errorf("cluster: a write to the disk of %s has not ended for %s", n.cfg.Dir, age.Round(time.Second/10))
			n.stalled.Store(&err)
			n.log.Error("the disk hangs", "for", age)
			if n.cfg.Stalled != nil && n.replaceable() {
				n.cfg.Stalled(err)
			}
		case age < n.cfg.StallTimeout && stalled:
			n.stalled.Store(nil)
			n.log.Warn("the disk answers again")
		}
		if n.IsLeader() && n.writes.isSlow() && time.Since(handed) > n.cfg.StallTimeout {
			handed = time.Now()
			n.handOver()
		}
	}
}

// replaceable reports whether there is another voter, who may lead.
func (n *Node) replaceable() bool {
	for _, s := range n.configuration() {
		if s.Suffrage == raft.Voter && string(s.ID) != n.cfg.ID {
			return true
		}
	}
	return false
}

// handOver lets another voter lead, whose disk is not slow, if there is one.
func (n *Node) handOver() {
	for _, s := range n.configuration() {
		b, ok := n.peers.last(string(s.ID))
		if s.Suffrage != raft.Voter || string(s.ID) == n.cfg.ID || !ok || time.Since(b.at) > n.silence() || b.slow || b.fault != "" {
			continue
		}
		n.log.Warn("the disk is slow: another one shall lead", "to", s.ID)
		ctx, cancel := context.WithTimeout(n.ctx, n.cfg.StallTimeout)
		err := n.await(ctx, n.raft.LeadershipTransferToServer(s.ID, s.Address).Error)
		cancel()
		if err == nil {
			return
		}
		n.log.Warn("it does not lead", "id", s.ID, "error", err)
	}
}

// Room returns how many bytes more the disks of a majority of the voters have room
// for, this node's among them, as far as they have told this node, which leads.
func (n *Node) Room() int64 {
	if n.cfg.Room == nil {
		return math.MaxInt64
	}
	mine := n.cfg.Room()
	var rooms []int64
	for _, s := range n.configuration() {
		room := int64(math.MaxInt64) // who has not told has enough
		if b, ok := n.peers.last(string(s.ID)); ok && b.room != nil {
			room = *b.room
		}
		if string(s.ID) == n.cfg.ID {
			room = mine
		}
		if s.Suffrage == raft.Voter {
			rooms = append(rooms, room)
		}
	}
	if len(rooms) == 0 {
		return mine
	}
	slices.Sort(rooms)
	return min(mine, rooms[(len(rooms)-1)/2])
}

// FreeInFiles returns the bytes of the node's files that are free for what comes.
func (n *Node) FreeInFiles() int64 {
	g, err := n.state.acquire()
	if err != nil {
		return 0
	}
	defer g.readers.Done()
	state, log := g.db.Stats(), n.store.stats()
	return int64(state.FreeAlloc) + int64(log.FreeAlloc) // of free and pending pages
}
