package rpc

import (
	"errors"
	"sync"

	"google.golang.org/grpc"
)

// Pool keeps one connection to each address. Its methods are safe for
// concurrent use.
type Pool struct {
	dial  func(address string) (*grpc.ClientConn, error)
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // nil once closed
}

// NewPool returns a pool of connections that dial makes.
func NewPool(dial func(address string) (*grpc.ClientConn, error)) *Pool {
	return &Pool{dial: dial, conns: map[string]*grpc.ClientConn{}}
}

// Conn returns the connection to an address, which the pool closes.
func (p *Pool) Conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[address]; c != nil {
		return c, nil
	}
	if p.conns == nil {
		return nil, errors.New("the pool of connections is closed")
	}
	c, err := p.dial(address)
	if err != nil {
		return nil, err
	}
	p.conns[address] = c
	return c, nil
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
