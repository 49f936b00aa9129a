package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// alone is the registry of a cluster of one coordinator.
type alone struct {
	mu    sync.Mutex
	blobs map[string]blobnet.Blob
}

func (a *alone) Record(_ context.Context, b blobnet.Blob) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blobs[b.Addr] = b
	return nil
}

func (a *alone) Lookup(addr string) (blobnet.Blob, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, ok := a.blobs[addr]
	return b, ok
}

func (a *alone) Forget(context.Context, string) error { return nil }
func (a *alone) All() []blobnet.Blob                  { return nil }
func (a *alone) Jobs(string) []string                 { return nil }
func (a *alone) Peers() []blobnet.Peer                { return []blobnet.Peer{{ID: "c1"}} }

// The Data service itself takes an upload where another ended, once, and gives
// the same bytes back.
func TestRealDataService(t *testing.T) {
	ctx := context.Background()
	store, err := blob.Open(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := blobnet.New(blobnet.Config{Store: store, Self: "c1", Registry: &alone{blobs: map[string]blobnet.Blob{}},
		Dial: func(blobnet.Peer) (pb.DataClient, error) { return nil, errors.New("there is nobody else") }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := rpc.NewServer(nil, func(s *grpc.Server) { pb.RegisterDataServer(s, service) })
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-done
		service.Close()
	})

	data := bytes.Repeat([]byte("0123456789abcde\n"), 3<<16)
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cc, err := rpc.Dialer(nil)(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	up, err := pb.NewDataClient(cc).Upload(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Send(&pb.UploadChunk{Sha256: sha, Size: int64(len(data)), Data: data[:1<<20]}); err != nil {
		t.Fatal(err)
	}
	if b, err := up.CloseAndRecv(); err != nil || b.Present != 1<<20 || b.Complete {
		t.Fatal(b, err)
	}

	c := dial(t, l.Addr().String())
	first := int64(-1)
	b, err := c.UploadFile(ctx, path, func(present, _ int64) {
		if first < 0 {
			first = present
		}
	})
	if err != nil || !b.Complete || first != 1<<20 {
		t.Fatal(b, err, first)
	}
	first = -1
	if _, err := c.UploadFile(ctx, path, func(present, size int64) {
		if first < 0 && present == size {
			first = present
		}
	}); err != nil || first != int64(len(data)) {
		t.Error(err, first)
	}
	var back bytes.Buffer
	if _, err := c.Download(ctx, sha, &back); err != nil || !bytes.Equal(back.Bytes(), data) {
		t.Error(err, back.Len())
	}
}
