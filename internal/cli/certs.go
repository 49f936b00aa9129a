package cli

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/identity"
)

func (a *App) certsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "Make the certificates of a cluster that speaks TLS",
		Long: `Make the certificates of a cluster that speaks TLS, where nothing else does: an
authority in a folder, and what it signs. A certificate says whether its holder is
a coordinator, a worker or a client, by one URI, ulisse://ROLE/NAME; those made
elsewhere need the same. Keep ca.key where no process of the cluster runs: who has
it can be anybody.`,
		Example: `  ulisse certs init --dir ca
  ulisse certs issue --dir ca --role coordinator --name a --host a.lab --host 10.0.0.1
  ulisse certs issue --dir ca --role worker --name w1 --host w1.lab --days 90
  ulisse certs issue --dir ca --role worker --name pool
  ulisse certs issue --dir ca --role client --name ada
  ulisse certs p12 --dir ca --name ada
  ulisse coordinator --tls-ca ca/ca.crt --tls-cert ca/a.crt --tls-key ca/a.key --listen 10.0.0.1:7000`,
	}
	group(c)
	c.AddCommand(a.certsInit(), a.certsIssue(), a.certsP12(), a.certsRevoke(), a.certsShow())
	return c
}

func (a *App) certsInit() *cobra.Command {
	r := certs.AuthorityRequest{}
	var dir string
	c := &cobra.Command{
		Use:   "init",
		Short: "Make an authority",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r.From = a.Now()
			ca, err := certs.NewAuthority(r)
			if err != nil {
				return badInput(err)
			}
			if err := ca.Save(dir); err != nil {
				return badInput(err)
			}
			if err := ca.Revoke(dir, a.Now()); err != nil { // nobody yet
				return err
			}
			fmt.Fprintf(a.Stdout, "%s is for everybody, %s for nobody: it signs until %s\n",
				filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), ca.Cert.NotAfter.Format(time.DateOnly))
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", "ulisse-ca", "keep the authority in this `folder`")
	f.StringVar(&r.Name, "name", "ulisse authority", "`name` of the authority, for people")
	f.IntVar(&r.Days, "days", 3650, "days until the authority ends")
	f.StringSliceVar(&r.Permit, "permit", nil, "the only `domains` (with all below them) and networks (10.0.0.0/8) to sign for")
	return c
}

