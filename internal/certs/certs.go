// Package certs makes the certificates of a cluster, for those who have nothing
// else that does: an authority in a folder, and certificates that it signs.
//
// The folder holds ca.crt and ca.key, and for each certificate NAME.crt and
// NAME.key. Keys are readable by their owner alone, and nothing is overwritten
// unless told.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/identity"
)

// backdate lets certificates be valid where clocks are a little behind.
const backdate = 5 * time.Minute

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// AuthorityRequest says what an authority shall be.
type AuthorityRequest struct {
	Name string // for people
	From time.Time
	Days int
	// Permit, if any, are the only domains, with all below them, and networks
	// for which the authority can sign certificates.
	Permit []string
}

// NewAuthority makes an authority. It signs leaves only.
func NewAuthority(r AuthorityRequest) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := template(r.Name, r.From, r.Days)
	if err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	for _, p := range r.Permit {
		t.PermittedDNSDomainsCritical = true
		if _, n, err := net.ParseCIDR(p); err == nil {
			t.PermittedIPRanges = append(t.PermittedIPRanges, n)
		} else if strings.ContainsAny(p, "/: ") || p == "" {
			return nil, fmt.Errorf("%q is neither a domain nor a network like 10.0.0.0/8", p)
		} else {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, p)
		}
	}
	if len(r.Permit) > 0 && len(t.PermittedIPRanges) == 0 { // else every address would be
		t.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	}
	if len(r.Permit) > 0 {
		t.PermittedDNSDomains = append(t.PermittedDNSDomains, identity.Worker.AnyHost(), identity.Coordinator.AnyHost()) // no real names
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	return &Authority{c, key}, err
}

// Request says what a certificate shall be.
type Request struct {
	Peer  identity.Peer
	Hosts []string // names and addresses at which a node is dialled; a worker's may be missing: then wherever it is
	From  time.Time
	Days  int
}

// Pair is a certificate and its key in PEM.
type Pair struct{ Cert, Key []byte }

// Issue signs a certificate with a new key. That of a node is good for both ends
// of a connection, that of a client for dialling only.
func (a *Authority) Issue(r Request) (Pair, error) {
	node := r.Peer.Role != identity.Client
	switch {
	case len(r.Hosts) > 0:
	case r.Peer.Role == identity.Worker:
		r.Hosts = []string{identity.Worker.AnyHost()}
	case node:
		return Pair{}, fmt.Errorf("a %s's certificate needs the hosts at which it is dialled", r.Peer.Role)
	}
	t, err := template(r.Peer.String(), r.From, r.Days)
	if err != nil {
		return Pair{}, err
	}
	if t.NotAfter.After(a.Cert.NotAfter) {
		return Pair{}, fmt.Errorf("%d days are beyond the end of the authority's own certificate, on %s", r.Days, a.Cert.NotAfter.UTC().Format(time.DateOnly))
	}
	t.BasicConstraintsValid = true
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if node {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	t.URIs = []*url.URL{r.Peer.URI()}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h == "" || strings.ContainsAny(h, "/: ") {
			return Pair{}, fmt.Errorf("%q is neither a host's name nor its address", h)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.Cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.NotAfter, KeyUsages: t.ExtKeyUsage[:1]}); err != nil {
		return Pair{}, fmt.Errorf("the authority may not sign this: %w", err)
	}
	return pair(der, key)
}

func template(name string, from time.Time, days int) (*x509.Certificate, error) {
	if days < 1 {
		return nil, fmt.Errorf("%d days: give a positive number", days)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: name, Organization: []string{"ulisse"}},
		NotBefore:    from.Add(-backdate).UTC().Truncate(time.Second),
		NotAfter:     from.AddDate(0, 0, days).UTC().Truncate(time.Second),
	}, nil
}

func pair(der []byte, key crypto.Signer) (Pair, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})}, nil
}

// Pair returns the authority's own certificate and key.
func (a *Authority) Pair() (Pair, error) { return pair(a.Cert.Raw, a.key) }

// authorityName is the base name of an authority's files.
const authorityName = "ca"

