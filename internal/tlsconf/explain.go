package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

// explain says why a handshake with a peer that was dialled did not succeed, or
// why the connection ended after it.
func (s *Source) explain(err error) error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var role *identity.RoleError
	var revoked *RevokedError
	const doubt = "it does not speak TLS: it runs without --tls-cert, or something else listens there"
	switch {
	case errors.As(err, &role):
		return role
	case errors.As(err, &revoked):
		return fmt.Errorf("its certificate%s is revoked", of(revoked.Cert))
	case errors.As(err, &authority):
		return fmt.Errorf("its certificate%s is signed by an authority that --tls-ca (%s) does not hold", of(authority.Cert), s.files.CA)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		if c := invalid.Cert; s.Now().After(c.NotAfter) {
			return fmt.Errorf("its certificate%s expired on %s", of(c), day(c.NotAfter))
		}
		return fmt.Errorf("its certificate%s is not valid before %s: are the clocks right?", of(invalid.Cert), day(invalid.Cert.NotBefore))
	case errors.As(err, &host):
		return fmt.Errorf("its certificate is for %s and not for %s", names(host.Certificate), host.Host)
	case errors.As(err, &invalid):
		return fmt.Errorf("its certificate is not valid: %w", err)
	case errors.As(err, &record):
		return errors.New(doubt)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("it closed the connection during the handshake: is that a port that speaks TLS? (%w)", err)
	}
	return s.alert(err)
}

// alert says what the other end's alert means. It is known by its words alone.
func (s *Source) alert(err error) error {
	if err == nil {
		return nil
	}
	_, what, ok := strings.Cut(err.Error(), "remote error: tls: ")
	if !ok {
		return err
	}
	own := "the certificate shown to it"
	if p, ok := s.Own(); ok {
		own += fmt.Sprintf(" (%s, %s)", p, s.files.Cert)
	}
	switch what {
	case "certificate required":
		return errors.New("it wants to see a certificate: give --tls-cert and --tls-key")
	case "unknown certificate authority":
		return fmt.Errorf("it does not trust the authority that signed %s", own)
	case "expired certificate":
		return fmt.Errorf("it says that %s has expired", own)
	case "bad certificate":
		return fmt.Errorf("it refuses %s: is it one for the right role, and not revoked?", own)
	case "no application protocol":
		return errors.New("it speaks another protocol: is that the right port?")
	case "protocol version not supported":
		return errors.New("it does not speak TLS 1.3")
	}
	return err
}

func of(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	if p, err := identity.Of(c); err == nil {
		return fmt.Sprintf(" (%s)", p)
	}
	return fmt.Sprintf(" (%s)", c.Subject)
}

// names lists for which hosts a certificate is.
func names(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host"
	}
	return strings.Join(all, ", ")
}

// alertConn explains alerts that come after the handshake: with TLS 1.3 that is
// how a client learns that its certificate was refused.
type alertConn struct {
	net.Conn
	source  *Source
	address string
	what    string
}

func (c *alertConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && err != io.EOF && strings.Contains(err.Error(), "remote error: tls: ") {
		err = fmt.Errorf("%s %s: %w", c.what, c.address, c.source.alert(err))
	}
	return n, err
}

// refuse tells a peer whose handshake failed, and the log. One that does not
// speak TLS is told in plaintext.
func (s *Source) refuse(c net.Conn, why error, plaintext []byte) {
	s.logRefusal(c.RemoteAddr(), why)
	var record tls.RecordHeaderError
	if errors.As(why, &record) {
		c.SetWriteDeadline(time.Now().Add(lingerMost))
		c.Write(plaintext)
	}
	linger(c)
}

// linger lets the alert reach the other end before the connection is closed: a
// close with unread input would reset it, and the alert be lost.
func linger(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		w.CloseWrite()
	}
	c.SetReadDeadline(time.Now().Add(lingerMost))
	io.Copy(io.Discard, io.LimitReader(c, lingerBytes))
}

const (
	lingerMost  = time.Second
	lingerBytes = 1 << 20
)

// refusals lets one handshake a second be logged that was refused: more would
// let strangers fill the log.
type refusals struct {
	mu     sync.Mutex
	last   time.Time
	silent int
}

func (s *Source) logRefusal(from net.Addr, err error) {
	if errors.Is(err, io.EOF) { // somebody looked whether the port is open
		return
	}
	r := &s.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	now := s.Now()
	if now.Sub(r.last) < time.Second {
		r.silent++
		return
	}
	s.Logger.Warn("a connection was refused", "from", from, "error", err, "more", r.silent)
	r.last, r.silent = now, 0
}
