package blobnet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Access says what callers may do with blobs. Calls of other nodes, which are
// marked, are not asked about.
type Access interface {
	// Spaces returns those of a blob's namespaces that the caller may know of; if
	// there are none, there is no such blob for it.
	Spaces(ctx context.Context, b Blob) []string
	// Jobs returns the jobs that refer to a blob and that the caller may know of.
	Jobs(ctx context.Context, addr string) []string
	// Upload returns the namespace that the caller uploads a blob for, or an error
	// if it has no room for the bytes.
	Upload(ctx context.Context, addr string, size int64) (namespace string, err error)
	// Caller returns who calls, for whom what is under way is counted, and the
	// namespace of theirs that they work in.
	Caller(ctx context.Context) (who, namespace string, err error)
}

// owner returns whose partial blobs a call is about: the namespace's in which a
// caller works, or that another node asks about.
func (s *Service) owner(ctx context.Context) (namespace string, err error) {
	switch {
	case isMarked(ctx):
		if n := metadata.ValueFromIncomingContext(ctx, rpc.Namespace); len(n) == 1 {
			namespace = n[0]
		}
	case s.Access != nil:
		_, namespace, err = s.Access.Caller(ctx)
	}
	return namespace, err
}

// owned lets calls to other nodes be about the partial blobs of an owner.
func owned(ctx context.Context, owner string) context.Context {
	if owner == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpc.Namespace, owner)
}

// shown are the blobs that namespaces have shown to have, every byte, and that
// may not be recorded for them yet.
type shown struct {
	mu sync.Mutex
	at map[[2]string]time.Time
}

// shownMost bounds what is remembered of that.
const shownMost = 10_000

func (s *shown) note(namespace, addr string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil || len(s.at) >= shownMost {
		s.at = map[[2]string]time.Time{}
	}
	s.at[[2]string{namespace, addr}] = now
}

// lately reports whether a namespace has shown a blob within so long.
func (s *shown) lately(namespace, addr string, now time.Time, within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.at[[2]string{namespace, addr}]
	return ok && now.Sub(at) < within
}

// lookup returns what the cluster has agreed on about a blob, with the
// namespaces that the caller may know of. known says that there is one, mine
// that it is there for the caller.
func (s *Service) lookup(ctx context.Context, addr string) (b Blob, known, mine bool) {
	b, known = s.Registry.Lookup(addr)
	if !known || s.Access == nil {
		return b, known, known
	}
	b.Namespaces = s.Access.Spaces(ctx, b)
	return b, true, len(b.Namespaces) > 0
}

// jobs returns the jobs that refer to a blob.
func (s *Service) jobs(ctx context.Context, addr string) []string {
	if s.Access == nil {
		return s.Registry.Jobs(addr)
	}
	return s.Access.Jobs(ctx, addr)
}

// reading returns an error unless the caller may read a blob.
func (s *Service) reading(ctx context.Context, addr string) error {
	if s.own(ctx) || s.Access == nil {
		return nil
	}
	if _, _, mine := s.lookup(ctx, addr); !mine {
		return notThere(addr)
	}
	return nil
}

func notThere(addr string) error {
	return status.Errorf(codes.NotFound, "no coordinator has blob %s: upload it", addr)
}

// prove takes an upload of a blob that is there already, but not for the caller:
// who wants it has to have it, every byte.
func prove(first *pb.UploadChunk, in *receiver) (present int64, err error) {
	if first.GetOffset() != 0 {
		return 0, status.Errorf(codes.OutOfRange, "the upload of blob %s has to begin at 0", first.GetSha256())
	}
	h := sha256.New()
	for msg := first; ; {
		if len(msg.GetData()) > maxChunk {
			return 0, badField("data", "a chunk of %d bytes; at most %d", len(msg.GetData()), maxChunk)
		}
		h.Write(msg.GetData())
		present += int64(len(msg.GetData()))
		if present > first.GetSize() {
			return 0, badField("data", "more than %d bytes", first.GetSize())
		}
		if msg, err = in.next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
	}
	if present < first.GetSize() {
		return 0, nil // from the beginning, the next time
	}
	if hex.EncodeToString(h.Sum(nil)) != first.GetSha256() {
		return 0, badField("sha256", "these are not the bytes of blob %s", first.GetSha256())
	}
	return present, nil
}
