package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

// A list of revoked certificates (RFC 5280, section 5) holds for every handshake, at both ends, and
// ends the connections that are open of whoever comes to stand on it.

// serial names a certificate.
type serial struct{ issuer, number string }

func serialOf(c *x509.Certificate) serial {
	return serial{string(c.RawIssuer), c.SerialNumber.String()}
}

// parseLists reads lists, each of which has to be signed by one of the authorities, and returns what
// stands on them, and when the first of them should have been replaced.
func parseLists(text []byte, cas []*x509.Certificate) (revoked map[serial]bool, next time.Time, err error) {
	revoked = map[serial]bool{}
	found := false
	for b, rest := pem.Decode(text); b != nil; b, rest = pem.Decode(rest) {
		if b.Type != "X509 CRL" {
			continue
		}
		found = true
		list, err := x509.ParseRevocationList(b.Bytes)
		if err != nil {
			return nil, next, err
		}
		if !signed(list, cas) {
			return nil, next, fmt.Errorf("the list of %s is signed by no authority of --tls-ca", list.Issuer)
		}
		if next.IsZero() || list.NextUpdate.Before(next) {
			next = list.NextUpdate
		}
		for _, e := range list.RevokedCertificateEntries {
			revoked[serial{string(list.RawIssuer), e.SerialNumber.String()}] = true
		}
	}
	if !found {
		return nil, next, errors.New("it holds no list of revoked certificates (X509 CRL in PEM)")
	}
	return revoked, next, nil
}

func signed(list *x509.RevocationList, cas []*x509.Certificate) bool {
	for _, ca := range cas {
		if list.CheckSignatureFrom(ca) == nil {
			return true
		}
	}
	return false
}

// RevokedError says that a certificate is revoked.
type RevokedError struct{ Cert *x509.Certificate }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("the certificate%s is revoked", of(e.Cert))
}

// valid returns a RevokedError if a peer's certificate, or one between it and the authority, is revoked.
func (m *material) valid(peer []*x509.Certificate) error {
	for _, c := range peer {
		if m.revoked[serialOf(c)] {
			return &RevokedError{c}
		}
	}
	return nil
}

// verifyServer is what a listener asks of who connects, beside what crypto/tls does.
func (m *material) verifyServer(roles []identity.Role) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(roles) > 0 {
			if err := check(roles)(s); err != nil {
				return err
			}
		}
		return m.valid(s.PeerCertificates)
	}
}

// watched are the open connections of peers that showed a certificate.
type watched struct {
	mu    sync.Mutex
	conns map[net.Conn][]*x509.Certificate
}

// watch has a connection ended once its peer's certificate is revoked, until forget.
func (s *Source) watch(c net.Conn, peer []*x509.Certificate) {
	if len(peer) == 0 {
		return
	}
	s.open.mu.Lock()
	if s.open.conns == nil {
		s.open.conns = map[net.Conn][]*x509.Certificate{}
	}
	s.open.conns[c] = peer
	s.open.mu.Unlock()
	if s.now.Load().valid(peer) != nil { // since the handshake
		c.Close()
	}
}

func (s *Source) forget(c net.Conn) {
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	delete(s.open.conns, c)
}

// sweep ends the connections whose peers' certificates are revoked.
func (s *Source) sweep(m *material) {
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	for c, peer := range s.open.conns {
		if err := m.valid(peer); err != nil {
			s.Logger.Warn("a connection is ended", "from", c.RemoteAddr(), "error", err)
			delete(s.open.conns, c)
			go c.Close() // it may wait for the other end
		}
	}
}

// watchedConn is a connection that is forgotten when it is closed.
type watchedConn struct {
	net.Conn
	source *Source
}

// watching watches a connection of gRPC's.
func (s *Source) watching(c net.Conn, info credentials.AuthInfo) net.Conn {
	if t, ok := info.(credentials.TLSInfo); ok {
		s.watch(c, t.State.PeerCertificates)
	}
	return &watchedConn{c, s}
}

func (c *watchedConn) Close() error {
	c.source.forget(c.Conn)
	return c.Conn.Close()
}

// ConnState is that of an http.Server whose connections are to end with their certificates.
func (s *Source) ConnState(c net.Conn, state http.ConnState) {
	t, ok := c.(*tls.Conn)
	switch {
	case !ok:
	case state == http.StateActive:
		s.watch(t, t.ConnectionState().PeerCertificates)
	case state == http.StateClosed || state == http.StateHijacked:
		s.forget(t)
	}
}
