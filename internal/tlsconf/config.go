package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

// base is what both ends have in common. Tickets are off: connections live long,
// and a ticket would carry an old verdict over a change of files.
func (s *Source) base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, Time: s.Now}
}

// Server returns the configuration of a listener, which follows the files. A
// certificate of the other end is verified if there is one, and demanded, with
// one of the roles, if roles are given.
func (s *Source) Server(protocols []string, roles ...identity.Role) *tls.Config {
	// The outer configuration is only to be asked; crypto/tls wants a certificate
	// in some of its users' checks, so it has the means to get one.
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.now.Load().cert, nil
		},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.server(protocols, roles...), nil
		},
	}
}

// server returns the configuration of one handshake.
func (s *Source) server(protocols []string, roles ...identity.Role) *tls.Config {
	m := s.now.Load()
	c := s.base()
	c.Certificates = []tls.Certificate{*m.cert}
	c.ClientCAs = m.pool
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.NextProtos = protocols
	c.VerifyConnection = m.verifyServer(roles)
	if len(roles) > 0 {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c
}

// client returns the configuration of one handshake with a peer that has to have
// one of the roles.
func (s *Source) client(host string, protocols []string, roles ...identity.Role) *tls.Config {
	m := s.now.Load()
	c := s.base()
	c.ServerName = host
	c.NextProtos = protocols
	// What crypto/tls would verify is verified here: the host may also be one that
	// stands for all of a role.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verify(cs, m.pool, s.Now(), host, roles); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
		}
		if err := m.valid(cs.PeerCertificates); err != nil {
			return err
		}
		return check(roles)(cs)
	}
	if m.cert != nil {
		// Shown whatever authorities the other end names: it says more clearly
		// what is wrong with a certificate than with none.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.cert, nil }
	}
	return c
}

// verify holds a server's certificate against the authorities and the host that
// was dialled.
func verify(cs tls.ConnectionState, pool *x509.CertPool, now time.Time, host string, roles []identity.Role) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("it showed no certificate")
	}
	if host == "" { // x509 would take any
		return errors.New("the address that was dialled names no host to hold the certificate against")
	}
	o := x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: host, Intermediates: x509.NewCertPool()}
	for _, c := range cs.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(o)
	var other x509.HostnameError
	if !errors.As(err, &other) {
		return err
	}
	for _, r := range roles {
		if o.DNSName = r.AnyHost(); cs.PeerCertificates[0].VerifyHostname(o.DNSName) == nil {
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return err
}

// check returns a check of the peer's role.
func check(roles []identity.Role) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("it showed no certificate")
		}
		return identity.Check(s.PeerCertificates[0], roles...)
	}
}

// Own returns the holder of the own certificate.
func (s *Source) Own() (identity.Peer, bool) {
	if s == nil || s.now.Load().cert == nil {
		return identity.Peer{}, false
	}
	p, err := identity.Of(s.now.Load().cert.Leaf)
	return p, err == nil
}

// hostOf returns the host of host:port.
func hostOf(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}
