package coordinatortest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/cluster"
)

// Group is a group of coordinators by name alone. Of its members the last is no
// voter and is not heard of; the first leads.
type Group struct {
	Copy []byte // what a backup is
	Err  error  // of every change, if set

	mu      sync.Mutex
	members []cluster.Member
}

// NewGroup returns a group whose backup is of 1.8 MB.
func NewGroup(ids ...string) *Group {
	g := &Group{Copy: bytes.Repeat([]byte("state "), 300_000)}
	for i, id := range ids {
		g.members = append(g.members, cluster.Member{ID: id, Address: fmt.Sprintf("10.0.0.%d:7001", i+1), GRPC: fmt.Sprintf("10.0.0.%d:7000", i+1),
			Voter: true, Leader: i == 0, Healthy: true, Applied: uint64(9 - i), Lag: uint64(i), Contact: 1500e6, Version: "v"})
	}
	last := &g.members[len(g.members)-1]
	*last = cluster.Member{ID: last.ID, Address: last.Address, Contact: -1}
	return g
}

// change changes the member of an id.
func (g *Group) change(id string, f func(i int)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.members, func(m cluster.Member) bool { return m.ID == id })
	switch {
	case g.Err != nil:
		return g.Err
	case i < 0:
		return fmt.Errorf("%w: %q", cluster.ErrNoMember, id)
	}
	f(i)
	return nil
}

// Term returns 7.
func (g *Group) Term() uint64 { return 7 }

// Members returns the members.
func (g *Group) Members(context.Context) ([]cluster.Member, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members), nil
}

// Join adds a member.
func (g *Group) Join(_ context.Context, s cluster.Server, nonVoter bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Err == nil {
		g.members = append(g.members, cluster.Member{ID: s.ID, Address: s.Address, Voter: !nonVoter})
	}
	return g.Err
}

// Remove takes a member out.
func (g *Group) Remove(_ context.Context, id string, _ bool) error {
	return g.change(id, func(i int) { g.members = slices.Delete(g.members, i, i+1) })
}

// Promote gives a member a vote.
func (g *Group) Promote(_ context.Context, id string) error {
	return g.change(id, func(i int) { g.members[i].Voter = true })
}

// Demote takes a member's vote.
func (g *Group) Demote(_ context.Context, id string, _ bool) error {
	return g.change(id, func(i int) { g.members[i].Voter = false })
}

// Transfer lets another member lead: the second if none is named.
func (g *Group) Transfer(_ context.Context, id string) error {
	if id == "" {
		id = g.members[1].ID
	}
	return g.change(id, func(i int) {
		for k := range g.members {
			g.members[k].Leader = k == i
		}
	})
}

// Backup writes the copy.
func (g *Group) Backup(w io.Writer) error {
	_, err := w.Write(g.Copy)
	return err
}

// Restore takes the copy and nothing else.
func (g *Group) Restore(_ context.Context, r io.Reader) error {
	got, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, g.Copy) {
		return fmt.Errorf("%w: of %d bytes", cluster.ErrBadBackup, len(got))
	}
	return g.Err
}

// ReadIndex returns 5.
func (g *Group) ReadIndex(context.Context) (uint64, error) { return 5, g.Err }
