package tlsconf_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// certificate reads the first certificate of a file.
func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A port is one of the three kinds that a process listens at, and how to hold a connection to it:
// ask fails once it has ended, or cannot be made.
type port struct {
	name string
	open func(t *testing.T, server, client *tlsconf.Source) (ask func() error)
}

var ports = []port{
	{"grpc", func(t *testing.T, server, client *tlsconf.Source) func() error {
		s := grpc.NewServer(grpc.Creds(server.Credentials(identity.Coordinator)))
		healthpb.RegisterHealthServer(s, health.NewServer())
		l := listenTCP(t)
		go s.Serve(l)
		t.Cleanup(s.Stop)
		c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(client.Credentials(identity.Coordinator)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		var stream grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
		return func() error { // the stream is that of the first call
			if stream == nil {
				var err error
				if stream, err = healthpb.NewHealthClient(c).Watch(context.Background(), &healthpb.HealthCheckRequest{}); err != nil {
					return err
				}
				_, err = stream.Recv()
				return err
			}
			if c.GetState() != connectivity.Ready {
				return io.EOF
			}
			return stream.Context().Err()
		}
	}},
	{"raft", func(t *testing.T, server, client *tlsconf.Source) func() error {
		l := server.Listen(listenTCP(t), func(string) []byte { return nil }, identity.Coordinator, identity.Worker)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { io.Copy(c, c); c.Close() }()
			}
		}()
		t.Cleanup(func() { l.Close() })
		var c net.Conn
		return func() (err error) {
			if c == nil {
				if c, err = client.Dial(t.Context(), l.Addr().String(), "127.0.0.1", identity.Coordinator); err != nil {
					return err
				}
				t.Cleanup(func() { c.Close() })
			}
			c.SetDeadline(time.Now().Add(3 * time.Minute))
			if _, err := c.Write([]byte{1}); err != nil {
				return err
			}
			_, err = io.ReadFull(c, make([]byte, 1))
			return err
		}
	}},
	{"http", func(t *testing.T, server, client *tlsconf.Source) func() error {
		s := &http.Server{TLSConfig: server.Server([]string{"h2", "http/1.1"}), ConnState: server.ConnState,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("ok")) })}
		l := listenTCP(t)
		go s.ServeTLS(l, "", "")
		t.Cleanup(func() { s.Close() })
		dials := 0
		pair, err := tls.LoadX509KeyPair(client.Files().Cert, client.Files().Key)
		if err != nil {
			t.Fatal(err)
		}
		tr := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, io.EOF // the first connection is the one
			}
			d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}}
			return d.DialContext(ctx, network, address)
		}}
		t.Cleanup(tr.CloseIdleConnections)
		return func() error {
			resp, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Get("https://" + l.Addr().String())
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}
	}},
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A certificate that comes to stand on the list is refused by every kind of port, and the connections
// that are open with it are ended; those of others go on.
func TestRevoked(t *testing.T) {
	ca := certstest.New(t)
	dir := filepath.Dir(ca.CA())
	list := filepath.Join(dir, "ca.crl")
	for _, p := range ports {
		t.Run(p.name, func(t *testing.T) {
			os.Remove(list)
			other := ca.Files("client", p.name+"-other")
			if err := ca.Revoke(dir, time.Now(), certificate(t, other.Cert)); err != nil {
				t.Fatal(err)
			}
			f := ca.Files("coordinator", "c")
			f.CRL = list
			server := certstest.Load(t, f)
			bad, good := ca.Files("worker", "bad"), ca.Files("worker", "good")
			badAsks, goodAsks := p.open(t, server, certstest.Load(t, bad)), p.open(t, server, certstest.Load(t, good))
			for _, ask := range []func() error{badAsks, goodAsks, badAsks} {
				if err := ask(); err != nil {
					t.Fatalf("before: %v", err)
				}
			}
			if err := ca.Revoke(dir, time.Now(), certificate(t, bad.Cert)); err != nil {
				t.Fatal(err)
			}
			if err := server.Reload(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); badAsks() == nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the connection of who is revoked goes on")
				}
			}
			if err := goodAsks(); err != nil {
				t.Errorf("another one's connection ended: %v", err)
			}
			if err := p.open(t, server, certstest.Load(t, bad))(); err == nil {
				t.Error("who is revoked comes in again")
			}
			if err := p.open(t, server, certstest.Load(t, other))(); err == nil {
				t.Error("who was revoked before comes in")
			}
			if err := p.open(t, server, certstest.Load(t, good))(); err != nil {
				t.Errorf("another one: %v", err)
			}
		})
	}
}

// Who dials refuses a server whose certificate is revoked, and says so.
func TestRevokedServer(t *testing.T) {
	ca := certstest.New(t)
	dir := filepath.Dir(ca.CA())
	f := ca.Files("coordinator", "c")
	if err := ca.Revoke(dir, time.Now(), certificate(t, f.Cert)); err != nil {
		t.Fatal(err)
	}
	w := ca.Files("worker", "w")
	w.CRL = filepath.Join(dir, "ca.crl")
	for _, p := range ports[:2] {
		err := p.open(t, certstest.Load(t, f), certstest.Load(t, w))()
		if err == nil || !strings.Contains(err.Error(), "coordinator c) is revoked") {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// Lists that are not of an authority, or not lists, are refused.
func TestBadLists(t *testing.T) {
	ca, other := certstest.New(t), certstest.New(t)
	dir, foreign := filepath.Dir(ca.CA()), filepath.Dir(other.CA())
	f := ca.Files("worker", "w")
	if err := other.Revoke(foreign, time.Now()); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(foreign, "ca.crl"): "signed by no authority", f.Cert: "holds no list", bad: "malformed crl", "/none": "no such file"} {
		g := f
		g.CRL = path
		if _, err := tlsconf.Load(g, tlsconf.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := ca.Revoke(dir, time.Now(), certificate(t, other.Files("worker", "x").Cert)); err == nil {
		t.Error("another authority's certificate is revoked")
	}
}
