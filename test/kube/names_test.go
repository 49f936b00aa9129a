package kube

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// names is a cluster's name server, as far as headless Services go: it answers
// SERVICE.NAMESPACE.svc.cluster.local and POD.SERVICE.NAMESPACE.svc.cluster.local
// with what EndpointSlices say at the moment. All other names do not exist.
type names struct {
	p *plane

	mu   sync.Mutex
	at   time.Time
	list map[string][][4]byte
}

// Names are as old as the answers of a cluster's server may be.
const nameAge = time.Second

// serveNames answers questions until the test ends.
func (p *plane) serveNames(address string) {
	p.t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	n := &names{p: p}
	go func() {
		buf := make([]byte, 1500)
		for {
			k, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:k]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
			found, known := n.look(strings.ToLower(q.Name.String()))
			switch {
			case !known:
				m.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				for _, ip := range found {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: ip}})
				}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
}

// look returns the addresses of a name.
func (n *names) look(name string) ([][4]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > nameAge {
		if list, err := n.p.endpoints(); err == nil {
			n.list, n.at = list, time.Now()
		}
	}
	found, ok := n.list[name]
	return found, ok
}

// endpoints asks the API server for all names.
func (p *plane) endpoints() (map[string][][4]byte, error) {
	r, err := http.NewRequest(http.MethodGet, p.server+"/apis/discovery.k8s.io/v1/endpointslices", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var slices struct {
		Items []struct {
			Metadata struct {
				Namespace string
				Labels    map[string]string
			}
			Endpoints []struct {
				Addresses  []string
				Hostname   string
				Conditions struct{ Ready *bool }
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&slices); err != nil {
		return nil, err
	}
	out := map[string][][4]byte{}
	for _, s := range slices.Items {
		service := s.Metadata.Labels["kubernetes.io/service-name"] + "." + s.Metadata.Namespace + ".svc.cluster.local."
		for _, e := range s.Endpoints {
			ip := net.ParseIP(e.Addresses[0]).To4()
			if ip == nil || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue // services that publish who is not ready say that all are
			}
			out[service] = append(out[service], [4]byte(ip))
			if e.Hostname != "" {
				out[e.Hostname+"."+service] = [][4]byte{[4]byte(ip)}
			}
		}
	}
	return out, nil
}
