package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeState has one token and one job.
type fakeState struct {
	token *state.Token
	key   string
}

func (f *fakeState) Token(id string) (*state.Token, error) {
	if f.token == nil || f.token.ID != id {
		return nil, state.ErrToken
	}
	return f.token, nil
}

func (f *fakeState) Job(_ context.Context, id string) (namespace, owner string, err error) {
	if id != "j" {
		return "", "", state.ErrUnknownJob
	}
	return "lab", "ann", nil
}

func (f *fakeState) NodeKey() string { return f.key }

func incoming(kv ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(kv...))
}

func TestTokenText(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		text, id := NewToken()
		got, err := ParseToken(text)
		if err != nil || got != id || seen[id] || len(text) < 50 {
			t.Fatalf("%q: %q, %v", text, got, err)
		}
		seen[id] = true
		if !matches(&state.Token{Hash: Hash(text)}, text) || matches(&state.Token{Hash: Hash(text)}, text[:len(text)-1]+"_") || matches(&state.Token{}, text) {
			t.Fatal("a hash matches what it is not of, or not what it is of")
		}
	}
	text, _ := NewToken()
	for _, bad := range []string{"", "uls_", text[1:], text + "A", text[:len(text)-1], strings.ToUpper(text), strings.Replace(text, "_", "-", 1), text + "\n", " " + text} {
		if id, err := ParseToken(bad); err == nil {
			t.Errorf("%q is taken for the token %q", bad, id)
		}
	}
}

// The key that coordinators share makes a coordinator, nothing else does, and an
// empty one never.
func TestNodeKey(t *testing.T) {
	for _, c := range []struct{ key, sent, role string }{{"k", "k", "coordinator"}, {"k", "x", ""}, {"k", "", ""}, {"", "", ""}, {"", "k", ""}} {
		g := NewGuard(Config{Required: true, Source: &fakeState{key: c.key}})
		id, err := g.who(incoming(rpc.NodeKey, c.sent))
		if string(id.Node) != c.role || (err == nil) != (c.role != "") {
			t.Errorf("%+v: %+v, %v", c, id, err)
		}
	}
	// Where there are certificates, they say all.
	g := NewGuard(Config{Required: true, Source: &fakeState{key: "k"}, Certificates: true})
	if id, err := g.who(incoming(rpc.NodeKey, "k")); err == nil || id.Node != "" {
		t.Errorf("a key over TLS: %+v, %v", id, err)
	}
}

// holder returns the context of a call by the holder of a certificate.
func holder(role identity.Role, name string, kv ...string) context.Context {
	c := &x509.Certificate{URIs: []*url.URL{identity.Peer{Role: role, Name: name}.URI()}}
	info := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}}
	return peer.NewContext(incoming(kv...), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, AuthInfo: info})
}

// Who calls over TLS, for itself or through a coordinator, with and without
// tokens.
func TestCertificates(t *testing.T) {
	text, id := NewToken()
	s := &fakeState{token: &state.Token{ID: id, Name: "ann", Role: state.Submitter, Namespaces: []string{"lab"}, Hash: Hash(text)}}
	behalf := func(who string, more ...string) []string {
		return append([]string{rpc.Forwarded, "1", rpc.OnBehalf, who}, more...)
	}
	bearer := []string{rpc.Authorization, "Bearer " + text}
	for name, c := range map[string]struct {
		ctx          context.Context
		none, tokens string // node/name or user: who it is without and with tokens; empty: refused
	}{
		"a worker":                     {holder("worker", "w"), "worker w", "worker w"},
		"a worker, passed on":          {holder("coordinator", "c", behalf("worker/w")...), "worker w", "worker w"},
		"a coordinator":                {holder("coordinator", "c"), "coordinator c", "coordinator c"},
		"a coordinator's own, marked":  {holder("coordinator", "c", rpc.Forwarded, "1"), "coordinator c", "coordinator c"},
		"a client":                     {holder("client", "ada"), "cert:ada by ", ""},
		"a client, passed on":          {holder("coordinator", "c", behalf("client/ada")...), "cert:ada by coordinator", ""},
		"nobody, passed on":            {holder("coordinator", "c", behalf("-")...), " by coordinator", ""},
		"a client with a token":        {holder("client", "ada", bearer...), "cert:ada by ", "ann by "},
		"a token, passed on":           {holder("coordinator", "c", behalf("-", bearer...)...), " by coordinator", "ann by coordinator"},
		"a worker's lie":               {holder("worker", "w", behalf("coordinator/c")...), "worker w", "worker w"},
		"a client's lie":               {holder("client", "ada", behalf("coordinator/c")...), "cert:ada by ", ""},
		"a coordinator's key over TLS": {holder("client", "ada", rpc.NodeKey, "k"), "cert:ada by ", ""},
	} {
		for required, want := range map[bool]string{false: c.none, true: c.tokens} {
			who, err := NewGuard(Config{Required: required, Source: s, Certificates: true}).who(c.ctx)
			got := ""
			switch {
			case err != nil:
			case who.IsNode():
				got = string(who.Node) + " " + who.Name
			default:
				got = who.User + " by " + string(who.Node)
			}
			if got != want {
				t.Errorf("%s, tokens %v: %q, %v, not %q", name, required, got, err, want)
			}
		}
	}
}

