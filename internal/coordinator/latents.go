package coordinator

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// RecordLatent notes latent vectors.
func (s *recordsService) RecordLatent(ctx context.Context, b *pb.Blob) (*pb.Blob, error) {
	_, err := s.c.apply(ctx, &state.RecordLatent{SHA256: b.Sha256, Size: b.Size, Stored: b.Stored.AsTime(), Holders: b.Holders})
	return b, err
}

// Latents returns the cluster's agreement on latent vectors as this coordinator sees
// it. What chains used, and none uses any more, is forgotten after superseded.
func (c *Coordinator) Latents(members func() []blobnet.Peer, superseded time.Duration) blobnet.Registry {
	return &latentRegistry{blobRegistry: blobRegistry{c: c, members: members}, superseded: superseded}
}

type latentRegistry struct {
	blobRegistry
	superseded time.Duration
	seen       state.LatentMark
}

func (r *latentRegistry) Record(ctx context.Context, b blobnet.Blob) error {
	return r.record(ctx, b, (*recordsService).RecordLatent, pb.RecordsClient.RecordLatent)
}

// Tidy has the leader forget what no chain uses.
func (r *latentRegistry) Tidy(ctx context.Context, unused time.Duration) error {
	drop := &state.DropLatents{Unused: time.Now().Add(-unused).UTC(), Superseded: time.Now().Add(-r.superseded).UTC()}
	for r.c.node.IsLeader() {
		due := false
		err := r.c.node.View(func(tx *bbolt.Tx) error { due = drop.Due(tx); return nil })
		if err == nil && due {
			_, err = r.c.apply(ctx, drop)
		}
		if err != nil || !due {
			return err
		}
	}
	return nil
}

func (r *latentRegistry) Lookup(addr string) (out blobnet.Blob, ok bool) {
	err := r.c.node.View(func(tx *bbolt.Tx) error {
		l, err := state.GetLatent(tx, addr)
		out = latentOf(l)
		return err
	})
	return out, err == nil
}

func (r *latentRegistry) All() []blobnet.Blob {
	var out []blobnet.Blob
	_ = r.c.node.View(func(tx *bbolt.Tx) error {
		return state.Latents(tx, func(l *state.Latent) bool { out = append(out, latentOf(l)); return true })
	})
	return out
}

// Jobs returns nothing: chains refer to latent vectors, and Tidy knows which.
func (r *latentRegistry) Jobs(string) []string { return nil }

// Changes returns what was recorded or forgotten since the last call.
func (r *latentRegistry) Changes() (addrs []string, ok bool) {
	err := r.c.node.View(func(tx *bbolt.Tx) error {
		addrs, r.seen, ok = state.LatentChanges(tx, r.seen)
		return nil
	})
	return addrs, ok && err == nil
}

func latentOf(l *state.Latent) blobnet.Blob {
	return blobnet.Blob{Addr: l.SHA256, Size: l.Size, Stored: l.Stored, Holders: l.Holders}
}
