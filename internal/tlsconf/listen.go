package tlsconf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

// raftProtocol is what ALPN calls what coordinators speak among themselves, so
// that whoever takes one port for another is told.
var raftProtocol = []string{"ulisse-raft/1"}

// Listen wraps the listener of the replication, whose peers all have to show a certificate of one of
// the roles. The handshake happens at the first Read or Write, under the
// connection's deadline; a connection with a method Known is told when it is over. plaintext is what is told who dials without TLS.
func (s *Source) Listen(l net.Listener, plaintext func(reason string) []byte, roles ...identity.Role) net.Listener {
	return &listener{Listener: l, source: s, config: s.Server(raftProtocol, roles...), plaintext: plaintext}
}

type listener struct {
	net.Listener
	source    *Source
	config    *tls.Config
	plaintext func(string) []byte
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &serverConn{Conn: tls.Server(c, l.config), raw: c, l: l}, nil
}

// serverConn does its handshake at its first use, and tells whom it refuses.
type serverConn struct {
	*tls.Conn
	raw  net.Conn
	l    *listener
	once sync.Once
	err  error
}

func (c *serverConn) shake() error {
	c.once.Do(func() {
		if c.err = c.Conn.Handshake(); c.err == nil {
			if k, ok := c.raw.(interface{ Known() error }); ok {
				c.err = k.Known()
			}
			c.l.source.watch(c.Conn, c.Conn.ConnectionState().PeerCertificates)
			return
		}
		c.l.source.refuse(c.raw, c.err, c.l.plaintext(speaksTLS))
	})
	return c.err
}

func (c *serverConn) Read(p []byte) (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *serverConn) Write(p []byte) (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *serverConn) Close() error {
	c.l.source.forget(c.Conn)
	return c.Conn.Close()
}

// handshakeTime bounds a handshake that the context does not bound.
const handshakeTime = 10 * time.Second

// Dial connects to the replication of a peer that has to have one of the roles,
// and a certificate for the host.
func (s *Source) Dial(ctx context.Context, address, host string, roles ...identity.Role) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, s.client(host, raftProtocol, roles...))
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("%s %s: %w", roles[0], address, s.explain(err))
	}
	s.watch(c, c.ConnectionState().PeerCertificates)
	return &alertConn{Conn: &watchedConn{c, s}, source: s, address: address, what: string(roles[0])}, nil
}
