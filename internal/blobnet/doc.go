// Package blobnet moves blobs between the nodes of a cluster: the Data service
// of coordinators and workers, its client side, the replication of uploads to a
// majority of the coordinators, and the cache of a worker.
//
// The latent vectors of chains (package latent) are kept in the same way by a Service of
// their own, whose Registry tells what has changed (Changes): they come and go with
// every checkpoint.
//
// Between coordinators calls carry a mark in their metadata that says "you, and
// nobody else": a marked Upload is not replicated again, a marked Stat or
// Download answers from the node's own disk. So no call waits for another in a
// circle.
package blobnet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Peer is a coordinator.
type Peer struct {
	ID      string
	Address string // of its gRPC services
}

// Blob is what the cluster has agreed on about a blob that is on a majority of
// the coordinators.
type Blob struct {
	Addr    string
	Size    int64
	Stored  time.Time // when it was last uploaded
	Holders []string  // IDs of coordinators
	// Namespaces are those whose data it is. Record adds them to those that it
	// had.
	Namespaces []string
}

// Registry is the cluster's agreement on blobs. It is what jobs are checked
// against: a job may use the blobs that are in it, and no others.
type Registry interface {
	// Record adds a blob or replaces what is known of it, and returns when that
	// is durable. Two coordinators that do it at once may lose a holder's name;
	// it comes back with that holder's next round of Sync.
	Record(ctx context.Context, b Blob) error
	// Tidy has blobs forgotten to which nothing has referred for so long, as the log has it.
	Tidy(ctx context.Context, unused time.Duration) error
	Lookup(addr string) (Blob, bool)
	All() []Blob
	// Jobs returns the jobs that refer to a blob. While there are any, it stays.
	Jobs(addr string) []string
	// Peers returns the coordinators, this one included.
	Peers() []Peer
}

// Changes is what a Registry has that can tell what has changed in it. Then a round
// of Sync looks at that alone.
type Changes interface {
	// Changes returns the addresses that were recorded or forgotten since the last
	// call; false if that cannot be told.
	Changes() (addrs []string, ok bool)
}

// Source is a node that may have a blob.
type Source struct {
	Name string
	pb.DataClient
}

// marked marks calls that are for the called node alone.
func marked(ctx context.Context) context.Context { return rpc.Mark(ctx, rpc.NodeOnly) }

func isMarked(ctx context.Context) bool { return rpc.Marked(ctx, rpc.NodeOnly) }

// allHold is the number of coordinators up to which each holds every blob.
const allHold = 5

// joint returns the peers that are in holders, or are self, in their order.
func joint(holders []string, self string, peers []Peer) []string {
	var out []string
	for _, p := range peers {
		if p.ID == self || slices.Contains(holders, p.ID) {
			out = append(out, p.ID)
		}
	}
	return out
}

func majority(n int) int { return n/2 + 1 }

// shouldHold reports whether the coordinator of that ID is to hold a blob. In
// larger clusters a majority does, chosen by the rank of a hash, so that all
// agree on it without a word and a change of members moves few blobs.
func shouldHold(self, addr string, peers []Peer) bool {
	in := slices.ContainsFunc(peers, func(p Peer) bool { return p.ID == self })
	if !in || len(peers) <= allHold {
		return in
	}
	rank := func(id string) string {
		h := sha256.Sum256([]byte(addr + id))
		return string(h[:])
	}
	mine, before := rank(self), 0
	for _, p := range peers {
		if cmp.Less(rank(p.ID), mine) {
			before++
		}
	}
	return before < majority(len(peers))
}
