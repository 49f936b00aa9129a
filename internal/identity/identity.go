// Package identity says who is at the other end of a connection, and what they
// may call.
//
// A certificate names its holder by one URI, ulisse://ROLE/NAME: a coordinator, a
// worker or a client. The authority that signs certificates is what is trusted:
// whoever has its key can be anybody. The role decides what a peer may do; the
// name is for people, and for whoever maps clients to users.
//
// A coordinator passes calls on, and so does its HTTP port. They say for whom
// (delegate.go), and FromContext returns that peer, not the one who passed on.
package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Role is what a certificate's holder is in a cluster.
type Role string

// The roles.
const (
	Coordinator Role = "coordinator"
	Worker      Role = "worker"
	Client      Role = "client"
)

// Roles are all roles.
var Roles = []Role{Coordinator, Worker, Client}

// AnyHost is the host that stands in a certificate which is good wherever a
// process of the role is dialled: for processes that share one and whose
// addresses nobody knows beforehand, such as pods. A certificate without it is
// good for its own hosts alone.
func (r Role) AnyHost() string { return string(r) + ".ulisse.internal" }

// scheme is that of the URI in a certificate.
const scheme = "ulisse"

// Peer is the holder of a certificate.
type Peer struct {
	Role Role
	Name string // may be empty: a certificate that several processes share
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$`)

// NewPeer returns a peer, or why there is none of such a role and name.
func NewPeer(role, name string) (Peer, error) {
	if !slices.Contains(Roles, Role(role)) {
		return Peer{}, fmt.Errorf("there is no role %q: there are coordinator, worker and client", role)
	}
	if name != "" && !nameForm.MatchString(name) {
		return Peer{}, fmt.Errorf("the name %q: give letters, digits and . _ @ + -, 100 at most", name)
	}
	return Peer{Role(role), name}, nil
}

// String returns the role and the name, as in "worker w1".
func (p Peer) String() string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + " " + p.Name
}

// URI returns what stands in the peer's certificate.
func (p Peer) URI() *url.URL {
	u := &url.URL{Scheme: scheme, Host: string(p.Role)}
	if p.Name != "" {
		u.Path = "/" + p.Name
	}
	return u
}

// errNoRole says that a certificate is not one of a cluster's.
var errNoRole = errors.New("it names no role: it needs one URI ulisse://ROLE/NAME, as 'ulisse certs issue' makes it")

// Of returns the holder of a certificate. It does not verify the certificate.
func Of(c *x509.Certificate) (Peer, error) {
	var found *url.URL
	for _, u := range c.URIs {
		if u.Scheme != scheme {
			continue
		}
		if found != nil {
			return Peer{}, fmt.Errorf("it names two roles, %s and %s", found, u)
		}
		found = u
	}
	if found == nil {
		return Peer{}, errNoRole
	}
	return NewPeer(found.Host, strings.TrimPrefix(found.Path, "/"))
}

// list returns roles as people write them.
func list(roles []Role) string {
	var s []string
	for _, r := range roles {
		s = append(s, string(r)+"s")
	}
	if n := len(s); n > 1 {
		return strings.Join(s[:n-1], ", ") + " and " + s[n-1]
	}
	return strings.Join(s, "")
}

// Check returns an error if the holder of a certificate has none of the roles.
func Check(c *x509.Certificate, roles ...Role) error {
	p, err := Of(c)
	if err != nil {
		return &RoleError{fmt.Sprintf("its certificate (%s) is not one of the cluster's: %v", c.Subject, err)}
	}
	if !slices.Contains(roles, p.Role) {
		return &RoleError{fmt.Sprintf("its certificate is that of %s: one of %s is wanted", p, list(roles))}
	}
	return nil
}

// RoleError says that the holder of a certificate has another role than is
// wanted there.
type RoleError struct{ msg string }

// Error returns a clause whose subject is the peer.
func (e *RoleError) Error() string { return e.msg }
