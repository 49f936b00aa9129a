// Package tlsconf holds a process's certificate, its key and the authorities it
// trusts, as they stand in files, and makes of them what its listeners and
// connections need.
//
// The files are looked at every few seconds. What changes counts from the next
// handshake on; connections that are open stay as they are. New files that do
// not fit together are left aside with a warning, and the old ones kept.
package tlsconf

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

// Files are where certificates are.
type Files struct {
	Cert string `yaml:"cert,omitempty"` // this process's certificate, and those of authorities in between, in PEM
	Key  string `yaml:"key,omitempty"`  // its private key
	CA   string `yaml:"ca,omitempty"`   // the authorities that are trusted
	CRL  string `yaml:"crl,omitempty"`  // lists of certificates that they have revoked
}

// Set reports whether any file is given.
func (f Files) Set() bool { return f != Files{} }

// Check returns what is wrong with the choice of files. A process that only
// dials needs no certificate of its own.
func (f Files) Check(dials bool) error {
	switch {
	case !f.Set():
		return nil
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("--tls-cert and --tls-key belong together: give both")
	case f.CA == "" && f.Cert == "":
		return errors.New("--tls-crl needs --tls-ca: the authorities that sign the list")
	case f.CA == "":
		return errors.New("--tls-cert needs --tls-ca: the authorities whose certificates are accepted")
	case f.Cert == "" && !dials:
		return errors.New("--tls-ca needs --tls-cert and --tls-key: a process that listens shows a certificate")
	}
	return nil
}

// Options of a Source.
type Options struct {
	// Role is what the own certificate has to be for. If it is empty there may
	// be none, or one of any role.
	Role identity.Role
	// Foreign says that the own certificate may be of an authority that CA does
	// not hold, and without a role: one for browsers.
	Foreign bool
	Logger  *slog.Logger
	Now     func() time.Time
}

// Source is what the files hold.
type Source struct {
	files Files
	Options

	now atomic.Pointer[material]

	refused refusals
	open    watched
}

// material is what one state of the files holds.
type material struct {
	digest [sha256.Size]byte
	cert   *tls.Certificate // nil: none
	pool   *x509.CertPool
	cas    []*x509.Certificate

	revoked map[serial]bool
	next    time.Time // when a list should have been replaced; zero without one
}

// pollEvery is the time between looks at the files, warnEvery between warnings
// that a certificate is about to expire.
const (
	pollEvery = 2 * time.Second
	warnEvery = 6 * time.Hour
)

// Load reads the files.
func Load(f Files, o Options) (*Source, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Source{files: f, Options: o}
	texts, err := s.read()
	if err != nil {
		return nil, err
	}
	m, err := s.parse(texts)
	if err != nil {
		return nil, err
	}
	s.now.Store(m)
	return s, nil
}

// texts are the files' contents.
type texts struct{ cert, key, ca, crl []byte }

func (t texts) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{t.cert, t.key, t.ca, t.crl} {
		fmt.Fprintf(h, "%d\n", len(b))
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (s *Source) read() (t texts, err error) {
	for _, f := range []struct {
		path string
		to   *[]byte
	}{{s.files.Cert, &t.cert}, {s.files.Key, &t.key}, {s.files.CA, &t.ca}, {s.files.CRL, &t.crl}} {
		if f.path == "" {
			continue
		}
		if *f.to, err = os.ReadFile(f.path); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (s *Source) parse(t texts) (*material, error) {
	m := &material{digest: t.digest(), pool: x509.NewCertPool()}
	for rest := t.ca; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.files.CA, err)
		}
		if slices.ContainsFunc(m.cas, c.Equal) {
			continue
		}
		m.cas = append(m.cas, c)
		m.pool.AddCert(c)
	}
	if len(m.cas) == 0 {
		return nil, fmt.Errorf("%s holds no certificate of an authority", s.files.CA)
	}
	if s.files.CRL != "" {
		var err error
		if m.revoked, m.next, err = parseLists(t.crl, m.cas); err != nil {
			return nil, fmt.Errorf("%s: %w", s.files.CRL, err)
		}
	}
	if s.files.Cert == "" {
		return m, nil
	}
	c, err := tls.X509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", s.files.Cert, s.files.Key, err)
	}
	m.cert = &c
	if err := s.fits(m); err != nil {
		return nil, fmt.Errorf("%s: %w", s.files.Cert, err)
	}
	return m, nil
}

