package shard

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Pool keeps one connection to each worker for all chains of a process.
type Pool struct {
	opts  []grpc.DialOption
	meter *Meter

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

// Vectors and sums are megabytes: as much may be under way without a word from the other side,
// and a system call takes as much.
const window, buffer = 4 << 20, 256 << 10

// NewPool returns a pool. The options must contain transport credentials. The
// meter counts bytes; it may be nil.
func NewPool(meter *Meter, opts ...grpc.DialOption) *Pool {
	if meter == nil {
		meter = &Meter{}
	}
	// A connection that is lost is tried again after 1 s, then less and less
	// often; one whose other end does not answer is lost after half a minute.
	own := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
	}
	return &Pool{opts: append(own, opts...), meter: meter, conns: map[string]*grpc.ClientConn{}}
}

// ServerOptions returns what a gRPC server that serves tiles should allow and
// do: pings as a Pool sends them, and pings of its own, which end the sessions
// of drivers that are gone without a word.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer),
	}
}

// Data says what a chain's products are over.
type Data struct {
	Address    string // of the inputs, by content
	Covariance *kernel.Covariance
	ISA        string // that the driver computes with
	Rows       int
}

// Member returns the worker at an address as a member of one chain's group. The
// connection is made when it is first needed, and again when it is lost.
func (p *Pool) Member(address string, d Data) Member {
	return &remote{pool: p, address: address, data: d, sending: make(chan struct{}, 1)}
}

// conn returns the connection to an address.
func (p *Pool) conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return nil, errors.New("the pool of connections is closed")
	}
	if c, ok := p.conns[address]; ok {
		return c, nil
	}
	c, err := grpc.NewClient(address, p.opts...)
	if err != nil {
		return nil, err
	}
	p.conns[address] = c
	return c, nil
}

// Close closes all connections. Members must not be used after it.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.Close())
	}
	p.conns = nil
	return errors.Join(errs...)
}

var kinds = map[Kind]pb.TilesKind{
	Double: pb.TilesKind_TILES_KIND_DOUBLE,
	Single: pb.TilesKind_TILES_KIND_SINGLE,
	Forms:  pb.TilesKind_TILES_KIND_FORMS,
	Hold:   pb.TilesKind_TILES_KIND_HOLD,
	Trans:  pb.TilesKind_TILES_KIND_TRANS,
	Low:    pb.TilesKind_TILES_KIND_LOW,
	Pass:   pb.TilesKind_TILES_KIND_PASS,
}
