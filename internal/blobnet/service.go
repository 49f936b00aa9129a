package blobnet

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Config of a Data service. Of the zero values the default is given.
type Config struct {
	Store    *blob.Store
	Self     string   // ID of this coordinator among Registry.Peers
	Registry Registry // nil: read-only, as a worker serves what it has cached
	Access   Access   // nil: every caller may do everything
	// Dial returns a client of a peer. It is called for every use, so it is to
	// return a connection that it keeps.
	Dial func(Peer) (pb.DataClient, error)
	Log  *slog.Logger

	Interval   time.Duration // between rounds of Sync; 30 s
	Grace      time.Duration // how long a blob to which no job refers is kept; 24 h
	PartialAge time.Duration // how long an upload can be resumed; 24 h
	Idle       time.Duration // how long an upload may wait for its next chunk; 1 min
	MaxUploads int           // at once, those of peers not counted; 16, of one caller a quarter
	Now        func() time.Time
}

// Service is the Data service of a node.
type Service struct {
	pb.UnimplementedDataServer
	Config
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	pushes  sync.WaitGroup
	fetches flights
	uploads *rpc.Share
	shown   shown
	changes changes
	kick    chan struct{}
}

// New returns a service. Close it after its gRPC server has stopped.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Registry != nil && (c.Dial == nil || c.Self == "") {
		return nil, errors.New("blobnet: a service needs a store, and with a registry its own ID and a way to dial peers")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 24*time.Hour)
	c.PartialAge = cmp.Or(c.PartialAge, 24*time.Hour)
	c.Idle = cmp.Or(c.Idle, time.Minute)
	c.MaxUploads = cmp.Or(c.MaxUploads, 16)
	if c.Now == nil {
		c.Now = time.Now
	}
	each := c.MaxUploads
	if c.Access != nil { // callers are told from each other
		each = max(1, c.MaxUploads/4)
	}
	s := &Service{Config: c, uploads: &rpc.Share{Each: each, All: c.MaxUploads}, kick: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Latents returns the service as that of latent vectors, which has the same methods.
func (s *Service) Latents() pb.LatentsServer { return latents{Service: s} }

type latents struct {
	pb.UnsafeLatentsServer
	*Service
}

// Close ends what the service does in the background.
func (s *Service) Close() {
	s.cancel()
	s.pushes.Wait()
	s.fetches.wait()
}

// own reports whether a call is to be answered from this node's disk alone.
func (s *Service) own(ctx context.Context) bool { return s.Registry == nil || isMarked(ctx) }

// Stat tells what this node and, unless the call is marked, the cluster have of
// a blob.
func (s *Service) Stat(ctx context.Context, req *pb.StatRequest) (*pb.Blob, error) {
	addr := req.GetSha256()
	if err := blob.CheckAddress(addr); err != nil {
		return nil, wireError(addr, err)
	}
	owner, err := s.owner(ctx)
	if err != nil {
		return nil, err
	}
	if owner != "" && s.own(ctx) { // another node's question about an upload
		n, err := s.Store.Of(owner).Present(addr)
		return &pb.Blob{Sha256: addr, Present: n}, wireError(addr, err)
	}
	in, err := s.Store.Stat(addr)
	if err != nil && !errors.Is(err, blob.ErrNotFound) {
		return nil, wireError(addr, err)
	}
	if s.own(ctx) {
		if err != nil {
			return nil, wireError(addr, err)
		}
		if in.Complete {
			s.Store.Touch(addr) // the caller counts on it
		}
		return local(in), nil
	}
	if e, _, mine := s.lookup(ctx, addr); mine {
		return s.recorded(ctx, e), nil
	}
	b := &pb.Blob{Sha256: addr}
	if in.Complete && s.shown.lately(owner, addr, s.Now(), s.Grace) {
		b.Present = in.Size // nothing needs to be sent again
	} else if b.Present, err = s.Store.Of(owner).Present(addr); err != nil {
		return nil, wireError(addr, err)
	}
	for _, other := range s.ask(ctx, addr, owner) {
		b.Present = max(b.Present, other.Present)
	}
	if b.Present == 0 {
		return nil, notThere(addr)
	}
	return b, nil
}

// List returns the blobs of the cluster, and the uploads that have ended early
// on this node.
func (s *Service) List(ctx context.Context, _ *pb.ListBlobsRequest) (*pb.ListBlobsResponse, error) {
	here, err := s.Store.List()
	if err != nil {
		return nil, wireError("", err)
	}
	out := &pb.ListBlobsResponse{}
	for _, in := range here {
		if s.own(ctx) && in.Owner == "" {
			out.Blobs = append(out.Blobs, local(in))
		} else if _, ok := s.Registry.Lookup(in.Addr); !ok && s.Access == nil {
			b := local(in)
			b.Complete = false
			out.Blobs = append(out.Blobs, b)
		}
	}
	if !s.own(ctx) {
		for _, e := range s.Registry.All() {
			if e, _, mine := s.lookup(ctx, e.Addr); mine {
				out.Blobs = append(out.Blobs, s.recorded(ctx, e))
			}
		}
	}
	slices.SortFunc(out.Blobs, func(a, b *pb.Blob) int { return cmp.Compare(a.Sha256, b.Sha256) })
	return out, nil
}

// local is what this node has of a blob, as a message.
func local(in blob.Info) *pb.Blob {
	b := &pb.Blob{Sha256: in.Addr, Size: in.Size, Present: in.Present, Complete: in.Complete}
	if in.Complete {
		b.Stored = timestamppb.New(in.Stored)
	}
	return b
}

// recorded is what the cluster has agreed on about a blob, as a message.
func (s *Service) recorded(ctx context.Context, e Blob) *pb.Blob {
	return &pb.Blob{
		Sha256: e.Addr, Size: e.Size, Present: e.Size, Complete: true,
		Holders: e.Holders, Stored: timestamppb.New(e.Stored), Jobs: s.jobs(ctx, e.Addr), Namespaces: e.Namespaces,
	}
}

// Download sends a blob from an offset on, every byte verified. If this node
// lacks it, or finds that its copy has decayed, it first fetches it from a holder.
func (s *Service) Download(req *pb.DownloadRequest, stream grpc.ServerStreamingServer[pb.DownloadChunk]) error {
	ctx, addr, off := stream.Context(), req.GetSha256(), req.GetOffset()
	if off < 0 {
		return badField("offset", "%d is negative", off)
	}
	if err := blob.CheckAddress(addr); err != nil {
		return wireError(addr, err)
	}
	err := s.reading(ctx, addr)
	if err != nil {
		return err
	}
	for range 3 { // copies that decay under our eyes
		off, err = s.send(ctx, addr, off, stream)
		if s.own(ctx) || !errors.Is(err, blob.ErrCorrupt) && !errors.Is(err, blob.ErrNotFound) {
			break
		}
		if err = s.fetch(ctx, addr); err != nil {
			break
		}
	}
	return wireError(addr, err)
}

// send sends what this node has from off on, and returns how far it came.
func (s *Service) send(ctx context.Context, addr string, off int64, stream grpc.ServerStreamingServer[pb.DownloadChunk]) (int64, error) {
	owner := ""
	if s.own(ctx) {
		var err error
		if owner, err = s.owner(ctx); err != nil {
			return off, err
		}
	}
	read := func(p []byte, off int64) (int, error) { return s.Store.Of(owner).ReadPartial(addr, p, off) }
	r, err := s.Store.Open(addr)
	switch {
	case owner != "": // an upload moves on
		if err == nil {
			r.Close()
		}
	case err == nil:
		defer r.Close()
		if off > r.Size() {
			return off, badField("offset", "%d is beyond the end of the blob, %d", off, r.Size())
		}
		read = r.ReadAt
	case !errors.Is(err, blob.ErrNotFound) || s.Registry == nil || !isMarked(ctx):
		return off, err
	}
	buf := make([]byte, blob.ChunkSize)
	for {
		// Up to the next chunk of the file, so that each is verified once.
		n, err := read(buf[:blob.ChunkSize-off%blob.ChunkSize], off)
		if n > 0 {
			if err := stream.Send(&pb.DownloadChunk{Data: buf[:n]}); err != nil {
				return off, err
			}
			off += int64(n)
		}
		if err == io.EOF {
			return off, nil
		}
		if err != nil {
			return off, err
		}
	}
}

// fetch brings a blob that the cluster has to this node.
func (s *Service) fetch(ctx context.Context, addr string) error {
	e, ok := s.Registry.Lookup(addr)
	if !ok {
		return status.Errorf(codes.NotFound, "no coordinator has blob %s: upload it", addr)
	}
	err := s.fetches.do(ctx, addr, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		for {
			err := Fetch(ctx, s.Store, addr, s.sources(e.Holders), nil)
			if !errors.Is(err, blob.ErrBusy) {
				return err
			}
			select { // a peer is sending it to us: wait for that
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		return status.Errorf(codes.Unavailable, "blob %s is not on this node and could not be fetched from its holders: %v", addr, err)
	}
	return err
}

// sources returns the other coordinators, those that are said to have it first.
func (s *Service) sources(holders []string) []Source {
	var first, then []Source
	for _, p := range s.Registry.Peers() {
		if p.ID == s.Self {
			continue
		}
		c, err := s.Dial(p)
		if err != nil {
			s.Log.Warn("peer cannot be dialled", "peer", p.ID, "err", err)
			continue
		}
		if src := (Source{p.ID, c}); slices.Contains(holders, p.ID) {
			first = append(first, src)
		} else {
			then = append(then, src)
		}
	}
	return append(first, then...)
}

// ask returns what the other coordinators have of an owner's upload of a blob, of
// those that answer within two seconds, by ID.
func (s *Service) ask(ctx context.Context, addr, owner string) map[string]*pb.Blob {
	ctx, cancel := context.WithTimeout(marked(owned(ctx, owner)), 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string]*pb.Blob{}
	for _, src := range s.sources(nil) {
		wg.Go(func() {
			if b, err := src.Stat(ctx, &pb.StatRequest{Sha256: addr}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				out[src.Name] = b
			}
		})
	}
	wg.Wait()
	return out
}
