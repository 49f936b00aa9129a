package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
)

// Plaintext beyond loopback is refused unless it is asked for; then the log and
// the probe say so.
func TestPlaintextBeyondLoopback(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for address, local := range map[string]bool{"127.0.0.1:0": true, "[::1]:0": true, "localhost:7000": true, "127.8.9.1:0": true,
		":7000": false, "0.0.0.0:0": false, "[::]:0": false, "10.0.0.1:7000": false, "host.lab:7000": false} {
		src, err := Security{}.open(identity.Worker, quiet, "127.0.0.1:0", address)
		if (err == nil) != local || src != nil || err != nil && !(strings.Contains(err.Error(), address) && strings.Contains(err.Error(), "--insecure")) {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := (Security{Insecure: true}).open(identity.Worker, quiet, address); err != nil {
			t.Errorf("%s, insecure: %v", address, err)
		}
		unsafe := Security{Insecure: true}.unsafe(nil, "127.0.0.1:0", address)
		if unsafe == local || strings.Contains(word(nil, unsafe), "insecure") == local {
			t.Errorf("%s counts as unsafe: %v, %q", address, unsafe, word(nil, unsafe))
		}
	}
	files := certstest.New(t).Files("worker", "w")
	src, err := Security{Files: files}.open(identity.Worker, quiet, ":7000")
	if err != nil || src == nil || word(src, Security{}.unsafe(src, ":7000")) != "tls" {
		t.Errorf("with certificates: %v", err)
	}
	if _, err := (Security{Files: files}).open(identity.Coordinator, quiet, ":7000"); err == nil || !strings.Contains(err.Error(), "that of a coordinator is needed") {
		t.Errorf("with a worker's certificate for a coordinator: %v", err)
	}

	ready := make(chan string, 1)
	var l logBuffer
	c := Coordinator{ID: "open", Dir: t.TempDir(), Listen: "0.0.0.0:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1, Advertise: "127.0.0.1:1",
		DiskReserve: 1, Logger: slog.New(slog.NewTextHandler(&l, nil)), Security: Security{Insecure: true}, Ready: func(_, _, http string) { ready <- http }}
	start(t, c.Run)
	<-ready
	eventually(t, "a warning", func() bool { return strings.Contains(l.String(), "INSECURE: no TLS") })
	if !strings.Contains(l.String(), `security="insecure: plaintext beyond this machine"`) {
		t.Error("the line that says that it is ready does not say that it is open")
	}
}