// Marks that only nodes put on calls are taken off those of users.
func TestMarksAreTakenOff(t *testing.T) {
	text, id := NewToken()
	s := &fakeState{key: "k", token: &state.Token{ID: id, Name: "ann", Role: state.Viewer, Namespaces: []string{"lab"}, Hash: Hash(text)}}
	g := NewGuard(Config{Required: true, Source: s})
	for _, c := range []struct {
		more []string
		kept bool
	}{{nil, false}, {[]string{rpc.NodeKey, "wrong"}, false}, {[]string{rpc.NodeKey, "k"}, true}} {
		ctx := incoming(append([]string{"authorization", "Bearer " + text, rpc.NodeOnly, "1", rpc.Forwarded, "1", "other", "x"}, c.more...)...)
		var got context.Context
		_, err := g.Unary(ctx, &pb.ListJobsRequest{}, &grpc.UnaryServerInfo{FullMethod: pb.Jobs_List_FullMethodName}, func(ctx context.Context, _ any) (any, error) {
			got = ctx
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		kept := len(metadata.ValueFromIncomingContext(got, rpc.NodeOnly)) > 0 && len(metadata.ValueFromIncomingContext(got, rpc.Forwarded)) > 0
		if kept != c.kept || len(metadata.ValueFromIncomingContext(got, "other")) != 1 {
			t.Errorf("%v: the marks are there: %v", c.more, kept)
		}
		if who := From(got); who.User != "ann" || who.IsNode() || !who.Sees("lab") || who.Sees("other") {
			t.Errorf("%+v", who)
		}
	}
}

// A method without a rule is refused, also where nobody is asked.
func TestNoRule(t *testing.T) {
	g := NewGuard(Config{Source: &fakeState{}})
	_, err := g.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/ulisse.v1.Jobs/Invented"}, func(context.Context, any) (any, error) {
		t.Error("it was called")
		return nil, nil
	})
	if status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLimits(10, 1)
	for i := range 20 {
		if err := l.Call("a", now); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if err := l.Call("a", now); status.Code(err) != codes.ResourceExhausted || len(status.Convert(err).Details()) != 1 {
		t.Errorf("beyond the burst: %v", err)
	}
	if err := l.Call("b", now); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if err := l.Call("", now); err != nil {
		t.Errorf("a node: %v", err)
	}
	if err := l.Call("a", now.Add(100*time.Millisecond)); err != nil {
		t.Errorf("a tenth of a second later: %v", err)
	}
	end, err := l.Stream("a", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Stream("a", now); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream: %v", err)
	}
	if err := l.Call("c", now.Add(2*callerIdle)); err != nil || len(l.callers) != 2 { // a has a stream
		t.Errorf("%d callers are remembered, %v", len(l.callers), err)
	}
	end()
	if _, err := l.Stream("a", now); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

func FuzzWho(f *testing.F) {
	text, id := NewToken()
	g := NewGuard(Config{Required: true, Source: &fakeState{key: "k", token: &state.Token{ID: id, Name: "ann", Role: state.Viewer, Namespaces: []string{"lab"}, Hash: Hash(text)}}})
	f.Add("Bearer "+text, "lab", "1")
	f.Add("bearer uls_aaaaaaaaaa_", "", "")
	f.Add("Basic x", "*", "k ")
	f.Fuzz(func(t *testing.T, authorization, namespace, key string) {
		who, err := g.who(incoming("authorization", authorization, rpc.Namespace, namespace, rpc.NodeKey, key))
		if err == nil && (who.User != "ann" || !strings.HasSuffix(authorization, text)) {
			t.Errorf("%q is taken for %+v", authorization, who)
		}
		if status.Code(err) == codes.Unknown || key != "k" && who.Node != "" {
			t.Errorf("%+v, %v", who, err)
		}
	})
}
