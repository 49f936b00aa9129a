package cli

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/server"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// tlsFlags adds the flags that name certificates.
func tlsFlags(c *cobra.Command, f *pflag.FlagSet, to *tlsconf.Files) {
	f.StringVar(&to.Cert, "tls-cert", "", "show the certificate of this `file` ($"+client.EnvTLSCert+")")
	f.StringVar(&to.Key, "tls-key", "", "`file` with the certificate's private key ($"+client.EnvTLSKey+")")
	f.StringVar(&to.CA, "tls-ca", "", "speak TLS with whoever is certified by an authority of this `file` ($"+client.EnvTLSCA+")")
	f.StringVar(&to.CRL, "tls-crl", "", "refuse the certificates that the lists in this `file` revoke ($"+client.EnvTLSCRL+")")
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca", "tls-crl"} {
		c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"crt", "pem", "key", "crl"}, cobra.ShellCompDirectiveFilterFileExt
		})
	}
}

// orEnv completes files by those that the environment names.
func orEnv(f tlsconf.Files) tlsconf.Files {
	return tlsconf.Files{
		Cert: cmp.Or(f.Cert, os.Getenv(client.EnvTLSCert)),
		Key:  cmp.Or(f.Key, os.Getenv(client.EnvTLSKey)),
		CA:   cmp.Or(f.CA, os.Getenv(client.EnvTLSCA)),
		CRL:  cmp.Or(f.CRL, os.Getenv(client.EnvTLSCRL)),
	}
}

// absolute makes paths independent of the current folder.
func absolute(f tlsconf.Files) (tlsconf.Files, error) {
	for _, p := range []*string{&f.Cert, &f.Key, &f.CA, &f.CRL} {
		if *p == "" {
			continue
		}
		a, err := filepath.Abs(*p)
		if err != nil {
			return f, err
		}
		*p = a
	}
	return f, nil
}

// serverFlags adds the flags by which a server protects its ports, but those
// that name certificates.
func serverFlags(f *pflag.FlagSet, s *server.Security) {
	f.BoolVar(&s.Insecure, "insecure", false, "listen in plaintext beyond this machine, open to everybody there")
	f.IntVar(&s.MaxConnections, "max-connections", 4096, "connections that each port holds at a time")
}
