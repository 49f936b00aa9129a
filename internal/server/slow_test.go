package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// few is the number of connections that ports hold in these tests.
const few = 64

// hasty is a coordinator, with TLS or without, that holds few connections and
// waits for nobody.
func hasty(t *testing.T, files tlsconf.Files) (grpc, raft, http string) {
	t.Helper()
	const short = 300 * time.Millisecond
	ready := make(chan struct{})
	c := Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		Grace: time.Minute, DiskReserve: 1, Logger: slog.New(slog.DiscardHandler),
		Security: Security{Files: files, MaxConnections: few, patience: patience{handshake: short, header: short, body: short, piece: short, idle: short, stranger: 2 * time.Second}},
		Ready:    func(g, r, h string) { grpc, raft, http = g, r, h; close(ready) }}
	start(t, c.Run)
	<-ready
	return grpc, raft, http
}

// Connections that are opened and left half-way take all the places that a port
// has, for a moment: then they are closed, and others are served.
func TestSlowConnections(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls %v", secure), func(t *testing.T) {
			var files tlsconf.Files
			var mine, coordinator *tlsconf.Source
			if secure {
				ca := certstest.New(t)
				files = ca.Files("coordinator", "alone")
				mine, coordinator = ca.Source("client", "ada"), ca.Source("coordinator", "b")
			}
			grpc, at, web := hasty(t, files)
			hello := "\x16\x03\x01\x02\x00\x01\x00" // the beginning of a handshake
			for _, c := range []struct {
				name, address string
				says          []string // of a connection that goes no further
				served        func() error
			}{
				{"gRPC", grpc, []string{"", "PRI * HTTP/2.0\r\n", hello}, func() error {
					_, err := pb.NewJobsClient(dialAs(t, mine, grpc, identity.Coordinator)).List(t.Context(), &pb.ListJobsRequest{Stale: true})
					return err
				}},
				{"raft", at, []string{"", hello}, func() error { return raft(t.Context(), coordinator, at) }},
				{"HTTP", web, []string{"", "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nA: ", hello}, func() error { return overHTTP(mine, web) }},
			} {
				for _, say := range c.says {
					var open []net.Conn
					for range few {
						conn, err := net.Dial("tcp", c.address)
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close()
						io.WriteString(conn, say)
						open = append(open, conn)
					}
					eventually(t, fmt.Sprintf("%s to serve beside those that said %q", c.name, say), func() bool { return c.served() == nil })
					for _, conn := range open {
						conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
						if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("%s: a connection that said %q stays open", c.name, say)
						}
					}
				}
			}
		})
	}
}

// A body that does not come and an answer that is not taken end their
// connections, over HTTP/1.1 and HTTP/2.
func TestSlowBodies(t *testing.T) {
	_, _, plain := hasty(t, tlsconf.Files{})
	c, err := net.Dial("tcp", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{\"spec\": \"")
	c.SetReadDeadline(time.Now().Add(3 * time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(text), "did not come within") {
		t.Errorf("a body that never comes: %s %s", resp.Status, text)
	}

	// Who is refused is told so at once, whatever becomes of the body.
	for name, head := range map[string]string{"another's name": "Host: x", "another site": "Host: localhost\r\nOrigin: https://evil.example"} {
		c, err := net.Dial("tcp", plain)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		io.WriteString(c, "POST /v1/jobs HTTP/1.1\r\n"+head+"\r\nContent-Length: 1000\r\n\r\n{\"spec\": \"")
		c.SetReadDeadline(time.Now().Add(3 * time.Minute))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v after %v", name, err, time.Since(began))
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}

	ca := certstest.New(t)
	src := ca.Source("coordinator", "c")
	for _, proto := range []string{"http/1.1", "h2"} {
		ended := make(chan error, 1)
		endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			piece := make([]byte, 1<<16)
			for {
				if _, err := w.Write(piece); err != nil {
					ended <- err
					return
				}
			}
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := usual
		p.piece = 300 * time.Millisecond
		s := newHTTP(endless, src, p, slog.New(slog.DiscardHandler))
		go serveHTTP(s, l)
		t.Cleanup(func() { s.Close() })
		ctx, cancel := context.WithCancel(t.Context())
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}, ForceAttemptHTTP2: proto == "h2"}
		r, err := http.NewRequestWithContext(ctx, "GET", "https://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r) // and never read the body
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("HTTP/%d", resp.ProtoMajor); (got == "HTTP/2") != (proto == "h2") {
			t.Errorf("%s: spoke %s", proto, got)
		}
		select {
		case <-ended:
		case <-time.After(3 * time.Minute):
			t.Errorf("%s: an answer that nobody reads goes on forever", proto)
		}
		cancel()
		resp.Body.Close()
		tr.CloseIdleConnections()
	}
}
