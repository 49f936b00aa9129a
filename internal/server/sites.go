package server

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// sites keeps pages of other sites, in the browser of somebody who reaches the
// port, from acting on it; and, where there is no certificate to say whose the
// port is, from reading from it under a name of theirs that leads here.
type sites struct {
	cross *http.CrossOriginProtection
	names map[string]bool // of a port in plaintext; nil for one with TLS
}

// newSites returns those of a port. plain says that there is no TLS; then it is
// reached under its address, localhost, this machine's name, the hosts of the
// addresses that are given, and the names.
func newSites(plain bool, addresses, names []string) *sites {
	s := &sites{cross: http.NewCrossOriginProtection()}
	if !plain {
		return s
	}
	s.names = map[string]bool{"localhost": true}
	if name, err := os.Hostname(); err == nil {
		names = append(names[:len(names):len(names)], name)
	}
	for _, a := range addresses {
		names = append(names[:len(names):len(names)], hostOf(a))
	}
	for _, n := range names {
		if n != "" {
			s.names[strings.ToLower(n)] = true
		}
	}
	return s
}

// only lets requests pass that are not another site's.
func (s *sites) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.known(r.Host) {
			unread(w)
			http.Error(w, "this port is not known under the name "+clip(r.Host)+": use its address, or tell it by --http-hosts", http.StatusForbidden)
			return
		}
		if err := s.cross.Check(r); err != nil {
			unread(w)
			http.Error(w, "a page of another site may not act here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// known reports whether a port is reached under a host.
func (s *sites) known(host string) bool {
	if s.names == nil {
		return true
	}
	name := strings.ToLower(hostOf(host))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return s.names[name]
}

// hostOf returns the host of host:port, or of a host alone.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// clip bounds a text that somebody unknown has sent.
func clip(s string) string { return s[:min(len(s), 100)] }
