package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
)

// door is a port's listener. It bounds what connections cost of which nobody
// knows whose they are: how many there are, for how long, how much is read from
// them, how much they may ask at once. Who calls is found out above it (a
// certificate, a token), and told by conn.knows. Those who are known keep their
// places, whatever strangers do.
type door struct {
	net.Listener
	most     int // connections at a time
	strange  int // of these, of strangers
	patience time.Duration
	trusting bool // whoever connects is a node

	mu    sync.Mutex
	conns map[string]*conn // by remote address
	known [3]int           // connections, by whose they are
}

// Whose a connection is.
const (
	stranger = iota
	user
	node
)

// What a stranger's connection may cost.
const (
	strangerBytes    = 64 << 10 // read; no more is, until it is known whose it is
	strangerCalls    = 8        // under way
	strangerRefusals = 100      // then it is closed
)

// newDoor bounds the connections of a listener. A quarter of the places is for
// nodes alone, and few are for strangers: each of these is let go after a while,
// the oldest of whoever has most of them at once when there are too many.
func newDoor(l net.Listener, most int, patience time.Duration) *door {
	return &door{Listener: l, most: most, strange: min(max(4, most/32), 128), patience: patience, conns: map[string]*conn{}}
}

// Accept returns the next connection, a stranger's.
func (d *door) Accept() (net.Conn, error) {
	raw, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, door: d, since: time.Now(), told: make(chan struct{}), closed: make(chan struct{})}
	d.mu.Lock()
	c.timer = time.AfterFunc(d.patience, c.expire)
	victim := d.crowd()
	d.conns[c.key()] = c
	d.known[stranger]++
	d.mu.Unlock()
	if victim != nil {
		victim.Close()
	}
	if d.trusting && c.knows(node) != nil {
		c.Close()
	}
	return c, nil
}

// crowd returns the stranger that has to make room for one more, if one has to.
func (d *door) crowd() *conn {
	if d.known[stranger] < d.strange {
		return nil
	}
	each := map[string]int{}
	for _, c := range d.conns {
		if c.whose == stranger {
			each[c.host()]++
		}
	}
	var out *conn
	for _, c := range d.conns {
		if c.whose != stranger {
			continue
		}
		if out == nil || each[c.host()] > each[out.host()] || each[c.host()] == each[out.host()] && c.since.Before(out.since) {
			out = c
		}
	}
	return out
}

// errFull is why somebody who is known is not let in.
var errFull = errors.New("this port has as many connections as it holds: try again later")

// conn is a connection through a door.
type conn struct {
	net.Conn
	door    *door
	since   time.Time
	timer   *time.Timer // door.mu is held, as it is for whose
	whose   int
	told    chan struct{}
	closed  chan struct{}
	once    sync.Once
	read    atomic.Int64 // bytes, while it is a stranger's
	calls   atomic.Int32
	refused atomic.Int32
}

func (c *conn) key() string { return c.RemoteAddr().String() }

func (c *conn) host() string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return c.key()
}

// knows notes whose the connection is, or returns why that one has no place.
func (c *conn) knows(whose int) error {
	if c == nil {
		return nil // within this process
	}
	d := c.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.whose >= whose || d.conns[c.key()] != c {
		return nil
	}
	if whose == user && d.known[user] >= d.most-d.most/4-d.strange || d.known[user]+d.known[node] >= d.most-d.strange {
		return errFull
	}
	if d.known[c.whose]--; c.whose == stranger {
		c.timer.Stop()
		close(c.told)
	}
	c.whose = whose
	d.known[whose]++
	return nil
}

// Known notes that a node has shown what it is.
func (c *conn) Known() error { return c.knows(node) }

func (c *conn) isKnown() bool {
	if c == nil {
		return true
	}
	select {
	case <-c.told:
		return true
	default:
		return false
	}
}

// expire closes a connection that is a stranger's still.
func (c *conn) expire() {
	if !c.isKnown() {
		c.Close()
	}
}

// Read reads. A stranger who sends more than it takes to say who it is has to
// wait until that is known, or over.
func (c *conn) Read(p []byte) (int, error) {
	if c.isKnown() {
		return c.Conn.Read(p)
	}
	if c.read.Load() >= strangerBytes {
		select {
		case <-c.told:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// Close closes the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.door.mu.Lock()
		defer c.door.mu.Unlock()
		c.timer.Stop()
		if c.door.conns[c.key()] == c {
			delete(c.door.conns, c.key())
			c.door.known[c.whose]--
		}
	})
	return c.Conn.Close()
}

// begin counts a call on the connection until the function returned is called;
// false if a stranger has too many under way.
func (c *conn) begin() (end func(), ok bool) {
	if c.isKnown() {
		return func() {}, true
	}
	if c.calls.Add(1) > strangerCalls {
		c.calls.Add(-1)
		return nil, false
	}
	return sync.OnceFunc(func() { c.calls.Add(-1) }), true
}

// refuse counts a call that was refused for who makes it, and closes a stranger's
// connection that has had many.
func (c *conn) refuse() {
	if !c.isKnown() && c.refused.Add(1) > strangerRefusals {
		time.AfterFunc(0, func() { c.Close() }) // gRPC's transport is locked
	}
}

// connKey is where contexts carry the connection that a call came by.
type connKey struct{}

// connOf returns the connection that a call, or a request, came by; nil within
// this process.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// connContext lets requests of HTTP carry their connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// tags lets gRPC's calls carry their connection, and ends their contexts with it:
// gRPC leaves the timers of calls that a tap has refused.
type tags struct{ *door }

var _ stats.Handler = tags{}

type endKey struct{}

func (t tags) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if _, ok := info.RemoteAddr.(*net.TCPAddr); !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	ctx = context.WithValue(ctx, endKey{}, cancel)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.conns[info.RemoteAddr.String()]; c != nil {
		ctx = context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

func (tags) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		if cancel, ok := ctx.Value(endKey{}).(context.CancelFunc); ok {
			cancel()
		}
	}
}

func (tags) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (tags) HandleRPC(context.Context, stats.RPCStats)                       {}
