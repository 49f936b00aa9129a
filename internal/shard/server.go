package shard

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Source finds inputs.
type Source interface {
	// Inputs returns the inputs of an address, or an error that is
	// fs.ErrNotExist if there are none to be found.
	Inputs(ctx context.Context, address string) (*kernel.Inputs, error)
}

// ServerConfig says what a worker serves, and its limits.
type ServerConfig struct {
	Source Source
	// Budget is the cores that units are computed on, shared with whatever else
	// the process does.
	Budget *parallel.Budget
	// Meter counts the work; nil means that it is not counted.
	Meter *Meter
	// Traced, if set, is told of the units of products that are followed, with
	// what the driver said of their span, and when they began.
	Traced func(from []byte, began time.Time, u Unit)
	// MaxSessions is how many chains are served at a time; 0 means 64.
	MaxSessions int
	// MaxColumns is how many right-hand sides a product may have; 0 means 4096.
	MaxColumns int
	// MaxBytes is the memory that the vectors of one session may take; 0 means
	// 4 GiB.
	MaxBytes int64
	// MaxHeld is the memory that the rows of factors may take that all sessions together hold; 0 means
	// 4 GiB. Drivers have members hold no more. Room, if it is set, says so in its place, as things are.
	MaxHeld int64
	Room    func() int64
	// MaxUnits is how many units may wait in a session; 0 means 16.
	MaxUnits int
	// Peers are the connections to other workers, whose sums this one adds up; nil if it fetches nothing.
	Peers *Pool
	// Patience is how long another worker may take to send what is fetched from it; 0 means ten seconds.
	Patience time.Duration
	// Idle is how long a session may be silent before it is closed; 0 means ten
	// minutes. The driver opens it again when it needs it.
	Idle time.Duration
}

// Server computes units for other workers' chains.
type Server struct {
	pb.UnimplementedTilesServer
	conf     ServerConfig
	sessions chan struct{} // one element for each
	held     atomic.Int64  // bytes of rows of factors

	mu         sync.Mutex
	keys       map[string]*serving // sessions that members of their group fetch from
	registered chan struct{}       // closed when there is another one
}

// NewServer returns a server, to be registered with RegisterTilesServer on a
// gRPC server made with ServerOptions.
func NewServer(c ServerConfig) *Server {
	if c.Meter == nil {
		c.Meter = &Meter{}
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 64
	}
	if c.MaxColumns == 0 {
		c.MaxColumns = 4096
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 30
	}
	if c.MaxHeld == 0 {
		c.MaxHeld = 4 << 30
	}
	if c.Room == nil {
		c.Room = func() int64 { return c.MaxHeld }
	}
	if c.MaxUnits == 0 {
		c.MaxUnits = 16
	}
	if c.Idle == 0 {
		c.Idle = 10 * time.Minute
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	return &Server{conf: c, sessions: make(chan struct{}, c.MaxSessions), keys: map[string]*serving{}, registered: make(chan struct{})}
}

// Session serves one chain.
func (s *Server) Session(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
	select {
	case s.sessions <- struct{}{}:
		defer func() { <-s.sessions }()
	default:
		return status.Errorf(codes.ResourceExhausted, "the worker serves %d chains already", s.conf.MaxSessions)
	}
	return s.serve(stream)
}

// messages are what a session needs of a stream.
type messages interface {
	Context() context.Context
	SendMsg(m any) error
	RecvMsg(m any) error
}

// serve serves one chain: a goroutine takes in what the driver sends, this one
// computes.
func (s *Server) serve(stream messages) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	v := newServing(s, stream)
	defer v.end()
	received := make(chan error, 1)
	go func() {
		defer v.in.close()
		err := v.receive(ctx)
		received <- err
		cancel()
	}()
	return v.compute(received)
}

// maxLeaves bounds the leaves of a covariance, each of which takes as much memory as
// the inputs.
const maxLeaves = 64

// open answers the first message of a session.
func (v *serving) open(ctx context.Context, m *pb.TilesOpen) error {
	if m.Covariance == "" {
		return status.Error(codes.FailedPrecondition, "the driver runs a version of ulisse that does not name its covariance: upgrade it")
	}
	isa, err := cmvp.ISA()
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if m.InstructionSet != isa {
		return status.Errorf(codes.FailedPrecondition, "the driver computes with %q and this worker with %q, whose bits differ: group workers of one kind, or set ULISSE_ISA", m.InstructionSet, isa)
	}
	in, err := v.conf.Source.Inputs(ctx, m.Address)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Errorf(codes.NotFound, "the worker has no data %q", m.Address)
	case err != nil:
		return status.Errorf(codes.Unavailable, "the data %q cannot be read: %v", m.Address, err)
	}
	c, err := kernel.Parse(m.Covariance, in.Dim())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if k := len(c.Leaves()); k > maxLeaves {
		return invalid("a covariance of %d leaves: at most %d", k, maxLeaves)
	}
	v.inputs, v.covariance = in, c
	v.op = cmvp.New(in, c, v.conf.Budget)
	return v.stream.SendMsg(&frame{head: &pb.TilesResponse{Response: &pb.TilesResponse_Opened{
		Opened: &pb.TilesOpened{Rows: int64(in.Len()), Inputs: int64(in.Dim())}}}})
}
