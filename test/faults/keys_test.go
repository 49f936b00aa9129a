package faults

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// keys are the certificates and the administrator's token of a cluster.
type keys struct {
	t     *testing.T
	ca    *certstest.Authority
	token string                   // file
	files map[string]tlsconf.Files // by role
}

func newKeys(t *testing.T, hosts ...string) *keys {
	t.Helper()
	k := &keys{t: t, ca: certstest.New(t), token: filepath.Join(t.TempDir(), "admin-token"), files: map[string]tlsconf.Files{}}
	for _, role := range []string{"coordinator", "worker"} {
		k.files[role] = k.ca.FilesFor(role, "", time.Now(), 1, hosts...)
	}
	k.revoke("")
	text, _ := auth.NewToken()
	if err := os.WriteFile(k.token, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// args are the arguments of a process of a role.
func (k *keys) args(role string) []string {
	k.t.Helper()
	f := k.files[role]
	return []string{"--tls-ca", f.CA, "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-crl", certs.ListPath(filepath.Dir(f.CA))}
}

// revoke revokes the certificate of a role, or, with none, nobody's.
func (k *keys) revoke(role string) {
	k.t.Helper()
	var revoked []*x509.Certificate
	if role != "" {
		c, err := tls.LoadX509KeyPair(k.files[role].Cert, k.files[role].Key)
		if err != nil {
			k.t.Fatal(err)
		}
		revoked = append(revoked, c.Leaf)
	}
	if err := k.ca.Revoke(filepath.Dir(k.ca.CA()), time.Now(), revoked...); err != nil {
		k.t.Fatal(err)
	}
}

// env writes the client's environment.
func (k *keys) env(path string, coordinators []string) {
	k.t.Helper()
	token, err := os.ReadFile(k.token)
	if err != nil {
		k.t.Fatal(err)
	}
	text := "export ULISSE_COORDINATORS=" + strings.Join(coordinators, ",") + "\nexport ULISSE_TLS_CA=" + k.ca.CA() + "\nexport ULISSE_TOKEN=" + string(token) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}
