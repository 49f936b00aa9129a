package rpc

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// nameServer answers every question for an IPv4 address with the one that is
// set.
type nameServer struct {
	net.PacketConn
	address atomic.Value // [4]byte
}

func (s *nameServer) serve() {
	buf := make([]byte, 512)
	for {
		n, from, err := s.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Additionals = true, nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
				Body: &dnsmessage.AResource{A: s.address.Load().([4]byte)}}}
		}
		out, err := m.Pack()
		if err == nil {
			_, _ = s.WriteTo(out, from)
		}
	}
}

// TestNameIsLookedUpAgain: a pod that is replaced keeps its name and gets
// another address. Whoever connects to it looks the name up each time; gRPC's
// own resolver would keep the old address for half a minute.
func TestNameIsLookedUpAgain(t *testing.T) {
	second, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this system has one loopback address only")
	}
	_, port, _ := strings.Cut(second.Addr().String(), ":")
	first, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Skip("the port is taken at the other address")
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dns := &nameServer{PacketConn: udp}
	dns.address.Store([4]byte{127, 0, 0, 1})
	go dns.serve()
	defer dns.Close()
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", udp.LocalAddr().String())
	}}

	serve := func(l net.Listener) *grpc.Server {
		s, _ := NewServer(nil, func(*grpc.Server) {})
		go s.Serve(l)
		return s
	}
	old := serve(first)
	conn, err := Dialer(nil)("pod-0.pods.test.:" + port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	check := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	}
	if err := check(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	old.Stop()
	dns.address.Store([4]byte{127, 0, 0, 2})
	defer serve(second).Stop()
	if err := check(20 * time.Second); err != nil {
		t.Errorf("the old address is still tried: %v", err)
	}
}
