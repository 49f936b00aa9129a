// Package certstest makes certificates for tests.
package certstest

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// Authority is an authority for one test.
type Authority struct {
	*certs.Authority
	t   testing.TB
	dir string
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a, err := certs.NewAuthority(certs.AuthorityRequest{Name: t.Name(), From: time.Now().AddDate(0, 0, -100), Days: 200})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	return &Authority{a, t, dir}
}

// Files issues a certificate for this machine's loopback and returns where it
// is.
func (a *Authority) Files(role, name string) tlsconf.Files {
	a.t.Helper()
	return a.FilesFor(role, name, time.Now(), 1, "127.0.0.1", "::1", "localhost")
}

// Expired issues a certificate that has expired.
func (a *Authority) Expired(role, name string) tlsconf.Files {
	a.t.Helper()
	return a.FilesFor(role, name, time.Now().AddDate(0, 0, -3), 1, "127.0.0.1", "localhost")
}

// FilesFor issues a certificate, in place of an older one of the name.
func (a *Authority) FilesFor(role, name string, from time.Time, days int, hosts ...string) tlsconf.Files {
	a.t.Helper()
	peer, err := identity.NewPeer(role, name)
	if err != nil {
		a.t.Fatal(err)
	}
	p, err := a.Issue(certs.Request{Peer: peer, Hosts: hosts, From: from, Days: days})
	if err != nil {
		a.t.Fatal(err)
	}
	if err := p.Save(a.dir, role+"-"+name, true); err != nil {
		a.t.Fatal(err)
	}
	base := filepath.Join(a.dir, role+"-"+name)
	return tlsconf.Files{Cert: base + ".crt", Key: base + ".key", CA: filepath.Join(a.dir, "ca.crt")}
}

// CA returns the file of the authority's certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.crt") }

// Trust makes the authority's file of certificates hold those of others too,
// or, with none, its own alone.
func (a *Authority) Trust(own bool, others ...*Authority) {
	a.t.Helper()
	var text []byte
	add := func(b *Authority) {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Cert.Raw})...)
	}
	if own {
		add(a)
	}
	for _, o := range others {
		add(o)
	}
	tmp := a.CA() + ".new"
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(tmp, a.CA()); err != nil {
		a.t.Fatal(err)
	}
}

// Source issues a certificate and loads it.
func (a *Authority) Source(role, name string) *tlsconf.Source {
	a.t.Helper()
	return Load(a.t, a.Files(role, name))
}

// Load loads files.
func Load(t testing.TB, f tlsconf.Files) *tlsconf.Source {
	t.Helper()
	s, err := tlsconf.Load(f, tlsconf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
