package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Whoever takes the port for browsers for that of programs is told so; it does not speak TLS.
func TestWrongPortOfAPlaintextCluster(t *testing.T) {
	ready := make(chan string, 1)
	c := Coordinator{ID: "c", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1, DiskReserve: 1,
		Logger: slog.New(slog.DiscardHandler), Ready: func(_, _, http string) { ready <- http }}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := rpc.Dialer((*tlsconf.Source)(nil).Credentials(identity.Coordinator))(<-ready)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err = pb.NewJobsClient(conn).List(ask, &pb.ListJobsRequest{})
	if err == nil || !strings.Contains(err.Error(), "give the address of the coordinator's --listen") || strings.Contains(err.Error(), "speaks TLS") {
		t.Errorf("told %v", err)
	}
}
