package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// Security is how a process protects its connections.
type Security struct {
	// Files of the process's certificate; without them everything is plaintext.
	Files tlsconf.Files
	// Insecure permits to listen in plaintext beyond this machine.
	Insecure bool
	// MaxConnections bounds the connections that each port holds at a time. Zero
	// means 4096.
	MaxConnections int

	patience patience // zero: usual
}

// reminder is how often a process says again that it is not safe.
const reminder = time.Hour

// open reads the certificate, which has to be for a role, and refuses to be
// unsafe unless told to. The Source is nil for plaintext.
func (s Security) open(role identity.Role, log *slog.Logger, addresses ...string) (*tlsconf.Source, error) {
	if err := s.Files.Check(false); err != nil {
		return nil, err
	}
	if n := s.connections(mostFiles()); n < s.connections(0) {
		log.Warn("the limit of open files is low (ulimit -n, LimitNOFILE= of systemd): ports hold fewer connections", "files", mostFiles(), "connections", n, "max_connections", s.connections(0))
	}
	if s.Files.Set() {
		src, err := tlsconf.Load(s.Files, tlsconf.Options{Role: role, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("the certificates: %w", err)
		}
		return src, nil
	}
	for _, a := range addresses {
		if !s.Insecure && a != "" && !rpc.Loopback(a) {
			return nil, fmt.Errorf("%s would be open to others in plaintext: give --tls-cert, --tls-key and --tls-ca (see 'ulisse certs --help'), "+
				"or --insecure on a network where everybody is trusted", a)
		}
	}
	return nil, nil
}

// unsafe reports whether a process without TLS listens beyond this machine.
func (s Security) unsafe(src *tlsconf.Source, addresses ...string) bool {
	if src != nil {
		return false
	}
	for _, a := range addresses {
		if a != "" && !rpc.Loopback(a) {
			return true
		}
	}
	return false
}

// watch keeps the certificates fresh, or reminds of their lack, until ctx is
// done.
func (s Security) watch(ctx context.Context, src *tlsconf.Source, unsafe bool, log *slog.Logger) {
	if src != nil {
		src.Watch(ctx)
		return
	}
	tick := time.NewTicker(reminder)
	defer tick.Stop()
	for unsafe {
		log.Warn("INSECURE: no TLS, and open beyond this machine: whoever reaches a port can read data, submit jobs and change the cluster")
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// word tells how a process is protected, in its log and its probes.
func word(src *tlsconf.Source, unsafe bool) string {
	switch {
	case src != nil:
		return "tls"
	case unsafe:
		return "insecure: plaintext beyond this machine"
	}
	return "plaintext on loopback"
}

// listen listens on an address for a bounded number of connections.
func (s Security) listen(address string) (*door, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return newDoor(l, s.connections(mostFiles()), s.waits().stranger), nil
}

// connections returns how many a port holds where the process may have so many files and connections
// open, 0 for no bound: a quarter at most, so that three ports leave some for files.
func (s Security) connections(files int) int {
	most := s.MaxConnections
	if most <= 0 {
		most = 4096
	}
	if files > 0 {
		most = min(most, max(files/4, 8))
	}
	return most
}

// ways are the ways of calls into a server: through a door, by a gate if there is
// TLS, past a guard if there is one.
type ways struct {
	door  *door
	gate  *identity.Gate
	guard *auth.Guard
	// trusting: nobody is asked who they are, and nodes are not known from users.
	trusting bool
}

// options returns what a server needs to let calls in that way, and then through
// further interceptors.
func (w ways) options(waits patience, unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) []grpc.ServerOption {
	if w.guard != nil {
		unary = append([]grpc.UnaryServerInterceptor{w.guard.Unary}, unary...)
		stream = append([]grpc.StreamServerInterceptor{w.guard.Stream}, stream...)
	}
	if w.gate != nil {
		unary = append([]grpc.UnaryServerInterceptor{w.gate.Unary}, unary...)
		stream = append([]grpc.StreamServerInterceptor{w.gate.Stream}, stream...)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...),
		grpc.ConnectionTimeout(waits.handshake), grpc.InTapHandle(w.tap), grpc.StatsHandler(tags{w.door})}
}

// tap looks at a call's headers, before its message is read: who is not known
// gets no further.
func (w ways) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := connOf(ctx)
	if c == nil {
		return ctx, nil // within this process
	}
	end, ok := c.begin()
	if !ok {
		c.refuse()
		return ctx, status.Errorf(codes.ResourceExhausted, "%d calls are under way of somebody who has not said who they are", strangerCalls)
	}
	if rpc.Public(info.FullMethodName) {
		context.AfterFunc(ctx, end)
		return ctx, nil
	}
	defer end()
	whose := node
	err := w.atGate(ctx, info.FullMethodName)
	if err == nil && w.guard != nil {
		var id *auth.Identity
		ctx, id, err = w.guard.Tap(ctx, info.FullMethodName)
		if !id.IsNode() && !w.trusting {
			whose = user
		}
	}
	if err != nil {
		c.refuse()
		return ctx, err
	}
	if err := c.knows(whose); err != nil {
		return ctx, status.Error(codes.Unavailable, err.Error())
	}
	return ctx, nil
}

// atGate returns why the gate refuses a call of somebody without a certificate:
// to others it is said later.
func (w ways) atGate(ctx context.Context, method string) error {
	if w.gate == nil {
		return nil
	}
	if _, ok := identity.Wire(ctx); ok {
		return nil
	}
	return w.gate.Check(ctx, method)
}

// within is a listener within this process.
type within struct{ *bufconn.Listener }

func newWithin() within { return within{bufconn.Listen(256 << 10)} }

// Accept marks the connection as one that needs no certificate.
func (l within) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return identity.LocalConn{Conn: c}, nil
}

// dial returns a connection to the server that serves the listener, for calls on
// behalf of those who send requests of HTTP.
func (l within) dial() (*grpc.ClientConn, error) {
	opts := append(identity.DialOptions(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	return rpc.Dialer(nil, opts...)("passthrough:///this-process")
}

// openHTTP reads the certificate of the HTTP port, that of the others unless
// another is given.
func (c Coordinator) openHTTP(src *tlsconf.Source) (*tlsconf.Source, error) {
	f := c.HTTPFiles
	if !f.Set() {
		return src, nil
	}
	if src == nil {
		return nil, errors.New("--http-cert needs --tls-cert, --tls-key and --tls-ca for the other ports")
	}
	if f.CA = c.Files.CA; f.Cert == "" || f.Key == "" {
		return nil, errors.New("--http-cert and --http-key belong together: give both")
	}
	out, err := tlsconf.Load(f, tlsconf.Options{Foreign: true, Logger: c.Logger})
	if err != nil {
		return nil, fmt.Errorf("the certificate for HTTP: %w", err)
	}
	return out, nil
}

// secureRaft lets a listener take other coordinators only.
func secureRaft(src *tlsconf.Source, l *door) net.Listener {
	if src == nil {
		l.trusting = true
		return l
	}
	return src.Listen(l, cluster.Refusal, identity.Coordinator)
}

// dialRaft connects to other coordinators; nil is plaintext.
func dialRaft(src *tlsconf.Source) func(context.Context, string) (net.Conn, error) {
	if src == nil {
		return nil
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return src.Dial(ctx, address, cluster.Host(ctx, address), identity.Coordinator)
	}
}
