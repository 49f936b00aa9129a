package dev

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// Certificates of a cluster for trying: an authority, a certificate for all
// processes of a role, and the user's.
const (
	tlsFolder = "tls"
	tlsDays   = 30
)

// certificates makes certificates in a folder, as long as it has none, for
// processes that are dialled at the hosts.
func certificates(dir string, hosts ...string) error {
	ca, err := certs.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if ca, err = certs.NewAuthority(certs.AuthorityRequest{Name: "ulisse dev", From: time.Now(), Days: 3650}); err == nil {
			err = ca.Save(dir)
		}
	}
	if err != nil {
		return err
	}
	for _, role := range identity.Roles {
		peer := identity.Peer{Role: role} // all of a role share one
		if role == identity.Client {
			peer.Name = "dev"
		}
		p, err := ca.Issue(certs.Request{Peer: peer, Hosts: hosts, From: time.Now(), Days: tlsDays})
		if err == nil {
			err = p.Save(dir, string(role), true)
		}
		if err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// tlsFiles are the files in which a role finds its certificate.
func tlsFiles(dir, role string) tlsconf.Files {
	base := filepath.Join(dir, role)
	return tlsconf.Files{CA: filepath.Join(dir, "ca.crt"), Cert: base + ".crt", Key: base + ".key"}
}

// tlsArgs are the arguments by which a process of a role finds its
// certificate.
func tlsArgs(dir, role string) []string {
	f := tlsFiles(dir, role)
	return []string{"--tls-ca", f.CA, "--tls-cert", f.Cert, "--tls-key", f.Key}
}

// tlsEnv is what the client's environment holds.
func tlsEnv(dir string) string {
	f := tlsFiles(dir, string(identity.Client))
	return "export ULISSE_TLS_CA=" + f.CA + "\nexport ULISSE_TLS_CERT=" + f.Cert + "\nexport ULISSE_TLS_KEY=" + f.Key + "\n"
}
