package cluster

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// candidates are the nodes seen while there is no cluster. The set only grows:
// nodes found the cluster when all of them have seen the same N, so that no two
// groups of N can each believe to be it.
type candidates struct {
	mu   sync.Mutex
	seen map[string]string // address by id
}

func (c *candidates) init(self Server) { c.seen = map[string]string{self.ID: self.Address} }

// add remembers a node; false if another address has its id.
func (c *candidates) add(s Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.seen[s.ID]; ok {
		return old == s.Address
	}
	c.seen[s.ID] = s.Address
	return true
}

// list returns them by id.
func (c *candidates) list() []Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Server
	for id, a := range c.seen {
		out = append(out, Server{id, a})
	}
	slices.SortFunc(out, func(a, b Server) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// keepMembership is what a node does that does not lead: it tells the leader
// about itself, and where it knows none, it looks for a cluster to join or for
// others to found one with.
func (n *Node) keepMembership() {
	for ok := true; ok; ok = sleep(n.ctx, n.cfg.HeartbeatTimeout/2) {
		switch leader := n.Leader(); {
		case n.IsLeader():
		case leader.ID != "" && leader.ID != n.cfg.ID:
			ctx, cancel := context.WithTimeout(n.ctx, n.silence())
			err := n.beat(ctx, leader)
			cancel()
			if err != nil {
				n.log.Debug("beat", "leader", leader.ID, "error", err)
			}
		default:
			n.discover()
		}
	}
}

// beat tells the leader about this node.
func (n *Node) beat(ctx context.Context, leader Server) error {
	r := request{Op: opBeat, Applied: n.Applied(), Slow: n.writes.isSlow()}
	if err := n.Fault(); err != nil {
		r.Fault = err.Error()
	}
	if c := n.checked.Load(); c != nil {
		r.Checked = *c
	}
	if n.cfg.Room != nil {
		room := n.cfg.Room()
		r.Room = &room
	}
	resp, err := n.ask(ctx, leader.Address, r)
	if err == nil {
		err = resp.err()
	}
	if err != nil {
		return err
	}
	n.caughtUp(resp.Commit)
	if resp.Differs > 0 {
		n.diverge(resp.Differs)
	}
	return nil
}

// discover asks the peers once, and founds or joins where it can.
func (n *Node) discover() {
	empty := len(n.configuration()) == 0
	if empty && n.cfg.BootstrapExpect == 1 && len(n.cfg.Peers) == 0 {
		n.found([]Server{{n.cfg.ID, n.cfg.Advertise}})
		return
	}
	views := map[string][]Server{}
	for _, p := range n.peerAddresses() {
		ctx, cancel := context.WithTimeout(withHost(n.ctx, p.host), n.silence())
		resp, err := n.ask(ctx, p.address, request{Op: opStatus})
		cancel()
		n.tell(p.address, errors.Join(err, resp.err()))
		switch {
		case err != nil || resp.err() != nil || resp.From.ID == n.cfg.ID && resp.From.Address == n.cfg.Advertise:
		case resp.From.ID == n.cfg.ID:
			n.log.Error("two nodes have this id", "address", resp.From.Address)
			return
		case len(resp.Servers) > 0:
			// There is a cluster. If it counts us in, its leader will come.
			if !slices.Contains(resp.Servers, Server{n.cfg.ID, n.cfg.Advertise}) && resp.Leader.Address != "" {
				n.joinAt(resp.Leader)
			}
			return
		case resp.Joins: // no founder: not to be waited for
		case !n.view.add(resp.From):
			n.log.Error("two nodes have one id", "id", resp.From.ID, "address", resp.From.Address)
			return
		default:
			views[resp.From.ID] = resp.View
		}
	}
	mine := n.view.list()
	views[n.cfg.ID] = mine
	if !empty || len(mine) != n.cfg.BootstrapExpect || len(views) != len(mine) {
		return
	}
	for _, v := range views {
		if !slices.Equal(v, mine) {
			return
		}
	}
	n.found(mine)
}

// found writes the first entry of the log: the members, all voters, the same
// list on every founder. On a log that is not empty it does nothing.
func (n *Node) found(servers []Server) {
	err := n.raft.BootstrapCluster(voters(servers)).Error()
	switch {
	case err == nil:
		n.log.Info("cluster founded", "members", len(servers))
	case !errors.Is(err, raft.ErrCantBootstrap):
		n.log.Error("cannot found the cluster", "error", err)
	}
}

func voters(servers []Server) (c raft.Configuration) {
	for _, s := range servers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address)})
	}
	return c
}

func (n *Node) joinAt(leader Server) {
	ctx, cancel := context.WithTimeout(n.ctx, exchangeTimeout)
	defer cancel()
	resp, err := n.ask(ctx, leader.Address, request{Op: opJoin, Auto: true})
	if err == nil {
		err = resp.err()
	}
	if err != nil {
		if text := err.Error(); text != n.refused { // asked twice a second, said once
			n.log.Warn("cannot join", "leader", leader.ID, "error", err)
			n.refused = text
		}
		return
	}
	n.refused = ""
	n.log.Info("joined", "leader", leader.ID)
}

// tell logs why a peer does not answer, when that changes. That it is not there
// yet is nothing to worry about.
func (n *Node) tell(address string, err error) {
	var absent *net.OpError
	text := ""
	if err != nil && !errors.As(err, &absent) && n.ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != n.troubles[address] {
		n.log.Warn("a peer cannot be asked", "address", address, "error", text)
	}
	n.troubles[address] = text
}

// A peer is an address that Peers names, or one of those that a name of Peers
// stands for.
type peer struct{ address, host string }

// hostKey is where a context carries the host of Peers that was looked up.
type hostKey struct{}

func withHost(ctx context.Context, host string) context.Context {
	return context.WithValue(ctx, hostKey{}, host)
}

// Host returns the host that Config.Dial is to find at an address: the name in
// Peers that led to it, or the address's own.
func Host(ctx context.Context, address string) string {
	if h, ok := ctx.Value(hostKey{}).(string); ok {
		return h
	}
	h, _, _ := net.SplitHostPort(address)
	return h
}

// peerAddresses looks the peers' names up: one may stand for many nodes.
func (n *Node) peerAddresses() []peer {
	var out []peer
	for _, p := range n.cfg.Peers {
		host, port, _ := net.SplitHostPort(p) // checked in withDefaults
		if net.ParseIP(host) != nil {
			out = append(out, peer{p, host})
			continue
		}
		ips, err := n.cfg.Resolve(n.ctx, host)
		if err != nil {
			n.log.Debug("peer's name", "host", host, "error", err)
			continue
		}
		for _, ip := range ips {
			out = append(out, peer{net.JoinHostPort(ip, port), host})
		}
	}
	slices.SortFunc(out, func(a, b peer) int {
		return cmp.Or(strings.Compare(a.address, b.address), strings.Compare(a.host, b.host))
	})
	return slices.CompactFunc(out, func(a, b peer) bool { return a.address == b.address })
}
