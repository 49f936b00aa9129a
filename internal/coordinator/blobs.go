package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// recordsService is the Records service.
type recordsService struct {
	pb.UnimplementedRecordsServer
	c *Coordinator
}

// Record notes a blob.
func (s *recordsService) Record(ctx context.Context, b *pb.Blob) (*pb.Blob, error) {
	if err := blob.CheckAddress(b.Sha256); err != nil || b.Size < 0 {
		return nil, badField("sha256", "this is not a blob's address and size")
	}
	_, err := s.c.apply(ctx, &state.RecordBlob{Blob: state.Blob{SHA256: b.Sha256, Size: b.Size, Stored: b.Stored.AsTime(), Holders: b.Holders, Namespaces: b.Namespaces}})
	return b, err
}

// Forget removes a blob to which no job refers.
func (s *recordsService) Forget(ctx context.Context, b *pb.StatRequest) (*pb.Blob, error) {
	_, err := s.c.apply(ctx, &state.ForgetBlob{SHA256: b.Sha256})
	return &pb.Blob{Sha256: b.Sha256}, err
}

// Registry returns the cluster's agreement on blobs as this coordinator sees
// it; members returns all coordinators.
func (c *Coordinator) Registry(members func() []blobnet.Peer) blobnet.Registry {
	return &blobRegistry{c: c, members: members}
}

type blobRegistry struct {
	c       *Coordinator
	members func() []blobnet.Peer
	idle    map[string]idle // data sets to which no job refers; Tidy's, which one at a time calls
}

// idle is since when a data set that was uploaded at a time has been seen without a job.
type idle struct{ stored, since time.Time }

// ask calls the Records service of the leader, which may be here.
func (r *blobRegistry) ask(ctx context.Context, here func(*recordsService) error, there func(pb.RecordsClient, context.Context) error) error {
	if r.c.node.IsLeader() {
		return here(&recordsService{c: r.c})
	}
	conn, err := r.c.leader()
	if err != nil {
		return err
	}
	return there(pb.NewRecordsClient(conn), forwarded(ctx))
}

func (r *blobRegistry) Record(ctx context.Context, b blobnet.Blob) error {
	return r.record(ctx, b, (*recordsService).Record, pb.RecordsClient.Record)
}

// record calls a method of Records with a blob.
func (r *blobRegistry) record(ctx context.Context, b blobnet.Blob, here func(*recordsService, context.Context, *pb.Blob) (*pb.Blob, error),
	there func(pb.RecordsClient, context.Context, *pb.Blob, ...grpc.CallOption) (*pb.Blob, error)) error {
	m := &pb.Blob{Sha256: b.Addr, Size: b.Size, Stored: pbTime(b.Stored), Holders: b.Holders, Namespaces: b.Namespaces}
	return r.ask(ctx, func(s *recordsService) error { _, err := here(s, ctx, m); return err },
		func(s pb.RecordsClient, ctx context.Context) error {
			_, err := there(s, ctx, m, grpc.WaitForReady(true))
			if err == nil {
				_ = r.c.catchUp(ctx) // so that it is known here too; it is recorded in any case
			}
			return err
		})
}

// Tidy forgets data sets to which no job refers. For how long that is so, this process has watched: a
// clock that is wrong, or jumps, forgets nothing.
func (r *blobRegistry) Tidy(ctx context.Context, unused time.Duration) error {
	var errs []error
	now, before := time.Now(), r.idle
	r.idle = map[string]idle{}
	for _, b := range r.All() {
		if len(r.Jobs(b.Addr)) > 0 {
			continue
		}
		since := before[b.Addr]
		if !since.stored.Equal(b.Stored) || since.since.IsZero() {
			since = idle{b.Stored, now}
		}
		r.idle[b.Addr] = since
		if now.Sub(since.since) >= unused {
			errs = append(errs, r.forget(ctx, b.Addr))
		}
	}
	return errors.Join(errs...)
}

func (r *blobRegistry) forget(ctx context.Context, addr string) error {
	m := &pb.StatRequest{Sha256: addr}
	return r.ask(ctx, func(s *recordsService) error { _, err := s.Forget(ctx, m); return err },
		func(s pb.RecordsClient, ctx context.Context) error { _, err := s.Forget(ctx, m); return err })
}

func (r *blobRegistry) Lookup(addr string) (out blobnet.Blob, ok bool) {
	err := r.c.node.View(func(tx *bbolt.Tx) error {
		b, err := state.GetBlob(tx, addr)
		if err == nil {
			out = blobOf(b)
		}
		return err
	})
	return out, err == nil
}

func (r *blobRegistry) All() []blobnet.Blob {
	var out []blobnet.Blob
	_ = r.c.node.View(func(tx *bbolt.Tx) error {
		return state.Blobs(tx, func(b *state.Blob) bool { out = append(out, blobOf(b)); return true })
	})
	return out
}

func (r *blobRegistry) Jobs(addr string) []string {
	var out []string
	_ = r.c.node.View(func(tx *bbolt.Tx) error {
		state.Uses(tx, addr, func(id, _ string) bool { out = append(out, id); return true })
		return nil
	})
	return out
}

func (r *blobRegistry) Peers() []blobnet.Peer { return r.members() }

func blobOf(b *state.Blob) blobnet.Blob {
	return blobnet.Blob{Addr: b.SHA256, Size: b.Size, Stored: b.Stored, Holders: b.Holders, Namespaces: b.NamespaceNames()}
}

// Access returns which blobs callers may know of, and where theirs belong.
func (c *Coordinator) Access() blobnet.Access { return blobAccess{c} }

type blobAccess struct{ c *Coordinator }

// Spaces returns those of a blob's namespaces that the caller sees. A worker has no business with data
// to which no job refers.
func (a blobAccess) Spaces(ctx context.Context, b blobnet.Blob) []string {
	who := auth.From(ctx)
	if who.IsNode() && who.Node == auth.Worker && len(a.Jobs(ctx, b.Addr)) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Namespaces), func(n string) bool { return !who.Shows(n) })
}

// Caller returns who calls, and the namespace in which they work.
func (a blobAccess) Caller(ctx context.Context) (name, namespace string, err error) {
	who := auth.From(ctx)
	if namespace = who.Namespace(""); !who.Sees(namespace) {
		err = a.c.status(fmt.Errorf("%w: %q", state.ErrNamespace, namespace))
	}
	return cmp.Or(who.User, who.From), namespace, err
}

// Jobs returns the caller's jobs that refer to a blob.
func (a blobAccess) Jobs(ctx context.Context, addr string) []string {
	var out []string
	who := auth.From(ctx)
	_ = a.c.node.View(func(tx *bbolt.Tx) error {
		state.Uses(tx, addr, func(id, namespace string) bool {
			if who.Sees(namespace) {
				out = append(out, id)
			}
			return true
		})
		return nil
	})
	return out
}

// Upload returns the namespace in which the caller works, if it has room.
func (a blobAccess) Upload(ctx context.Context, addr string, size int64) (string, error) {
	_, namespace, err := a.Caller(ctx)
	if err != nil {
		return "", err
	}
	return namespace, a.c.status(a.c.node.View(func(tx *bbolt.Tx) error {
		if b, err := state.GetBlob(tx, addr); err == nil && slices.Contains(b.NamespaceNames(), namespace) {
			size = 0
		}
		return state.CheckQuota(tx, namespace, state.Usage{Bytes: size})
	}))
}
