package cluster

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/hashicorp/raft"
)

// Member is what the leader knows of a member.
type Member struct {
	ID      string        `json:"id"`
	Address string        `json:"address"` // raft and exchange
	GRPC    string        `json:"grpc,omitempty"`
	HTTP    string        `json:"http,omitempty"`
	Version string        `json:"version,omitempty"`
	Voter   bool          `json:"voter"`
	Leader  bool          `json:"leader"`
	Healthy bool          `json:"healthy"` // heard of within the last beats, and without a fault
	Fault   string        `json:"fault,omitempty"`
	Applied uint64        `json:"applied"` // as of its last beat
	Lag     uint64        `json:"lag"`     // entries behind the leader's commit
	Contact time.Duration `json:"contact"` // since it was heard of; negative: never
}

// configuration returns raft's membership.
func (n *Node) configuration() []raft.Server {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

func (n *Node) servers() []Server {
	var out []Server
	for _, s := range n.configuration() {
		out = append(out, Server{string(s.ID), string(s.Address)})
	}
	return out
}

func (n *Node) find(id string) (raft.Server, error) {
	for _, s := range n.configuration() {
		if string(s.ID) == id {
			return s, nil
		}
	}
	return raft.Server{}, fmt.Errorf("%w: %q", ErrNoMember, id)
}

// Members returns all members by id. The leader answers; other nodes ask it,
// and where there is none or it is silent, say what they know themselves:
// names and addresses, with nobody healthy.
func (n *Node) Members(ctx context.Context) ([]Member, error) {
	leads := n.IsLeader()
	if !leads {
		ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.HeartbeatTimeout)
		resp, err := n.askLeader(ctx, request{Op: opMembers})
		cancel()
		if err == nil {
			return resp.Members, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	records, err := n.state.members()
	if err != nil {
		return nil, err
	}
	leader, commit, now := n.Leader(), n.raft.CommitIndex(), time.Now()
	var out []Member
	for _, s := range n.configuration() {
		r := records[string(s.ID)]
		m := Member{
			ID: string(s.ID), Address: string(s.Address), GRPC: r.GRPC, HTTP: r.HTTP, Version: r.Version,
			Voter: s.Suffrage == raft.Voter, Leader: string(s.ID) == leader.ID, Contact: -1,
		}
		switch {
		case m.ID == n.cfg.ID:
			m.Applied, m.Contact, m.Healthy = n.Applied(), 0, leads
			if err := n.Fault(); err != nil {
				m.Fault, m.Healthy = err.Error(), false
			}
		case leads:
			if b, ok := n.peers.last(m.ID); ok {
				m.Applied, m.Contact = b.applied, now.Sub(b.at)
				m.Fault, m.Healthy = b.fault, m.Contact < n.silence() && b.fault == ""
			}
		}
		if leads && commit > m.Applied {
			m.Lag = commit - m.Applied
		}
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}

// Join takes a node in: without a vote at first, with one when it has caught
// up, unless nonVoter. A member of the same id or address is replaced; the very
// same member is left as it is. Only the leader can.
func (n *Node) Join(ctx context.Context, s Server, nonVoter bool) error {
	return n.join(ctx, request{From: s, NonVoter: nonVoter})
}

func (n *Node) join(ctx context.Context, r request) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	id, address := r.From.ID, r.From.Address
	if id == "" || address == "" {
		return fmt.Errorf("cluster: a node that joins needs an id and an address, not %q and %q", id, address)
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	records, err := n.state.members()
	if err != nil {
		return err
	}
	if used := n.state.format(); r.Auto && max(r.Format, 1) < used {
		return fmt.Errorf("cluster: %s is of a version (%s) that does not know commands of this cluster (format %d, it knows %d): upgrade it", id, r.Version, used, max(r.Format, 1))
	}
	old, known := records[id]
	if r.Auto && known && old.Removed {
		return fmt.Errorf("cluster: %s was removed; only a join by hand brings it back", id)
	}
	record := memberRecord{ID: id, GRPC: r.GRPC, HTTP: r.HTTP, Version: r.Version, Format: r.Format, Voter: !r.NonVoter}
	member := false
	for _, s := range n.configuration() {
		switch {
		case string(s.ID) == id && string(s.Address) == address:
			member = true
			record.Voter = record.Voter || s.Suffrage == raft.Voter
			if r.GRPC == "" && r.HTTP == "" && r.Version == "" {
				record.GRPC, record.HTTP, record.Version, record.Format = old.GRPC, old.HTTP, old.Version, old.Format
			}
		case string(s.ID) == n.cfg.ID && (string(s.ID) == id || string(s.Address) == address):
			return fmt.Errorf("cluster: %s at %s is the leader itself: transfer the leadership first", s.ID, s.Address)
		case string(s.ID) == id || string(s.Address) == address:
			n.log.Info("member is replaced", "old", s.ID, "address", s.Address, "by", id)
			if err := n.change(ctx, n.raft.RemoveServer(s.ID, 0, enqueueTimeout)); err != nil {
				return err
			}
		}
	}
	if record != old {
		if _, _, err := n.propose(ctx, memberCommand(record)); err != nil {
			return err
		}
	}
	if member {
		return nil
	}
	n.peers.expect(id, time.Now())
	n.log.Info("member joins", "id", id, "address", address, "voter", record.Voter)
	return n.change(ctx, n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, enqueueTimeout))
}

// change awaits a change of raft's membership.
func (n *Node) change(ctx context.Context, f raft.IndexFuture) error {
	return n.classify(n.await(ctx, f.Error))
}

// Remove takes a member out, for good: it comes back only by Join. Only the
// leader can. A leader that removes itself steps down. Unless it is forced, it is
// refused with ErrMajority if no majority of healthy voters would remain.
func (n *Node) Remove(ctx context.Context, id string, force bool) error {
	if !force {
		if err := n.spare(ctx, id); err != nil {
			return err
		}
	}
	return n.remove(ctx, id, true)
}

// spare returns ErrMajority if without the vote of a member the voters that are
// healthy would be no majority.
func (n *Node) spare(ctx context.Context, id string) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	all, err := n.Members(ctx)
	if err != nil {
		return err
	}
	voters, healthy, votes := 0, 0, false
	for _, m := range all {
		switch {
		case !m.Voter:
		case m.ID == id:
			votes = true
		default:
			voters++
			if m.Healthy {
				healthy++
			}
		}
	}
	if votes && healthy <= voters/2 {
		return fmt.Errorf("%w: of the %d voters that would remain %d are healthy", ErrMajority, voters, healthy)
	}
	return nil
}

func (n *Node) remove(ctx context.Context, id string, forGood bool) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	if _, err := n.find(id); err != nil {
		return err
	}
	cmd := forgetCommand(id)
	if forGood {
		cmd = memberCommand(memberRecord{ID: id, Removed: true})
	}
	if _, _, err := n.propose(ctx, cmd); err != nil {
		return err
	}
	n.log.Info("member is removed", "id", id)
	return n.change(ctx, n.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout))
}

