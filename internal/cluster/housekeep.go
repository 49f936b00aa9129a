package cluster

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// promoteLag is how many entries a member may be behind to be given a vote.
const promoteLag = 128

// beat is the last word of a member.
type beat struct {
	at      time.Time
	applied uint64
	slow    bool   // its disk is
	fault   string // what is wrong with it
	room    *int64 // bytes that its disk has for more, if that is known
}

// peers is the leader's memory of the others, in its memory only: a new leader
// begins with patience.
type peers struct {
	mu      sync.Mutex
	since   time.Time            // when this node began to lead
	heard   map[string]beat      // last beat
	joined  map[string]time.Time // members that joined and may not have spoken yet
	failed  map[string]bool      // raft's own heartbeats to them fail
	checked map[string]checked   // the last hash that they told, this node's too
}

func (p *peers) init() {
	p.heard, p.joined, p.failed, p.checked = map[string]beat{}, map[string]time.Time{}, map[string]bool{}, map[string]checked{}
}

func (p *peers) beginTerm(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = now
	clear(p.failed)
}

func (p *peers) hear(id string, b beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[id] = b
}

func (p *peers) expect(id string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined[id] = now
}

// told notes the hashes that a member and this node tell of, and returns those of
// all.
func (p *peers) told(id string, its checked, me string, mine checked) map[string]checked {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked[id], p.checked[me] = its, mine
	return maps.Clone(p.checked)
}

func (p *peers) last(id string) (beat, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.heard[id]
	return b, ok
}

// silentSince returns since when a member has been silent both ways: no beat
// from it, and raft's heartbeats to it fail. One way alone is not death.
func (p *peers) silentSince(id string) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.since
	for _, u := range []time.Time{p.heard[id].at, p.joined[id]} {
		if u.After(t) {
			t = u
		}
	}
	return t, p.failed[id]
}

// watchHeartbeats follows raft's heartbeats to the others.
func (n *Node) watchHeartbeats() {
	ch := make(chan raft.Observation, 64)
	o := raft.NewObserver(ch, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.FailedHeartbeatObservation, raft.ResumedHeartbeatObservation:
			return true
		}
		return false
	})
	n.raft.RegisterObserver(o)
	n.wg.Go(func() {
		defer n.raft.DeregisterObserver(o)
		for {
			select {
			case o := <-ch:
				n.peers.mu.Lock()
				switch d := o.Data.(type) {
				case raft.FailedHeartbeatObservation:
					n.peers.failed[string(d.PeerID)] = true
				case raft.ResumedHeartbeatObservation:
					delete(n.peers.failed, string(d.PeerID))
				}
				n.peers.mu.Unlock()
			case <-n.ctx.Done():
				return
			}
		}
	})
}

// silence is how long a member may go without a beat and count as healthy.
func (n *Node) silence() time.Duration { return 4 * n.cfg.HeartbeatTimeout }

// heard takes a member's beat, and replicates what is new about the member.
func (n *Node) heard(ctx context.Context, r request) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	if _, err := n.find(r.From.ID); err != nil {
		return err
	}
	n.peers.hear(r.From.ID, beat{at: time.Now(), applied: r.Applied, slow: r.Slow, fault: r.Fault, room: r.Room})
	return n.record(ctx, r)
}

func (n *Node) record(ctx context.Context, r request) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	records, err := n.state.members()
	if err != nil {
		return err
	}
	s, err := n.find(r.From.ID)
	if err != nil {
		return err
	}
	old, known := records[r.From.ID]
	now := old
	now.ID, now.GRPC, now.HTTP, now.Version, now.Format = r.From.ID, r.GRPC, r.HTTP, r.Version, r.Format
	now.Voter = old.Voter || !known && s.Suffrage == raft.Voter
	if now == old {
		return nil
	}
	_, _, err = n.propose(ctx, memberCommand(now))
	return err
}

// housekeep gives votes to those who have caught up and removes the dead.
func (n *Node) housekeep(ctx context.Context) {
	me := request{From: Server{n.cfg.ID, n.cfg.Advertise}, GRPC: n.cfg.GRPC, HTTP: n.cfg.HTTP, Version: n.cfg.Version, Format: n.cfg.Format}
	for {
		err := n.record(ctx, me)
		if err == nil {
			err = n.promoteReady(ctx)
		}
		if err == nil {
			err = n.removeDead(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotLeader) {
			n.log.Warn("housekeeping", "error", err)
		}
		if !sleep(ctx, n.cfg.HeartbeatTimeout/2) {
			return
		}
	}
}

func (n *Node) promoteReady(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	records, err := n.state.members()
	if err != nil {
		return err
	}
	for _, s := range n.configuration() {
		if s.Suffrage == raft.Voter || !records[string(s.ID)].Voter {
			continue
		}
		b, ok := n.peers.last(string(s.ID))
		if !ok || time.Since(b.at) > n.silence() || b.applied+promoteLag < n.raft.CommitIndex() {
			continue
		}
		n.log.Info("member gets a vote", "id", s.ID, "applied", b.applied)
		if err := n.change(ctx, n.raft.AddVoter(s.ID, s.Address, 0, enqueueTimeout)); err != nil {
			return err
		}
	}
	return nil
}

// removeDead removes one member that has been silent for the grace period, if
// the voters that are not silent are a majority now and stay one after.
func (n *Node) removeDead(ctx context.Context) error {
	if n.cfg.GracePeriod <= 0 {
		return nil
	}
	var dead *raft.Server
	voters, living := 0, 0
	for _, s := range n.configuration() {
		since, failing := n.peers.silentSince(string(s.ID))
		silent := string(s.ID) != n.cfg.ID && failing
		if s.Suffrage == raft.Voter {
			voters++
			if !silent {
				living++
			}
		}
		if silent && dead == nil && time.Since(since) > n.cfg.GracePeriod {
			dead = &s
		}
	}
	if dead == nil || living <= voters/2 {
		return nil
	}
	n.log.Warn("member has been silent for the grace period", "id", dead.ID, "grace", n.cfg.GracePeriod)
	return n.remove(ctx, string(dead.ID), false)
}
