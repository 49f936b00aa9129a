package tlsconf_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// endless sends chunks for as long as the client takes them.
type endless struct{ pb.UnimplementedDataServer }

func (endless) Download(r *pb.DownloadRequest, s grpc.ServerStreamingServer[pb.DownloadChunk]) error {
	chunk := &pb.DownloadChunk{Data: make([]byte, 512<<10)}
	for range r.Offset {
		if err := s.Send(chunk); err != nil {
			return err
		}
	}
	return nil
}

func serveEndless(b *testing.B, src *tlsconf.Source) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s, _ := rpc.NewServer(src.Credentials(identity.Worker), func(s *grpc.Server) { pb.RegisterDataServer(s, endless{}) })
	go s.Serve(l)
	b.Cleanup(s.Stop)
	return l.Addr().String()
}

func each(b *testing.B, f func(b *testing.B, server, client *tlsconf.Source)) {
	ca := certstest.New(b)
	for _, secure := range []bool{false, true} {
		var server, client *tlsconf.Source
		if secure {
			server, client = ca.Source("worker", "a"), ca.Source("worker", "b")
		}
		b.Run(fmt.Sprintf("tls=%v", secure), func(b *testing.B) {
			before := cpu(b)
			f(b, server, client)
			b.ReportMetric((cpu(b)-before)/float64(b.N), "cpu-us/op") // both ends; whatever else the machine does
		})
	}
}

// cpu returns the processor time that the process has used, in microseconds.
func cpu(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// A new connection to its first answer.
func BenchmarkConnect(b *testing.B) {
	each(b, func(b *testing.B, server, client *tlsconf.Source) {
		address, dial := serveEndless(b, server), rpc.Dialer(client.Credentials(identity.Worker))
		for b.Loop() {
			c, err := dial(address)
			if err != nil {
				b.Fatal(err)
			}
			s, err := pb.NewDataClient(c).Download(context.Background(), &pb.DownloadRequest{Offset: 1})
			if err == nil {
				_, err = s.Recv()
			}
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
}

// Messages of 512 KiB over one stream, as tiles and data travel.
func BenchmarkStream(b *testing.B) {
	each(b, func(b *testing.B, server, client *tlsconf.Source) {
		c, err := rpc.Dialer(client.Credentials(identity.Worker))(serveEndless(b, server))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		s, err := pb.NewDataClient(c).Download(context.Background(), &pb.DownloadRequest{Offset: int64(1) << 40})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(512 << 10)
		for b.Loop() {
			if _, err := s.Recv(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