func (a *App) certsIssue() *cobra.Command {
	var r certs.Request
	var dir, out, role, name string
	var ips []string
	var replace, shared bool
	c := &cobra.Command{
		Use:   "issue --role ROLE --name NAME",
		Short: "Sign a certificate",
		Long: `Sign a certificate, with a new key, as NAME.crt and NAME.key. Those of
coordinators and workers need every name and address at which others dial them
(--advertise, --raft-advertise, --peers, and localhost or 127.0.0.1 for those on
the same machine); without any a worker's is good wherever the worker is. A worker
has the name of its certificate, unless several share one (--shared). To renew one
give --replace: the processes notice.`,
		Example: `  ulisse certs issue --dir ca --role worker --name w1 --host w1.lab --ip 10.0.0.9`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if name == "" {
				return badInput(fmt.Errorf("--name is missing: whose certificate shall it be?"))
			}
			if r.Peer, err = identity.NewPeer(role, name); err != nil {
				return badInput(err)
			}
			if shared {
				r.Peer.Name = ""
			}
			ca, err := certs.Open(dir)
			if err != nil {
				return badInput(err)
			}
			r.From, r.Hosts = a.Now(), append(r.Hosts, ips...)
			p, err := ca.Issue(r)
			if err != nil {
				return badInput(err)
			}
			out = cmp.Or(out, dir)
			if err := p.Save(out, name, replace); err != nil {
				return badInput(err)
			}
			fmt.Fprintf(a.Stdout, "%s and %s are those of %s until %s\n", filepath.Join(out, name+".crt"), filepath.Join(out, name+".key"),
				r.Peer, r.From.AddDate(0, 0, r.Days).Format(time.DateOnly))
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", "ulisse-ca", "`folder` of the authority")
	f.StringVar(&out, "out", "", "write into this `folder` (default: the authority's)")
	f.StringVar(&role, "role", "", "coordinator, worker or client")
	f.StringVar(&name, "name", "", "`name` of the process or user")
	f.StringArrayVar(&r.Hosts, "host", nil, "`name` or address at which others dial the process (again for more)")
	f.StringArrayVar(&ips, "ip", nil, "the same as --host")
	f.BoolVar(&shared, "shared", false, "for several processes: --name is that of the files alone")
	f.IntVar(&r.Days, "days", 90, "days until the certificate ends")
	f.BoolVar(&replace, "replace", false, "replace an older certificate of the name")
	c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]cobra.Completion{"coordinator", "worker", "client"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *App) certsP12() *cobra.Command {
	var dir, out, name, passwordFile string
	var legacy, replace bool
	c := &cobra.Command{
		Use:   "p12 --name NAME",
		Short: "Put a certificate into a file that browsers import",
		Long: `Put NAME.crt, NAME.key and the authority's certificate into NAME.p12 (PKCS #12),
which browsers and systems import. A new password locks it and is printed, once,
unless you give one in a file. Give file and password to whom they are for on two
ways: who has both is that user.`,
		Example: `  ulisse certs issue --dir ca --role client --name ada
  ulisse certs p12 --dir ca --name ada`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if name == "" {
				return badInput(fmt.Errorf("--name is missing: whose certificate shall it be?"))
			}
			p, err := certs.LoadPair(dir, name)
			if err != nil {
				return badInput(fmt.Errorf("%w: make them first with 'ulisse certs issue --role client --name %s'", err, name))
			}
			authorities, err := readCertificates(filepath.Join(dir, "ca.crt"))
			if err != nil {
				return badInput(err)
			}
			password, told, err := a.password(passwordFile)
			if err != nil {
				return badInput(err)
			}
			bundle, err := p.Bundle(authorities, password, legacy)
			if err != nil {
				return badInput(fmt.Errorf("%s.crt and %s.key: %w", name, name, err))
			}
			out = cmp.Or(out, filepath.Join(dir, name+".p12"))
			write := atomicfile.Create
			if replace {
				write = atomicfile.WriteBytes
			}
			if err := write(out, 0o600, bundle); errors.Is(err, fs.ErrExist) {
				return badInput(fmt.Errorf("%s is there already and is not overwritten: give --replace", out))
			} else if err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "%s is what browsers import.%s\n", out, told)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", "ulisse-ca", "`folder` of the certificate and its key, and of ca.crt")
	f.StringVar(&name, "name", "", "`name` that was given to 'certs issue'")
	f.StringVarP(&out, "out", "o", "", "write this `file` (default: NAME.p12 in the folder)")
	f.StringVar(&passwordFile, "password-file", "", "take the password from this `file` (- for standard input) and print none")
	f.BoolVar(&legacy, "legacy", false, "for old programs, such as macOS before 15: lock it by algorithms that are weak today")
	f.BoolVar(&replace, "replace", false, "replace an older file")
	return c
}

// password returns the first line of a file or, if none is named, a new password with the words that tell it.
func (a *App) password(file string) (password, told string, err error) {
	var text []byte
	switch file {
	case "":
		password = rand.Text()[:passwordLength]
		return password, " Its password, printed this once: " + password, nil
	case "-":
		text, err = io.ReadAll(io.LimitReader(a.Stdin, 1<<16))
	default:
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", "", fmt.Errorf("--password-file: %w", err)
	}
	password, _, _ = strings.Cut(string(text), "\n")
	if password = strings.TrimSuffix(password, "\r"); password == "" {
		return "", "", errors.New("--password-file: its first line is empty: without a password everybody could use the key")
	}
	return password, "", nil
}

// passwordLength is that of new passwords, of five bits a letter.
const passwordLength = 20

// certView is a certificate as --json prints it.
type certView struct {
	File      string    `json:"file"`
	Role      string    `json:"role"` // coordinator, worker, client, authority; empty: none of these
	Name      string    `json:"name"`
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Hosts     []string  `json:"hosts"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	SHA256    string    `json:"sha256"`
}

func newCertView(file string, c *x509.Certificate) certView {
	sum := sha256.Sum256(c.Raw)
	v := certView{File: file, Subject: c.Subject.String(), Issuer: c.Issuer.String(), Hosts: some(c.DNSNames),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, SHA256: hex.EncodeToString(sum[:])}
	for _, ip := range c.IPAddresses {
		v.Hosts = append(v.Hosts, ip.String())
	}
	if p, err := identity.Of(c); err == nil {
		v.Role, v.Name = string(p.Role), p.Name
	} else if c.IsCA {
		v.Role, v.Name = "authority", c.Subject.CommonName
	}
	return v
}

func (a *App) certsRevoke() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "revoke FILE...",
		Short: "Add certificates to the authority's list of those that are revoked",
		Long: `Add the certificates in files to ca.crl in the authority's folder. Give that list to
all processes as --tls-crl (and to clients, as $ULISSE_TLS_CRL): whoever shows a
certificate that is on it is refused, and connections that are open are ended within
seconds after the file has changed.`,
		Example: `  ulisse certs revoke --dir ca ca/w1.crt`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ca, err := certs.Open(dir)
			if err != nil {
				return badInput(err)
			}
			var revoked []*x509.Certificate
			for _, file := range args {
				found, err := readCertificates(file)
				if err != nil {
					return badInput(err)
				}
				revoked = append(revoked, found[0]) // others are of authorities in between
			}
			if err := ca.Revoke(dir, a.Now(), revoked...); err != nil {
				return badInput(err)
			}
			fmt.Fprintf(a.Stdout, "%s has them: give it to all processes as --tls-crl\n", certs.ListPath(dir))
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "ulisse-ca", "`folder` of the authority")
	return c
}

// readCertificates returns the certificates of a file, which holds one at least.
func readCertificates(file string) (all []*x509.Certificate, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for b, rest := pem.Decode(text); b != nil; b, rest = pem.Decode(rest) {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return all, nil
}

func (a *App) certsShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show FILE...",
		Short: "Show whose certificates files hold, and until when",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			views := []certView{}
			for _, file := range args {
				all, err := readCertificates(file)
				if err != nil {
					return badInput(err)
				}
				for _, c := range all {
					views = append(views, newCertView(file, c))
				}
			}
			if asJSON {
				return a.printJSON(views)
			}
			var rows [][]string
			for _, v := range views {
				state := fmt.Sprintf("%d days", int(v.NotAfter.Sub(a.Now()).Hours()/24))
				if v.NotAfter.Before(a.Now()) {
					state = "expired"
				}
				rows = append(rows, []string{v.File, v.Role, v.Name, strings.Join(v.Hosts, ","), v.NotAfter.Format(time.DateOnly), state, v.SHA256[:16]})
			}
			return a.table("FILE ROLE NAME HOSTS UNTIL LEFT SHA256", rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