// Promote gives a member a vote once it has caught up. Only the leader can.
func (n *Node) Promote(ctx context.Context, id string) error {
	_, err := n.setVoter(ctx, id, true)
	return err
}

// Demote takes a member's vote; it keeps the log. Only the leader can. A leader
// that demotes itself steps down. Unless it is forced, it is refused as Remove is.
func (n *Node) Demote(ctx context.Context, id string, force bool) error {
	if !force {
		if err := n.spare(ctx, id); err != nil {
			return err
		}
	}
	s, err := n.setVoter(ctx, id, false)
	if err != nil || s.Suffrage != raft.Voter {
		return err
	}
	return n.change(ctx, n.raft.DemoteVoter(s.ID, 0, enqueueTimeout))
}

func (n *Node) setVoter(ctx context.Context, id string, voter bool) (raft.Server, error) {
	if !n.IsLeader() {
		return raft.Server{}, n.notLeader()
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	s, err := n.find(id)
	if err != nil {
		return s, err
	}
	records, err := n.state.members()
	if err != nil {
		return s, err
	}
	r := records[id]
	r.ID, r.Voter = id, voter
	_, _, err = n.propose(ctx, memberCommand(r))
	return s, err
}

// Transfer hands the leadership to a voter, the most advanced if id is empty.
// Only the leader can.
func (n *Node) Transfer(ctx context.Context, id string) error {
	if !n.IsLeader() {
		return n.notLeader()
	}
	if id == "" {
		return n.classify(n.await(ctx, n.raft.LeadershipTransfer().Error))
	}
	s, err := n.find(id)
	if err != nil {
		return err
	}
	return n.classify(n.await(ctx, n.raft.LeadershipTransferToServer(s.ID, s.Address).Error))
}

// Leave takes this node out of the cluster: a leader first hands over. Close
// it afterwards. The last voter cannot leave.
func (n *Node) Leave(ctx context.Context) error {
	var err error
	for first := true; first || sleep(ctx, n.cfg.HeartbeatTimeout/4); first = false {
		if n.IsLeader() {
			if err = n.Transfer(ctx, ""); err != nil {
				return fmt.Errorf("cluster: cannot hand over before leaving: %w", err)
			}
			continue
		}
		if _, err = n.askLeader(ctx, request{Op: opLeave}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("cluster: leave: %w (%v)", ctx.Err(), err)
}

// Known returns what this node itself knows of a member: its id, addresses and
// version, whoever leads.
func (n *Node) Known(id string) (Member, bool) {
	for _, m := range n.AllKnown() {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// AllKnown returns what this node itself knows of all members.
func (n *Node) AllKnown() []Member {
	records, err := n.state.members()
	if err != nil {
		return nil
	}
	var out []Member
	for _, s := range n.configuration() {
		r := records[string(s.ID)]
		out = append(out, Member{ID: string(s.ID), Address: string(s.Address), GRPC: r.GRPC, HTTP: r.HTTP, Version: r.Version,
			Voter: s.Suffrage == raft.Voter, Contact: -1})
	}
	return out
}