// fits returns why others would refuse the own certificate.
func (s *Source) fits(m *material) error {
	now, c := s.Now(), m.cert.Leaf
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate expired on %s", day(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s: is the clock right?", day(c.NotBefore))
	case s.Foreign:
		return nil
	}
	inner := x509.NewCertPool()
	for _, der := range m.cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			inner.AddCert(c)
		}
	}
	_, err := c.Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: inner, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("the certificate is not signed by an authority of %s: %w", s.files.CA, err)
	}
	p, err := identity.Of(c)
	if err != nil {
		return fmt.Errorf("the certificate is not one of a cluster's: %w", err)
	}
	if s.Role != "" && p.Role != s.Role {
		return fmt.Errorf("the certificate is that of %s: that of a %s is needed", p, s.Role)
	}
	return nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// Reload looks at the files. It returns why new ones are not used; the old ones
// stay in use then.
func (s *Source) Reload() error {
	t, err := s.read()
	if err != nil {
		return err
	}
	if t.digest() == s.now.Load().digest {
		return nil
	}
	m, err := s.parse(t)
	if err != nil {
		return err
	}
	s.now.Store(m)
	s.sweep(m)
	if m.cert != nil {
		s.Logger.Info("new certificates", "file", s.files.Cert, "valid_until", day(m.cert.Leaf.NotAfter), "authorities", len(m.cas), "revoked", len(m.revoked))
	} else {
		s.Logger.Info("new authorities", "file", s.files.CA, "authorities", len(m.cas))
	}
	return nil
}

// Watch looks at the files until ctx is done, and warns of what is about to
// expire.
func (s *Source) Watch(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var warned time.Time
	var trouble string
	for {
		if now := s.Now(); now.Sub(warned) >= warnEvery {
			warned = now
			s.warn()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		was := s.now.Load()
		err := s.Reload()
		if err == nil && s.now.Load() != was {
			warned = time.Time{}
		}
		if err != nil && err.Error() != trouble {
			s.Logger.Warn("the new certificates are not used, the old ones stay", "error", err)
		}
		if trouble = ""; err != nil {
			trouble = err.Error()
		}
	}
}

// Expiry is when a certificate ends.
type Expiry struct {
	Kind     string // certificate, authority
	Subject  string
	SHA256   string // the beginning of it, in hexadecimal: enough to tell apart
	From, To time.Time
}

func expiry(kind string, c *x509.Certificate) Expiry {
	sum := sha256.Sum256(c.Raw)
	return Expiry{kind, c.Subject.String(), hex.EncodeToString(sum[:8]), c.NotBefore, c.NotAfter}
}

// Left returns the time until the certificate ends.
func (e Expiry) Left(now time.Time) time.Duration { return e.To.Sub(now) }

// Expiries returns when the certificates end that are in use, for metrics. A nil
// Source has none.
func (s *Source) Expiries() []Expiry {
	if s == nil {
		return nil
	}
	m := s.now.Load()
	var out []Expiry
	if m.cert != nil {
		out = append(out, expiry("certificate", m.cert.Leaf))
	}
	for _, c := range m.cas {
		out = append(out, expiry("authority", c))
	}
	return out
}

// warn warns of certificates in the last third of their time, a month before the
// end at the earliest.
func (s *Source) warn() {
	now := s.Now()
	if next := s.now.Load().next; !next.IsZero() && now.After(next) {
		s.Logger.Warn("the list of revoked certificates should have been replaced: it is still used", "file", s.files.CRL, "on", day(next))
	}
	for _, e := range s.Expiries() {
		left := e.Left(now)
		switch {
		case left <= 0:
			s.Logger.Error("a certificate has expired: others refuse it", "kind", e.Kind, "subject", e.Subject, "since", day(e.To))
		case left < min(e.To.Sub(e.From)/3, 30*24*time.Hour):
			s.Logger.Warn("a certificate is about to expire", "kind", e.Kind, "subject", e.Subject, "on", day(e.To), "days_left", int(left.Hours()/24))
		}
	}
}

// Files returns where the certificates are.
func (s *Source) Files() Files { return s.files }
