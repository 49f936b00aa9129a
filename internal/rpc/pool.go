package rpc

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Pool keeps one connection to each address, and closes those that nobody has used for
// some minutes: addresses come and go with pods. Its methods are safe for concurrent use.
type Pool struct {
	dial  func(address string) (*grpc.ClientConn, error)
	now   func() time.Time
	mu    sync.Mutex
	conns map[string]*pooled // nil once closed
	swept time.Time
}

// pooled is a connection, and when it was asked for last.
type pooled struct {
	*grpc.ClientConn
	asked time.Time
}

// unused is for how long nobody has asked for a connection, and nothing is called over it, before it is
// closed.
const unused = 5 * time.Minute

// NewPool returns a pool of connections that dial makes.
func NewPool(dial func(address string) (*grpc.ClientConn, error)) *Pool {
	return &Pool{dial: dial, now: time.Now, conns: map[string]*pooled{}}
}

// Conn returns the connection to an address, which the pool closes. It is for calls that begin at once:
// who makes others later asks again.
func (p *Pool) Conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return nil, errors.New("the pool of connections is closed")
	}
	now := p.now()
	p.sweep(now)
	c := p.conns[address]
	if c == nil {
		conn, err := p.dial(address)
		if err != nil {
			return nil, err
		}
		c = &pooled{ClientConn: conn}
		p.conns[address] = c
	}
	c.asked = now
	return c.ClientConn, nil
}

// sweep closes what is unused, now and then. A connection that is idle has no calls under way (Dialer
// lets it become so).
func (p *Pool) sweep(now time.Time) {
	if now.Sub(p.swept) < unused/5 {
		return
	}
	p.swept = now
	for address, c := range p.conns {
		if now.Sub(c.asked) > unused && c.GetState() == connectivity.Idle {
			c.Close()
			delete(p.conns, address)
		}
	}
}

// Close closes all connections.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
