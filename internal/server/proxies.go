package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// proxies are networks of those who pass requests on for others, and are believed
// for whom.
type proxies []netip.Prefix

// parseProxies reads addresses and networks.
func parseProxies(list []string) (out proxies, err error) {
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if a, bad := netip.ParseAddr(s); err != nil && bad == nil {
			p, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("--http-proxies %q: give an address or a network, as in 10.0.0.0/8", s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (p proxies) has(a netip.Addr) bool {
	for _, n := range p {
		if n.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

// clients lets a request that a proxy has passed on be that of whom the proxy had
// it from: the last in X-Forwarded-For that is no proxy. What others say there is
// dropped.
func (p proxies) clients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Values("X-Forwarded-For")
		r.Header.Del("X-Forwarded-For")
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err == nil && p.has(from.Addr()) {
			if a, ok := p.client(strings.Split(strings.Join(said, ","), ",")); ok {
				r.RemoteAddr = net.JoinHostPort(a.Unmap().String(), "0")
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (p proxies) client(list []string) (client netip.Addr, ok bool) {
	for i := len(list) - 1; i >= 0; i-- {
		a, err := netip.ParseAddr(strings.TrimSpace(list[i]))
		if err != nil {
			return client, ok
		}
		if client, ok = a, true; !p.has(a) {
			return client, true
		}
	}
	return client, ok
}
