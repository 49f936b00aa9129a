package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// secured is a cluster with TLS: a coordinator and a worker.
type secured struct {
	ca                       *certstest.Authority
	grpc, raft, http, worker string
	c, w                     tlsconf.Files
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{ca: certstest.New(t)}
	s.c = s.ca.FilesFor("coordinator", "alone", time.Now(), 1, "127.0.0.1")
	s.w = s.ca.FilesFor("worker", "w", time.Now(), 1, "127.0.0.1")
	quiet := slog.New(slog.DiscardHandler)
	ready := make(chan struct{})
	c := Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		Grace: time.Minute, DiskReserve: 1, Logger: quiet, Security: Security{Files: s.c},
		Ready: func(grpc, raft, http string) { s.grpc, s.raft, s.http = grpc, raft, http; close(ready) }}
	start(t, c.Run)
	<-ready
	w := Worker{ID: "w", Dir: t.TempDir(), Coordinators: []string{s.grpc}, Listen: "127.0.0.1:0", Cores: 1, Logger: quiet, Security: Security{Files: s.w}}
	start(t, w.Run)
	conn := dialAs(t, s.ca.Source("client", "ada"), s.grpc, identity.Coordinator)
	eventually(t, "a worker", func() bool {
		l, err := pb.NewWorkersClient(conn).List(t.Context(), &pb.ListWorkersRequest{})
		if err != nil || len(l.Workers) == 0 || !l.Workers[0].Connected {
			return false
		}
		s.worker = l.Workers[0].Address
		return true
	})
	return s
}

func dialAs(t *testing.T, src *tlsconf.Source, address string, roles ...identity.Role) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dialer(src.Credentials(roles...))(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// caller is somebody who comes to a port.
type caller struct {
	name string
	src  *tlsconf.Source // nil: plaintext
	// What they are told at each port; empty: they are served.
	user, node, raft, tiles, data, http string
}

// Whoever comes to a port without the certificate that it asks for is refused,
// and told why.
func TestRefusals(t *testing.T) {
	s := startSecured(t)
	others := certstest.New(t)
	stranger := others.Files("worker", "stranger") // trusts us; we do not trust it
	others.Trust(true, s.ca)
	const (
		untrusted = "it does not trust the authority that signed the certificate shown to it (worker stranger,"
		expired   = "it says that the certificate shown to it (worker old,"
		plain     = "this port speaks TLS"
	)
	for _, c := range []caller{
		{name: "coordinator", src: s.ca.Source("coordinator", "b"), user: "List is for clients: the certificate shown is that of coordinator b",
			node: "is for workers: the certificate shown is that of coordinator b", tiles: "is for workers: the certificate shown is that of coordinator b", http: "that of coordinator b"},
		{name: "worker", src: s.ca.Source("worker", "x"), user: "is for clients: the certificate shown is that of worker x",
			raft: "it refuses the certificate shown to it (worker x,", http: "that of worker x"},
		{name: "client", src: s.ca.Source("client", "ada"), node: "is for workers: the certificate shown is that of client ada",
			raft: "it refuses the certificate shown to it (client ada,", tiles: "is for workers: the certificate shown is that of client ada",
			data: "is for coordinators and workers: the certificate shown is that of client ada"},
		{name: "nobody", src: certstest.Load(t, tlsconf.Files{CA: s.ca.CA()}), user: "no certificate was shown: give --tls-cert and --tls-key",
			node: "no certificate was shown", raft: "it wants to see a certificate: give --tls-cert", tiles: "no certificate was shown",
			data: "no certificate was shown", http: "no certificate was shown"},
		{name: "plaintext", user: plain, node: plain, raft: plain, tiles: plain, data: plain, http: "HTTP request to an HTTPS server"},
		{name: "stranger", src: certstest.Load(t, stranger), user: untrusted, node: untrusted, raft: untrusted, tiles: untrusted, data: untrusted,
			http: "unknown certificate authority"},
		{name: "expired", src: loadAt(t, s.ca.Expired("worker", "old"), -3, 0), user: expired, node: expired, raft: expired,
			tiles: expired, data: expired, http: "expired certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := dialAs(t, c.src, s.grpc, identity.Coordinator)
			to := dialAs(t, c.src, s.worker, identity.Worker)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			told := map[string][2]string{}
			note := func(port, want string, err error) {
				got := ""
				if err != nil {
					got = err.Error()
				}
				told[port] = [2]string{got, want}
			}
			_, err := pb.NewJobsClient(at).List(ctx, &pb.ListJobsRequest{})
			note("user's call", c.user, err)
			_, err = pb.NewWorkersClient(at).Await(ctx, &pb.AwaitRequest{Job: "none"})
			if err != nil && strings.Contains(err.Error(), "there is no such job") {
				err = nil // it was let in
			}
			note("node's call", c.node, err)
			_, err = pb.NewDataClient(to).Stat(ctx, &pb.StatRequest{Sha256: strings.Repeat("0", 64)})
			if err != nil && strings.Contains(err.Error(), "NotFound") {
				err = nil
			}
			note("data", c.data, err)
			note("tiles", c.tiles, tiles(ctx, to))
			note("raft", c.raft, raft(ctx, c.src, s.raft))
			note("http", c.http, overHTTP(c.src, s.http))
			for port, x := range told {
				if got, want := x[0], x[1]; (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: told %q, want %q", port, got, want)
				}
			}
		})
	}
}

