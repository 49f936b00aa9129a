package certs_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/identity"
)

func authority(t *testing.T, permit ...string) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority(certs.AuthorityRequest{Name: "test", From: time.Now(), Days: 100, Permit: permit})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	b, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What is issued is good for what its role does, and for nothing else.
func TestIssue(t *testing.T) {
	a := authority(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	for _, role := range identity.Roles {
		p, err := a.Issue(certs.Request{Peer: identity.Peer{Role: role, Name: "n"}, Hosts: []string{"n.lab", "10.0.0.9", "::1"}, From: time.Now(), Days: 10})
		if err != nil {
			t.Fatal(err)
		}
		c := parse(t, p.Cert)
		if who, err := identity.Of(c); err != nil || who != (identity.Peer{Role: role, Name: "n"}) {
			t.Errorf("the certificate of %s is that of %v (%v)", role, who, err)
		}
		for _, host := range []string{"n.lab", "10.0.0.9", "::1"} {
			if err := c.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			_, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{use}})
			if want := role != identity.Client || use == x509.ExtKeyUsageClientAuth; (err == nil) != want {
				t.Errorf("%s, usage %v: %v", role, use, err)
			}
		}
		if c.IsCA || c.KeyUsage&x509.KeyUsageCertSign != 0 {
			t.Errorf("the certificate of %s can sign others", role)
		}
	}
	if !a.Cert.IsCA || a.Cert.MaxPathLen != 0 || !a.Cert.MaxPathLenZero {
		t.Error("the authority can make other authorities")
	}
}

func TestIssueRefuses(t *testing.T) {
	node := identity.Peer{Role: identity.Worker, Name: "w"}
	for _, c := range []struct {
		permit []string
		r      certs.Request
		want   string
	}{
		{nil, certs.Request{Peer: identity.Peer{Role: identity.Coordinator, Name: "c"}, Days: 1}, "needs the hosts"},
		{[]string{"10.0.0.0/8"}, certs.Request{Peer: node, Days: 1}, ""}, // a worker anywhere
		{nil, certs.Request{Peer: node, Hosts: []string{"h"}, Days: 0}, "positive"},
		{nil, certs.Request{Peer: node, Hosts: []string{"h"}, Days: 101}, "beyond the end of the authority"},
		{nil, certs.Request{Peer: node, Hosts: []string{"h:7000"}, Days: 1}, "neither"},
		{[]string{"lab"}, certs.Request{Peer: node, Hosts: []string{"w.elsewhere"}, Days: 1}, "may not sign"},
		{[]string{"lab"}, certs.Request{Peer: node, Hosts: []string{"w.lab", "10.0.0.1"}, Days: 1}, "may not sign"},
		{[]string{"lab"}, certs.Request{Peer: node, Hosts: []string{"w.lab"}, Days: 1}, ""},
		{[]string{"10.0.0.0/8"}, certs.Request{Peer: node, Hosts: []string{"10.1.1.1"}, Days: 1}, ""},
		{[]string{"10.0.0.0/8"}, certs.Request{Peer: node, Hosts: []string{"11.1.1.1"}, Days: 1}, "may not sign"},
		{[]string{"10.0.0.0/8"}, certs.Request{Peer: node, Hosts: []string{"w.lab"}, Days: 1}, "may not sign"},
	} {
		c.r.From = time.Now()
		_, err := authority(t, c.permit...).Issue(c.r)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: %v, want %q", c.permit, c.r.Hosts, err, c.want)
		}
	}
	if _, err := certs.NewAuthority(certs.AuthorityRequest{Name: "x", Days: 1, Permit: []string{"http://lab"}}); err == nil {
		t.Error("an authority for a URL")
	}
}

// Keys are for their owner alone; nothing is overwritten but by will.
func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	a := authority(t)
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := authority(t).Save(dir); err == nil || !strings.Contains(err.Error(), "not overwritten") {
		t.Errorf("an authority was overwritten: %v", err)
	}
	b, err := certs.Open(dir)
	if err != nil || !b.Cert.Equal(a.Cert) {
		t.Fatalf("what was saved is not what is read: %v", err)
	}
	p, err := b.Issue(certs.Request{Peer: identity.Peer{Role: identity.Client, Name: "ada"}, From: time.Now(), Days: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, replace := range []bool{false, false, true} {
		if err := p.Save(dir, "ada", replace); (err == nil) != (i != 1) {
			t.Errorf("attempt %d: %v", i, err)
		}
	}
	for name, mode := range map[string]os.FileMode{"ca.key": 0o600, "ada.key": 0o600, "ca.crt": 0o644, "ada.crt": 0o644} {
		if s, err := os.Stat(filepath.Join(dir, name)); err != nil || s.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", name, s.Mode(), err, mode)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := certs.Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "certs init") {
		t.Errorf("an empty folder: %v", err)
	}
}

// A bundle holds the key, its certificate and the authority's, under its password alone.
func TestBundle(t *testing.T) {
	a := authority(t)
	p, err := a.Issue(certs.Request{Peer: identity.Peer{Role: identity.Client, Name: "ada"}, From: time.Now(), Days: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, legacy := range []bool{false, true} {
		text, err := p.Bundle([]*x509.Certificate{a.Cert}, "pass", legacy)
		if err != nil {
			t.Fatal(err)
		}
		key, c, all, err := pkcs12.DecodeChain(text, "pass")
		if err != nil || !c.Equal(parse(t, p.Cert)) || len(all) != 1 || !all[0].Equal(a.Cert) {
			t.Errorf("legacy %v: %v, %v", legacy, c, err)
		}
		if signer, ok := key.(*ecdsa.PrivateKey); !ok || !signer.PublicKey.Equal(c.PublicKey) {
			t.Errorf("legacy %v: the key is another", legacy)
		}
		if _, _, _, err := pkcs12.DecodeChain(text, "word"); !errors.Is(err, pkcs12.ErrIncorrectPassword) {
			t.Errorf("legacy %v: another password: %v", legacy, err)
		}
	}
	p.Key = nil
	if _, err := p.Bundle(nil, "pass", false); err == nil {
		t.Error("a bundle without a key")
	}
}
