package tlsconf

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

// creds are gRPC's credentials made of the files as they are at each handshake.
type creds struct {
	source *Source // nil: plaintext
	roles  []identity.Role
	plain  credentials.TransportCredentials
}

// Credentials returns what gRPC needs at both ends. Peers that are dialled have
// to have one of the roles; those that dial are verified if they show a
// certificate, and what they may do is for an identity.Gate to say. A nil Source
// is plaintext.
func (s *Source) Credentials(roles ...identity.Role) credentials.TransportCredentials {
	return &creds{source: s, roles: roles, plain: insecure.NewCredentials()}
}

var h2 = []string{"h2"}

// ClientHandshake greets the server that was dialled.
func (c *creds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.source == nil {
		conn, info, err := c.plain.ClientHandshake(ctx, authority, raw)
		if err == nil {
			conn = &plainConn{Conn: conn, r: bufio.NewReader(conn), address: authority}
		}
		return conn, info, err
	}
	what := string(c.roles[0])
	inner := credentials.NewTLS(c.source.client(hostOf(authority), h2, c.roles...))
	conn, info, err := inner.ClientHandshake(ctx, authority, raw)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%s %s: no end of the handshake: %w", what, authority, ctx.Err())
		}
		return nil, nil, fmt.Errorf("%s %s: %w", what, authority, c.source.explain(err))
	}
	return &alertConn{Conn: c.source.watching(conn, info), source: c.source, address: authority, what: what}, info, nil
}

// ServerHandshake greets whoever has connected.
func (c *creds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, ok := raw.(identity.LocalConn); ok {
		return raw, identity.Local{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	if c.source == nil {
		return c.plain.ServerHandshake(raw)
	}
	// Not by gRPC's own credentials: they close the connection at once.
	conn := tls.Server(raw, c.source.server(h2))
	err := conn.Handshake()
	if err != nil {
		c.source.refuse(raw, err, []byte("HTTP/1.0 400 Bad Request\r\n\r\n"+speaksTLS+"\n"))
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == "" {
		return nil, nil, errors.New("the other end did not say by ALPN that it speaks HTTP/2")
	}
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	return c.source.watching(conn, info), info, nil
}

// Info tells gRPC what this is.
func (c *creds) Info() credentials.ProtocolInfo {
	if c.source == nil {
		return c.plain.Info()
	}
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone copies it.
func (c *creds) Clone() credentials.TransportCredentials { d := *c; return &d }

// OverrideServerName is not supported, and deprecated.
func (c *creds) OverrideServerName(string) error {
	return errors.New("the server's name is the one that is dialled")
}

// speaksTLS is what a port with TLS tells who dials it without.
const speaksTLS = "this port speaks TLS: give --tls-ca, and --tls-cert and --tls-key"

// speaksHTTP is what a port without TLS tells that answers browsers, not programs that speak gRPC.
const speaksHTTP = "this port is for browsers and JSON (--http): give the address of the coordinator's --listen"

// plainConn finds out that a port that was dialled without TLS speaks TLS, or no gRPC.
type plainConn struct {
	net.Conn
	r       *bufio.Reader
	address string
	begun   bool
}

func (c *plainConn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		first, _ := c.r.Peek(5)
		switch {
		case bytes.Equal(first, []byte("HTTP/")):
			// Go's servers with TLS answer plaintext in HTTP/1.0, those without what they do not know in HTTP/1.1.
			if first, _ = c.r.Peek(8); !bytes.HasSuffix(first, []byte("1.0")) {
				return 0, fmt.Errorf("%s: %s", c.address, speaksHTTP)
			}
			return 0, fmt.Errorf("%s: %s", c.address, speaksTLS)
		case len(first) > 1 && first[0] == 0x15 && first[1] == 3:
			return 0, fmt.Errorf("%s: %s", c.address, speaksTLS)
		}
	}
	return c.r.Read(p)
}
