package identity

import (
	"context"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// nobody is in rpc.OnBehalf if a call is passed on for nobody known; else
// ROLE/NAME is. It is believed of coordinators and of this process only.
const nobody = "-"

// LocalConn is a connection within this process, which needs no certificate.
type LocalConn struct{ net.Conn }

// Local is what gRPC knows of a LocalConn.
type Local struct{ credentials.CommonAuthInfo }

// AuthType names it.
func (Local) AuthType() string { return "local" }

// wire is who is at the other end of a connection, whomever they speak for.
type wire struct {
	peer  Peer
	local bool  // this process
	known bool  // peer is set
	err   error // why it is not, though there is a certificate
}

func onWire(ctx context.Context) wire {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return wire{}
	}
	switch a := p.AuthInfo.(type) {
	case Local:
		return wire{local: true}
	case credentials.TLSInfo:
		if len(a.State.VerifiedChains) == 0 {
			return wire{}
		}
		who, err := Of(a.State.VerifiedChains[0][0])
		return wire{peer: who, known: err == nil, err: err}
	}
	return wire{}
}

// Wire returns the holder of the verified certificate at the other end of the
// connection, whomever it speaks for; false if there is none.
func Wire(ctx context.Context) (Peer, bool) {
	w := onWire(ctx)
	return w.peer, w.known
}

// FromContext returns for whom a call is made whose context it is given: the
// holder of the verified certificate at the other end of the connection, or, if
// that is a coordinator or this process's HTTP port, whoever asked there. It is
// false if there is no certificate: over plaintext always.
func FromContext(ctx context.Context) (Peer, bool) {
	w := onWire(ctx)
	trusted := w.local || w.known && w.peer.Role == Coordinator
	if v := metadata.ValueFromIncomingContext(ctx, rpc.OnBehalf); trusted && len(v) > 0 {
		role, name, _ := strings.Cut(v[0], "/")
		p, err := NewPeer(role, name)
		return p, err == nil && len(v) == 1
	}
	return w.peer, w.known
}

// OnBehalf returns out, the context of a call that passes on the call of in.
func OnBehalf(out, in context.Context) context.Context {
	who := nobody
	if p, ok := FromContext(in); ok {
		who = string(p.Role) + "/" + p.Name
	}
	md, _ := metadata.FromOutgoingContext(out)
	md = md.Copy()
	md.Set(rpc.OnBehalf, who)
	return metadata.NewOutgoingContext(out, md)
}

// httpKey is where HTTP leaves the holder of a request's certificate.
type httpKey struct{}

// HTTP lets requests carry who sent them, for calls over a connection that is
// made with DialOptions.
func HTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			if p, err := Of(r.TLS.VerifiedChains[0][0]); err == nil {
				r = r.WithContext(context.WithValue(r.Context(), httpKey{}, p))
			}
		}
		h.ServeHTTP(w, r)
	})
}

// As lets calls over a connection that is made with DialOptions be made for a
// peer, not for the sender of a request.
func As(ctx context.Context, p Peer) context.Context { return context.WithValue(ctx, httpKey{}, p) }

// onBehalf returns the metadata of a call that the sender of a request makes,
// besides others.
func onBehalf(ctx context.Context, md metadata.MD) metadata.MD {
	who := nobody
	if p, ok := ctx.Value(httpKey{}).(Peer); ok {
		who = string(p.Role) + "/" + p.Name
	}
	md = md.Copy()
	md.Set(rpc.OnBehalf, who) // nothing that came as a header
	return md
}

// Incoming returns the context of a call of the sender of a request as the server
// of a connection made with DialOptions sees it. ctx is what such a call would be
// made with.
func Incoming(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = peer.NewContext(ctx, &peer.Peer{AuthInfo: Local{}})
	return metadata.NewIncomingContext(ctx, onBehalf(ctx, md))
}

// DialOptions are those of a connection within this process over which requests
// of HTTP become calls: each is made for whoever sent the request.
func DialOptions() []grpc.DialOption {
	behalf := func(ctx context.Context) context.Context {
		md, _ := metadata.FromOutgoingContext(ctx)
		return metadata.NewOutgoingContext(ctx, onBehalf(ctx, md))
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return call(behalf(ctx), method, req, reply, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(behalf(ctx), d, cc, method, o...)
		}),
	}
}
