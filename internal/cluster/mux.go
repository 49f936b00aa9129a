package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// The first byte on a connection says what it carries. With TLS the listener
// and the dialer speak it below.
const (
	streamRaft     byte = 'R'
	streamExchange byte = 'X'
)

// mux shares one listener between raft and the exchange. It knows every
// connection, in and out, and closes them all at the end: raft reads snapshots
// without a deadline and would wait forever.
type mux struct {
	ln        net.Listener
	advertise string
	dialer    func(ctx context.Context, address string) (net.Conn, error)
	handshake time.Duration  // a connection's first byte may take
	exchange  func(net.Conn) // serves a connection of the exchange
	raft      chan net.Conn
	done      chan struct{}
	wg        sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed
}

func newMux(ln net.Listener, advertise string, handshake time.Duration, dialer func(context.Context, string) (net.Conn, error), exchange func(net.Conn)) *mux {
	m := &mux{
		ln: ln, advertise: advertise, handshake: handshake, dialer: dialer, exchange: exchange,
		raft: make(chan net.Conn), done: make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	m.wg.Go(m.accept)
	return m
}

func (m *mux) accept() {
	wait := 5 * time.Millisecond
	for {
		c, err := m.ln.Accept()
		if err != nil {
			select {
			case <-m.done:
				return
			case <-time.After(wait): // out of descriptors, say
				wait = min(2*wait, time.Second)
			}
			continue
		}
		wait = 5 * time.Millisecond
		if t := m.track(c); t != nil {
			m.wg.Go(func() { m.route(t) })
		}
	}
}

// route reads the first byte and hands the connection to whom it is for.
func (m *mux) route(c net.Conn) {
	var first [1]byte
	c.SetDeadline(time.Now().Add(m.handshake))
	if _, err := c.Read(first[:]); err != nil {
		c.Close()
		return
	}
	c.SetDeadline(time.Time{})
	switch first[0] {
	case streamRaft:
		select {
		case m.raft <- c:
		case <-m.done:
			c.Close()
		}
	case streamExchange:
		m.exchange(c)
		c.Close()
	default:
		c.Close()
	}
}

// dial opens a connection of the given kind to an address, which is resolved
// anew each time.
func (m *mux) dial(ctx context.Context, address string, kind byte) (net.Conn, error) {
	c, err := m.dialer(ctx, address)
	if err != nil {
		return nil, err
	}
	if c = m.track(c); c == nil {
		return nil, net.ErrClosed
	}
	if d, ok := ctx.Deadline(); ok {
		c.SetWriteDeadline(d)
	}
	if _, err := c.Write([]byte{kind}); err != nil {
		c.Close()
		return nil, fmt.Errorf("cluster: greet %s: %w", address, err)
	}
	c.SetWriteDeadline(time.Time{})
	return c, nil
}

// track remembers a connection until it is closed. After close it closes it
// and returns nil.
func (m *mux) track(c net.Conn) net.Conn {
	t := &trackedConn{Conn: c, mux: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conns == nil {
		c.Close()
		return nil
	}
	m.conns[t] = struct{}{}
	return t
}

// close closes the listener and every connection, and waits for the routines.
func (m *mux) close() error {
	m.mu.Lock()
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	if conns == nil {
		return nil
	}
	close(m.done)
	err := m.ln.Close()
	for c := range conns {
		c.Close()
	}
	m.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

type trackedConn struct {
	net.Conn
	mux *mux
}

func (t *trackedConn) Close() error {
	t.mux.mu.Lock()
	delete(t.mux.conns, t)
	t.mux.mu.Unlock()
	return t.Conn.Close()
}

// streamLayer is the mux as raft's transport sees it.
type streamLayer struct{ *mux }

var _ raft.StreamLayer = streamLayer{}

// Accept returns the next connection for raft.
func (s streamLayer) Accept() (net.Conn, error) {
	select {
	case c := <-s.raft:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial opens a raft connection.
func (s streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.dial(ctx, string(address), streamRaft)
}

// Close closes the whole mux.
func (s streamLayer) Close() error { return s.close() }

// Addr returns the advertised address, by name.
func (s streamLayer) Addr() net.Addr { return advertised(s.advertise) }

type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }
