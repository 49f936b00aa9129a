package shard

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// remote is another worker.
type remote struct {
	pool    *Pool
	address string
	data    Data
	sending chan struct{} // holds one element while someone sends

	mu      sync.Mutex
	session *session
	closed  bool
	running sync.WaitGroup // senders and receivers
}

var errClosed = errors.New("the member is closed")

// Do asks the worker for a unit.
func (r *remote) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	select { // only one sends
	case r.sending <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	s, err := r.open()
	if err != nil {
		<-r.sending
		return err
	}
	c := s.expect(p, out)
	frames := s.frames(p, u, c.id)
	r.running.Go(func() { // the stream may be blocked for longer than ctx
		defer func() { <-r.sending }()
		s.send(ctx, p, frames)
	})
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if !s.forget(c) {
		<-c.done
		return c.err
	}
	r.tell(s, c.id)
	return ctx.Err()
}

// tell says that a unit is not needed any more, if the stream is free.
func (r *remote) tell(s *session, id uint64) {
	select {
	case r.sending <- struct{}{}:
	default:
		return
	}
	f := &frame{head: &pb.TilesRequest{Request: &pb.TilesRequest_Cancel{Cancel: &pb.TilesCancel{Unit: id}}}}
	r.running.Go(func() {
		defer func() { <-r.sending }()
		s.transmit(f)
	})
}

// open returns the session, a new one if there is none.
func (r *remote) open() (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if r.session != nil && r.session.alive() {
		return r.session, nil
	}
	conn, err := r.pool.conn(r.address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{cancel: cancel, address: r.address, data: r.data, meter: r.pool.meter, ready: make(chan struct{}), calls: map[uint64]*call{}}
	r.session = s
	// The connection may still have to be made: others wait for it no longer
	// than their contexts let them.
	r.running.Go(func() {
		defer cancel()
		stream, err := pb.NewTilesClient(conn).Session(ctx, grpc.CallContentSubtype(contentSubtype), grpc.WaitForReady(false))
		if err != nil {
			s.fail(err)
			close(s.ready)
			return
		}
		s.stream = stream
		close(s.ready)
		s.fail(s.receive())
	})
	return s, nil
}

// Close ends the session.
func (r *remote) Close() error {
	r.mu.Lock()
	r.closed = true
	if s := r.session; s != nil {
		s.fail(errClosed)
	}
	r.mu.Unlock()
	r.running.Wait()
	return nil
}
