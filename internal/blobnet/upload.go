package blobnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/blob"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// maxChunk is the largest chunk of an upload, in bytes.
const maxChunk = 1 << 20

// Upload takes the bytes of a blob. When they are whole and verified they are
// copied to a majority of the coordinators and recorded; then it returns. An
// upload that begins where another node's has ended first brings over what that
// node has.
func (s *Service) Upload(stream grpc.ClientStreamingServer[pb.UploadChunk, pb.Blob]) error {
	ctx := stream.Context()
	if s.Registry == nil {
		return status.Error(codes.FailedPrecondition, "a worker takes no uploads: send them to a coordinator")
	}
	if !isMarked(ctx) {
		who := ""
		if s.Access != nil {
			var err error
			if who, _, err = s.Access.Caller(ctx); err != nil {
				return err
			}
		}
		end, err := s.uploads.Take(who)
		if err != nil {
			return status.Errorf(codes.Unavailable, "too many uploads are under way, %v: try again", err)
		}
		defer end()
	}
	in := receive(stream, s.Idle)
	first, err := in.next()
	if err == io.EOF {
		return badField("sha256", "the upload has no first chunk")
	}
	if err != nil {
		return err
	}
	addr, size := first.GetSha256(), first.GetSize()
	if err := blob.CheckAddress(addr); err != nil {
		return wireError(addr, err)
	}
	if size < 0 {
		return badField("size", "%d is negative", size)
	}
	if first.GetOffset() < 0 || first.GetOffset() > size {
		return badField("offset", "%d is not within the size, %d", first.GetOffset(), size)
	}
	b, err := s.take(ctx, first, in)
	if err != nil {
		return wireError(addr, err)
	}
	return stream.SendAndClose(b)
}

func (s *Service) take(ctx context.Context, first *pb.UploadChunk, in *receiver) (*pb.Blob, error) {
	addr, size := first.GetSha256(), first.GetSize()
	have, err := s.Store.Stat(addr)
	if err != nil && !errors.Is(err, blob.ErrNotFound) {
		return nil, err
	}
	namespace, theirs, err := s.uploader(ctx, addr, size)
	if err != nil {
		return nil, err
	}
	switch {
	case have.Complete && !theirs:
		if present, err := prove(first, in); err != nil || present < size {
			return &pb.Blob{Sha256: addr, Size: size}, err
		}
	case have.Complete && have.Size != size:
		return nil, badField("size", "%d, but the blob of this address has %d bytes", size, have.Size)
	case !have.Complete:
		if err := s.bring(ctx, namespace, first); err != nil {
			return nil, err
		}
		present, err := s.write(s.Store.Of(namespace), first, in)
		if errors.Is(err, blob.ErrExists) && isMarked(ctx) {
			present, err = size, nil // it has come another way
		}
		if err != nil {
			return nil, err
		}
		if present < size {
			return &pb.Blob{Sha256: addr, Size: size, Present: present}, nil
		}
	}
	if isMarked(ctx) {
		s.Store.Touch(addr)
		return &pb.Blob{Sha256: addr, Size: size, Present: size, Complete: true}, nil
	}
	s.shown.note(namespace, addr, s.Now())
	return s.publish(ctx, addr, size, namespace)
}

// uploader returns the namespace that a blob is uploaded for, and whether the
// blob is that namespace's already: others have to show that they have it, every
// byte, wherever it comes from.
func (s *Service) uploader(ctx context.Context, addr string, size int64) (namespace string, theirs bool, err error) {
	if isMarked(ctx) || s.Access == nil {
		return "", true, nil
	}
	if _, namespace, err = s.Access.Caller(ctx); err != nil {
		return "", false, err
	}
	under, err := s.Store.Of(namespace).Usage() // other uploads, that are under way or were left
	if err != nil {
		return "", false, err
	}
	mine, err := s.Store.Of(namespace).Present(addr)
	if err != nil {
		return "", false, err
	}
	if namespace, err = s.Access.Upload(ctx, addr, size+under-mine); err != nil {
		return "", false, err
	}
	e, known := s.Registry.Lookup(addr)
	theirs = known && slices.Contains(e.Namespaces, namespace) || s.shown.lately(namespace, addr, s.Now(), s.Grace)
	return namespace, theirs, nil
}

// bring copies what lacks here of an upload that is to go on, from the peer that
// has most of it. If that fails, the upload will be told how far this node is.
func (s *Service) bring(ctx context.Context, owner string, first *pb.UploadChunk) error {
	addr, want := first.GetSha256(), first.GetOffset()
	have, err := s.Store.Of(owner).Present(addr)
	if err != nil || isMarked(ctx) || want <= have {
		return err
	}
	best, src := have, Source{}
	at := s.ask(ctx, addr, owner)
	for _, p := range s.sources(nil) {
		if b := at[p.Name]; b != nil && b.Present > best {
			best, src = b.Present, p
		}
	}
	if best < want {
		return nil
	}
	w, err := s.Store.Of(owner).Append(addr, first.GetSize(), have)
	if err == nil {
		err = errors.Join(download(owned(ctx, owner), w, addr, src, want), w.Close())
	}
	if err != nil {
		s.Log.Info("partial blob could not be brought over", "blob", addr, "peer", src.Name, "err", err)
	}
	return nil
}

