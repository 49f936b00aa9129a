package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/identity"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		uris []string
		want identity.Peer
		err  string
	}{
		{[]string{"ulisse://worker/w1"}, identity.Peer{Role: identity.Worker, Name: "w1"}, ""},
		{[]string{"ulisse://coordinator"}, identity.Peer{Role: identity.Coordinator}, ""},
		{[]string{"spiffe://x/y", "ulisse://client/ada@lab.org"}, identity.Peer{Role: identity.Client, Name: "ada@lab.org"}, ""},
		{nil, identity.Peer{}, "names no role"},
		{[]string{"spiffe://x/worker"}, identity.Peer{}, "names no role"},
		{[]string{"ulisse://worker/w1", "ulisse://coordinator/w1"}, identity.Peer{}, "two roles"},
		{[]string{"ulisse://boss/w1"}, identity.Peer{}, "no role"},
		{[]string{"ulisse://worker/a/b"}, identity.Peer{}, "the name"},
		{[]string{"ulisse://worker/a b"}, identity.Peer{}, "the name"},
	} {
		cert := &x509.Certificate{}
		for _, s := range c.uris {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, u)
		}
		got, err := identity.Of(cert)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || err == nil && got != c.want {
			t.Errorf("%v: %v, %v; want %v, %q", c.uris, got, err, c.want, c.err)
		}
	}
}

// as is the context of a call by the holder of a certificate with metadata.
func as(info credentials.AuthInfo, kv ...string) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{AuthInfo: info})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(kv...))
}

func holder(role identity.Role, name string) credentials.AuthInfo {
	c := &x509.Certificate{URIs: []*url.URL{identity.Peer{Role: role, Name: name}.URI()}}
	return credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}}
}

// A call is made for the holder of the certificate, and for somebody else only
// if a coordinator or this process says so.
func TestFromContext(t *testing.T) {
	const key = "ulisse-on-behalf"
	unverified := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{{Scheme: "ulisse", Host: "coordinator"}}}}}}
	for name, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"nothing known":           {context.Background(), ""},
		"a client":                {as(holder("client", "ada")), "client ada"},
		"a client's claim":        {as(holder("client", "ada"), key, "coordinator/a"), "client ada"},
		"a worker's claim":        {as(holder("worker", "w"), key, "coordinator/a"), "worker w"},
		"a stranger's claim":      {as(credentials.TLSInfo{}, key, "coordinator/a"), ""},
		"an unverified one":       {as(unverified), ""},
		"a coordinator":           {as(holder("coordinator", "a")), "coordinator a"},
		"a coordinator's word":    {as(holder("coordinator", "a"), key, "worker/w"), "worker w"},
		"for nobody":              {as(holder("coordinator", "a"), key, "-"), ""},
		"two words":               {as(holder("coordinator", "a"), key, "client/a", key, "client/b"), ""},
		"a bad word":              {as(holder("coordinator", "a"), key, "root/x"), ""},
		"this process":            {as(identity.Local{}), ""},
		"this process's word":     {as(identity.Local{}, key, "client/ada"), "client ada"},
		"a holder without a name": {as(holder("worker", "")), "worker"},
	} {
		got := ""
		if p, ok := identity.FromContext(c.ctx); ok {
			got = p.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		// Passed on by a coordinator it is the same.
		md, _ := metadata.FromOutgoingContext(identity.OnBehalf(context.Background(), c.ctx))
		there := peer.NewContext(metadata.NewIncomingContext(context.Background(), md), &peer.Peer{AuthInfo: holder("coordinator", "z")})
		got = ""
		if p, ok := identity.FromContext(there); ok {
			got = p.String()
		}
		if got != c.want {
			t.Errorf("%s, passed on: %q, want %q", name, got, c.want)
		}
	}
}

func TestGate(t *testing.T) {
	const list, await, session, stat = "/ulisse.v1.Jobs/List", "/ulisse.v1.Workers/Await", "/ulisse.v1.Tiles/Session", "/ulisse.v1.Data/Stat"
	client, worker, coordinator := holder("client", "ada"), holder("worker", "w"), holder("coordinator", "a")
	for _, c := range []struct {
		gate   identity.Gate
		ctx    context.Context
		method string
		want   codes.Code
	}{
		{identity.Gate{}, as(client), list, codes.OK},
		{identity.Gate{}, as(client), await, codes.PermissionDenied},
		{identity.Gate{}, as(worker), await, codes.OK},
		{identity.Gate{}, as(worker), list, codes.PermissionDenied},
		{identity.Gate{}, as(coordinator), list, codes.PermissionDenied},
		{identity.Gate{}, as(coordinator, "ulisse-on-behalf", "worker/w", "ulisse-forwarded", "1"), await, codes.OK},
		{identity.Gate{}, as(coordinator, "ulisse-on-behalf", "-", "ulisse-forwarded", "1"), list, codes.Unauthenticated},
		{identity.Gate{Anonymous: true}, as(coordinator, "ulisse-on-behalf", "-", "ulisse-forwarded", "1"), list, codes.OK},
		{identity.Gate{}, as(credentials.TLSInfo{}), list, codes.Unauthenticated},
		{identity.Gate{Anonymous: true}, as(credentials.TLSInfo{}), list, codes.OK},
		{identity.Gate{Anonymous: true}, as(credentials.TLSInfo{}), await, codes.Unauthenticated},
		{identity.Gate{Anonymous: true}, as(identity.Local{}), list, codes.OK},
		{identity.Gate{}, as(identity.Local{}, "ulisse-forwarded", "1"), list, codes.PermissionDenied},
		{identity.Gate{}, as(client, "ulisse-node-only", "1"), stat, codes.PermissionDenied},
		{identity.Gate{}, as(worker, "ulisse-node-only", "1"), stat, codes.OK},
		{identity.Gate{}, as(worker, "ulisse-forwarded", "1"), await, codes.PermissionDenied},
		{identity.Gate{NodesOnly: true}, as(client), stat, codes.PermissionDenied},
		{identity.Gate{NodesOnly: true, Anonymous: true}, as(credentials.TLSInfo{}), stat, codes.Unauthenticated},
		{identity.Gate{NodesOnly: true}, as(worker), session, codes.OK},
		{identity.Gate{}, as(client), session, codes.PermissionDenied},
		{identity.Gate{}, as(coordinator), "/ulisse.v1.New/Method", codes.PermissionDenied},
		{identity.Gate{}, as(credentials.TLSInfo{}), "/grpc.health.v1.Health/Check", codes.OK},
		{identity.Gate{}, as(credentials.TLSInfo{}), "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", codes.Unauthenticated},
	} {
		if got := status.Code(c.gate.Check(c.ctx, c.method)); got != c.want {
			p, _ := identity.FromContext(c.ctx)
			t.Errorf("%+v: %s by %q: %s, want %s", c.gate, c.method, p, got, c.want)
		}
	}
}