// tiles opens a session for rows with nonsense, and returns why it was not let
// in.
func tiles(ctx context.Context, conn *grpc.ClientConn) error {
	session, err := pb.NewTilesClient(conn).Session(ctx)
	if err != nil {
		return err
	}
	session.Send(&pb.TilesRequest{})
	if _, err = session.Recv(); err != nil && strings.Contains(err.Error(), "failed to unmarshal") {
		return nil
	}
	return err
}

// raft asks for the status of a coordinator as others do.
func raft(ctx context.Context, src *tlsconf.Source, address string) error {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return src.Dial(ctx, address, hostOf(address), identity.Coordinator)
	}
	if src == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) { return net.Dial("tcp", address) }
	}
	c, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, `X{"op":"status"}`); err != nil {
		return err
	}
	var answer [4096]byte
	n, err := c.Read(answer[:])
	if err != nil {
		return err
	}
	if text := string(answer[:n]); strings.Contains(text, `"error"`) {
		return fmt.Errorf("answer: %s", text)
	}
	return nil
}

// overHTTP lists jobs as curl would.
func overHTTP(src *tlsconf.Source, address string) error {
	tr, scheme := &http.Transport{}, "http"
	if src != nil {
		scheme, tr.TLSClientConfig = "https", &tls.Config{RootCAs: x509.NewCertPool()}
		f := src.Files()
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return err
		}
		tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(text)
		if f.Cert != "" {
			c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
			if err != nil {
				return err
			}
			tr.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
		}
	}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get(scheme + "://" + address + "/v1/jobs")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", r.Status, body)
	}
	return nil
}

// Whoever dials refuses a server that is not the one that is meant.
func TestDialersRefuse(t *testing.T) {
	s := startSecured(t)
	others := certstest.New(t)
	mine := s.ca.Source("coordinator", "b")
	port := func(address string) string { return address[strings.LastIndexByte(address, ':'):] }
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := rpc.NewServer(nil, func(*grpc.Server) {})
	go server.Serve(plain)
	t.Cleanup(server.Stop)
	for _, c := range []struct {
		name, address, want string
		src                 *tlsconf.Source
		role                identity.Role
	}{
		{"another name", "localhost" + port(s.grpc), "its certificate is for 127.0.0.1 and not for localhost", mine, identity.Coordinator},
		{"another authority", s.grpc, "its certificate (coordinator alone) is signed by an authority that --tls-ca", others.Source("coordinator", "b"), identity.Coordinator},
		{"a worker for a coordinator", s.worker, "its certificate is that of worker w: one of coordinators is wanted", mine, identity.Coordinator},
		{"a coordinator for a worker", s.grpc, "its certificate is that of coordinator alone: one of workers is wanted", mine, identity.Worker},
		{"plaintext", plain.Addr().String(), "it does not speak TLS", mine, identity.Coordinator},
		{"the raft port", s.raft, "it speaks another protocol", mine, identity.Coordinator},
		{"an expired one", s.grpc, "its certificate (coordinator alone) expired on", loadAt(t, s.ca.Files("coordinator", "c"), 0, 3), identity.Coordinator},
	} {
		conn := dialAs(t, c.src, c.address, c.role)
		_, err := pb.NewJobsClient(conn).List(t.Context(), &pb.ListJobsRequest{})
		if want := fmt.Sprintf("%s %s: %s", c.role, c.address, c.want); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", c.name, err, want)
		}
		if c.role != identity.Coordinator || c.address == s.raft {
			continue
		}
		address := strings.Replace(c.address, port(s.grpc), port(s.raft), 1)
		if conn, err := c.src.Dial(t.Context(), address, hostOf(address), c.role); err == nil || !strings.Contains(err.Error(), c.want) && c.name != "a worker for a coordinator" {
			t.Errorf("%s, at the raft port: %v, want %q", c.name, err, c.want)
			if err == nil {
				conn.Close()
			}
		}
	}
}

// loadAt loads a certificate some days from now, and uses it later.
func loadAt(t *testing.T, f tlsconf.Files, ahead, then int) *tlsconf.Source {
	t.Helper()
	src, err := tlsconf.Load(f, tlsconf.Options{Now: func() time.Time { return time.Now().AddDate(0, 0, ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	ahead = then
	return src
}

// A coordinator that the others refuse says so in its log, and each problem once.
func TestPeersAreToldOf(t *testing.T) {
	s := startSecured(t)
	stranger := certstest.New(t)
	var l logBuffer
	c := Coordinator{ID: "b", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", Peers: []string{s.raft, strings.Replace(s.raft, "127.0.0.1", "localhost", 1)},
		DiskReserve: 1, Logger: slog.New(slog.NewTextHandler(&l, nil)), Security: Security{Files: stranger.Files("coordinator", "b")}}
	start(t, c.Run)
	eventually(t, "the reason", func() bool { return strings.Contains(l.String(), "is signed by an authority that --tls-ca") })

	var named logBuffer
	c.Dir, c.ID, c.Files = t.TempDir(), "c", s.ca.Files("coordinator", "c")
	c.Peers = []string{strings.Replace(s.raft, "127.0.0.1", "localhost", 1)}
	c.Logger = slog.New(slog.NewTextHandler(&named, nil))
	start(t, c.Run)
	// It is the name of --peers that counts, not the address that it stands for.
	eventually(t, "the name", func() bool {
		return strings.Contains(named.String(), "its certificate is for 127.0.0.1 and not for localhost")
	})
	time.Sleep(2 * time.Second) // a few more attempts
	if n := strings.Count(named.String(), "not for localhost"); n > 2 {
		t.Errorf("the same trouble was told %d times", n)
	}
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