// Open reads the authority of a folder.
func Open(dir string) (*Authority, error) {
	name := filepath.Join(dir, authorityName)
	c, err := tls.LoadX509KeyPair(name+".crt", name+".key")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no authority: make one with 'ulisse certs init --dir %s' (%w)", dir, dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.crt and %s.key: %w", name, name, err)
	}
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok || !c.Leaf.IsCA {
		return nil, fmt.Errorf("%s.crt is not the certificate of an authority", name)
	}
	return &Authority{c.Leaf, key}, nil
}

// ListPath is where an authority's list of revoked certificates is.
func ListPath(dir string) string { return filepath.Join(dir, authorityName+".crl") }

// Revoke adds certificates to the authority's list in its folder. The list holds for as long as the
// authority: it is replaced when there is more to revoke.
func (a *Authority) Revoke(dir string, now time.Time, revoked ...*x509.Certificate) error {
	t := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-backdate).UTC(), NextUpdate: a.Cert.NotAfter}
	text, err := os.ReadFile(ListPath(dir))
	switch b, _ := pem.Decode(text); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case b == nil:
		return fmt.Errorf("%s is not a list of revoked certificates", ListPath(dir))
	default:
		old, err := x509.ParseRevocationList(b.Bytes)
		if err == nil {
			err = old.CheckSignatureFrom(a.Cert)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ListPath(dir), err)
		}
		t.Number.Add(old.Number, t.Number)
		t.RevokedCertificateEntries = old.RevokedCertificateEntries
	}
	for _, c := range revoked {
		if err := c.CheckSignatureFrom(a.Cert); err != nil {
			return fmt.Errorf("the certificate of %s is not one that this authority signed: %w", c.Subject, err)
		}
		if !slices.ContainsFunc(t.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(c.SerialNumber) == 0 }) {
			t.RevokedCertificateEntries = append(t.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now.UTC()})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, t, a.Cert, a.key)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(ListPath(dir), 0o644, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

// Save writes the authority into a folder that holds none.
func (a *Authority) Save(dir string) error {
	p, err := a.Pair()
	if err != nil {
		return err
	}
	return p.Save(dir, authorityName, false)
}

// LoadPair reads DIR/NAME.crt and DIR/NAME.key.
func LoadPair(dir, name string) (p Pair, err error) {
	base := filepath.Join(dir, name)
	var e error
	p.Cert, err = os.ReadFile(base + ".crt")
	p.Key, e = os.ReadFile(base + ".key")
	return p, errors.Join(err, e)
}

// Bundle returns the pair in one file that browsers take (PKCS #12, RFC 7292), with the certificates
// of authorities, if any, locked by a password. Old programs cannot read it unless legacy says so: then it is
// locked by algorithms that are weak today.
func (p Pair) Bundle(authorities []*x509.Certificate, password string, legacy bool) ([]byte, error) {
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	encoder := pkcs12.Modern2023
	if legacy {
		encoder = pkcs12.LegacyDES
	}
	return encoder.Encode(c.PrivateKey, c.Leaf, authorities, password)
}

// Save writes DIR/NAME.key, for its owner alone, and DIR/NAME.crt. Old files of
// these names are refused, or replaced, each whole.
func (p Pair) Save(dir, name string, replace bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := []struct {
		path string
		text []byte
		mode os.FileMode
	}{{filepath.Join(dir, name+".key"), p.Key, 0o600}, {filepath.Join(dir, name+".crt"), p.Cert, 0o644}}
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil && !replace {
			there = append(there, f.path)
		}
	}
	switch {
	case len(there) == 1 && there[0] == files[0].path:
		return fmt.Errorf("there is a key without its certificate, as of a command that was cut short: remove %s", there[0])
	case len(there) > 0:
		return fmt.Errorf("%s is there already and is not overwritten", there[0])
	}
	write := atomicfile.Create
	if replace {
		write = atomicfile.WriteBytes
	}
	for _, f := range files {
		if err := write(f.path, f.mode, f.text); err != nil {
			return err
		}
	}
	return nil
}