// write appends the chunks and returns how many bytes there are when the stream
// ends or the blob is whole; then it is verified.
func (s *Service) write(to blob.Uploads, msg *pb.UploadChunk, in *receiver) (present int64, err error) {
	addr := msg.GetSha256()
	w, err := to.Append(addr, msg.GetSize(), msg.GetOffset())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for first := true; ; first = false {
		if !first && (msg.GetSha256() != "" && msg.GetSha256() != addr || msg.GetOffset() != 0 && msg.GetOffset() != w.Offset()) {
			return 0, badField("offset", "a chunk that is not the next one of this blob, at %d", w.Offset())
		}
		if len(msg.GetData()) > maxChunk {
			return 0, badField("data", "a chunk of %d bytes; at most %d", len(msg.GetData()), maxChunk)
		}
		if _, err := w.Write(msg.GetData()); err != nil {
			return 0, err
		}
		msg, err = in.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return w.Offset(), err
		}
	}
	if err := w.Commit(); err != nil && !errors.Is(err, blob.ErrShort) {
		return 0, err
	}
	return w.Offset(), nil
}

// publish copies a whole blob to a majority and records it.
func (s *Service) publish(ctx context.Context, addr string, size int64, namespace string) (*pb.Blob, error) {
	s.Store.Touch(addr)
	if e, ok := s.Registry.Lookup(addr); ok && s.Now().Sub(e.Stored) < s.Grace/2 && (namespace == "" || slices.Contains(e.Namespaces, namespace)) {
		return s.recorded(ctx, e), nil
	}
	holders, err := s.replicate(ctx, addr, size)
	if err != nil {
		return nil, err
	}
	if old, ok := s.Registry.Lookup(addr); ok {
		holders = append(holders, old.Holders...)
	}
	e := Blob{Addr: addr, Size: size, Stored: s.Now(), Holders: joint(holders, s.Self, s.Registry.Peers())}
	if namespace != "" {
		e.Namespaces = []string{namespace}
	}
	if err := s.Registry.Record(ctx, e); err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}
		return nil, status.Errorf(codes.Unavailable, "blob %s is on a majority but could not be recorded: %v: try again, nothing needs to be sent twice", addr, err)
	}
	return s.recorded(ctx, e), nil
}

// replicate copies a blob to all peers and returns when a majority, this node
// included, has it. The other copies go on in the background.
func (s *Service) replicate(ctx context.Context, addr string, size int64) ([]string, error) {
	peers := s.Registry.Peers()
	need := majority(len(peers))
	results := make(chan pushed, len(peers))
	for _, p := range peers {
		if p.ID == s.Self {
			results <- pushed{id: p.ID}
			continue
		}
		s.pushes.Go(func() { results <- pushed{p.ID, s.push(p, addr, size)} })
	}
	var holders []string
	var errs []error
	for range peers {
		select {
		case r := <-results:
			if r.err == nil {
				holders = append(holders, r.id)
			} else {
				errs = append(errs, fmt.Errorf("%s: %w", r.id, r.err))
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if len(holders) == need {
			return holders, nil
		}
	}
	return nil, status.Errorf(codes.Unavailable, "blob %s is whole but on %d of %d coordinators, and %d have to have it (%v): try again, nothing needs to be sent twice",
		addr, len(holders), len(peers), need, errors.Join(errs...))
}

type pushed struct {
	id  string
	err error
}

func (s *Service) push(p Peer, addr string, size int64) error {
	c, err := s.Dial(p)
	if err != nil {
		return err
	}
	r, err := s.Store.Open(addr)
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := Send(marked(s.ctx), c, addr, size, r, nil)
	if err == nil && !b.Complete {
		err = fmt.Errorf("it took %d of %d bytes", b.Present, size)
	}
	if err != nil {
		s.Log.Warn("blob not copied to peer", "blob", addr, "peer", p.ID, "err", err)
	}
	return err
}

// receiver reads a stream with a limit on the time between messages, and a least
// rate, so that a client that fell silent, or nearly, does not keep others from
// their place.
type receiver struct {
	ctx   context.Context
	ch    chan received
	idle  time.Duration
	since time.Time // of the bytes
	bytes int64
}

// Slowest is the least rate of an upload, in bytes a second over the time that it
// may be silent.
const Slowest = 4 << 10

type received struct {
	msg *pb.UploadChunk
	err error
}

func receive(stream grpc.ClientStreamingServer[pb.UploadChunk, pb.Blob], idle time.Duration) *receiver {
	r := &receiver{ctx: stream.Context(), ch: make(chan received), idle: idle, since: time.Now()}
	go func() { // ends with the stream, which ends when its handler returns
		for {
			msg, err := stream.Recv()
			select {
			case r.ch <- received{msg, err}:
			case <-r.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

func (r *receiver) next() (*pb.UploadChunk, error) {
	t := time.NewTimer(r.idle)
	defer t.Stop()
	select {
	case m := <-r.ch:
		r.bytes += int64(len(m.msg.GetData()))
		if span := time.Since(r.since); m.err == nil && span >= r.idle {
			if float64(r.bytes) < Slowest*span.Seconds() {
				return nil, status.Errorf(codes.DeadlineExceeded, "%d bytes in %v are too few: go on with the upload from where it is", r.bytes, span.Round(time.Second))
			}
			r.since, r.bytes = time.Now(), 0
		}
		return m.msg, m.err
	case <-r.ctx.Done():
		return nil, r.ctx.Err()
	case <-t.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "no chunk for %v: go on with the upload from where it is", r.idle)
	}
}
