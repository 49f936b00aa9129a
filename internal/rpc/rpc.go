// Package rpc makes the gRPC servers and connections of a cluster, all with the
// same limits, keepalives and credentials.
package rpc

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// MaxMessage bounds a message. Vectors and results travel in streams of smaller
// ones.
const MaxMessage = 16 << 20

// maxHeader bounds the metadata of a call, in bytes: a token of OpenID Connect is
// the largest. maxIdle is how long a connection without a call is kept: it is made
// anew when there is one.
const (
	maxHeader = 64 << 10
	maxIdle   = 2 * time.Minute
)

// A connection whose other end has been silent is sent a ping, and
// closed if there is none: a peer that was cut off is noticed within seconds.
const (
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	connectMost = 2 * time.Second // between attempts to connect
)

// orNone returns credentials, of none if c is nil.
func orNone(c credentials.TransportCredentials) credentials.TransportCredentials {
	if c == nil {
		return insecure.NewCredentials()
	}
	return c
}

// Target is what grpc.NewClient is to be given for host:port. The host is looked
// up at each connection: gRPC's own resolver would keep the address of a pod
// that was replaced for half a minute.
func Target(address string) string { return "passthrough:///" + address }

// Dialer returns a function that connects to an address, when it is first used.
// Without credentials it speaks plaintext.
func Dialer(c credentials.TransportCredentials, more ...grpc.DialOption) func(address string) (*grpc.ClientConn, error) {
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(orNone(c)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: connectMost}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithIdleTimeout(unused), // so that a Pool knows what is not used
	}, more...)
	return func(address string) (*grpc.ClientConn, error) { return grpc.NewClient(Target(address), opts...) }
}

// NewServer returns a server with the health and reflection services. register
// is called with it. Without credentials it speaks plaintext.
func NewServer(c credentials.TransportCredentials, register func(*grpc.Server), more ...grpc.ServerOption) (*grpc.Server, *health.Server) {
	opts := append([]grpc.ServerOption{
		grpc.Creds(orNone(c)),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(10_000),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: maxIdle}),
		grpc.ConnectionTimeout(10 * time.Second),
	}, more...)
	s := grpc.NewServer(opts...)
	h := health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	register(s)
	reflection.Register(s)
	return s, h
}
