package blobnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/blob"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// tap is a source whose downloads are counted and can be changed.
type tap struct {
	pb.DataClient
	downloads atomic.Int64
	chunk     func(n int, m *pb.DownloadChunk) error // n from 0
}

func (t *tap) Download(ctx context.Context, req *pb.DownloadRequest, o ...grpc.CallOption) (grpc.ServerStreamingClient[pb.DownloadChunk], error) {
	t.downloads.Add(1)
	s, err := t.DataClient.Download(ctx, req, o...)
	return &tapped{s, t, 0}, err
}

type tapped struct {
	grpc.ServerStreamingClient[pb.DownloadChunk]
	t *tap
	n int
}

func (s *tapped) Recv() (*pb.DownloadChunk, error) {
	m, err := s.ServerStreamingClient.Recv()
	if err == nil && s.t.chunk != nil {
		err = s.t.chunk(s.n, m)
	}
	s.n++
	return m, err
}

func newCache(t testing.TB, budget int64, clock *clock, sources ...Source) (*Cache, *blob.Store) {
	t.Helper()
	store, err := blob.Open(t.TempDir(), blob.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	c := NewCache(store, budget, func(string) []Source { return sources })
	t.Cleanup(func() { c.Close(); store.Close() })
	return c, store
}

func (c *Cache) bytes(addr string) ([]byte, error) {
	r, err := c.Get(context.Background(), addr)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestHolderDiesInDownload(t *testing.T) {
	c := start(t, 3, nil)
	data := random(4*blob.ChunkSize, 1)
	addr := blob.Address(data)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if err := n.svc.Reconcile(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	dying := &tap{DataClient: c.nodes[0].client(), chunk: func(n int, _ *pb.DownloadChunk) error {
		if n == 2 {
			c.nodes[0].down()
			return status.Error(codes.Unavailable, "cut")
		}
		return nil
	}}
	var from int64 = -1
	second := &tap{DataClient: c.nodes[1].client()}
	second.chunk = func(n int, m *pb.DownloadChunk) error {
		if n == 0 && bytes.Equal(m.Data, data[2*blob.ChunkSize:][:len(m.Data)]) {
			from = 2 * blob.ChunkSize
		}
		return nil
	}
	cache, _ := newCache(t, 0, c.clock, Source{"a", dying}, Source{"b", second})
	if got, err := cache.bytes(addr); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if from != 2*blob.ChunkSize {
		t.Error("the second holder did not go on where the first had ended")
	}
	if second.downloads.Load() != 1 {
		t.Errorf("%d downloads", second.downloads.Load())
	}
	if got, err := cache.bytes(addr); err != nil || !bytes.Equal(got, data) || second.downloads.Load() != 1 {
		t.Errorf("again: %d bytes, %v, %d downloads", len(got), err, second.downloads.Load())
	}
}

// A source that sends wrong bytes delays, and no more; nor does it spoil what
// another goes on from.
func TestLyingSources(t *testing.T) {
	c := start(t, 1, nil)
	data := random(3*blob.ChunkSize, 1)
	addr := blob.Address(data)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	good := Source{"good", c.nodes[0].client()}
	lie := func(n int, m *pb.DownloadChunk) error { m.Data[0] ^= 1; return nil }
	long := func(n int, m *pb.DownloadChunk) error { m.Data = append(m.Data, m.Data...); return nil }
	cut := func(n int, m *pb.DownloadChunk) error {
		m.Data[0] ^= 1
		if n == 1 {
			return errors.New("cut")
		}
		return nil
	}
	for name, f := range map[string]func(int, *pb.DownloadChunk) error{"lie": lie, "long": long, "cut": cut} {
		bad := Source{name, &tap{DataClient: good.DataClient, chunk: f}}
		cache, _ := newCache(t, 0, c.clock, bad, good)
		if got, err := cache.bytes(addr); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		alone, _ := newCache(t, 0, c.clock, bad)
		if _, err := alone.bytes(addr); err == nil {
			t.Errorf("%s: believed", name)
		}
	}
}

func TestOneFetchForAll(t *testing.T) {
	c := start(t, 1, nil)
	data := random(blob.ChunkSize, 1)
	addr := blob.Address(data)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	all := make(chan struct{})
	src := &tap{DataClient: c.nodes[0].client(), chunk: func(int, *pb.DownloadChunk) error { <-all; return nil }}
	cache, _ := newCache(t, 0, c.clock, Source{"a", src})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			mine := context.Background()
			if i%2 == 0 {
				mine = ctx
			}
			r, err := cache.Get(mine, addr)
			if err == nil {
				r.Close()
			} else if i%2 == 1 || !errors.Is(err, context.Canceled) {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	for src.downloads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel() // half of the callers leave, maybe the one that began
	close(all)
	wg.Wait()
	if src.downloads.Load() > 2 { // two, if all leave before the others come
		t.Errorf("%d downloads", src.downloads.Load())
	}
}

func TestLastCallerEndsTheFetch(t *testing.T) {
	c := start(t, 1, nil)
	data := random(blob.ChunkSize, 1)
	addr := blob.Address(data)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	src := &tap{DataClient: c.nodes[0].client()}
	src.chunk = func(int, *pb.DownloadChunk) error {
		cancel()
		return status.Error(codes.Canceled, "left")
	}
	cache, store := newCache(t, 0, c.clock, Source{"a", src})
	if _, err := cache.Get(ctx, addr); !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	cache.Close() // returns: nothing is under way
	if in, _ := store.Stat(addr); in.Complete {
		t.Error("fetched for nobody")
	}
	src.chunk = nil
	if got, err := cache.bytes(addr); err != nil || !bytes.Equal(got, data) { // a newcomer begins anew
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestEviction(t *testing.T) {
	c := start(t, 1, nil)
	var addrs []string
	for i := range 4 {
		data := random(1000, uint64(i))
		if _, err := send(c.nodes[0], data); err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, blob.Address(data))
	}
	cache, store := newCache(t, 2500, c.clock, c.nodes[0].source())
	here := func() (s string) {
		for i, a := range addrs {
			if in, err := store.Stat(a); err == nil && in.Complete {
				s += string(rune('0' + i))
			}
		}
		return s
	}
	want := func(when, set string) {
		t.Helper()
		if got := here(); got != set {
			t.Errorf("%s: %s are there, want %s", when, got, set)
		}
	}
	for _, i := range []int{0, 1, 0, 2} { // 1 is the least recently used when 2 comes
		c.clock.add(time.Second)
		if _, err := cache.bytes(addrs[i]); err != nil {
			t.Fatal(err)
		}
	}
	want("least recently used", "02")
	r, err := cache.Get(context.Background(), addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	c.clock.add(time.Second)
	cache.bytes(addrs[2])
	if _, err := cache.bytes(addrs[3]); err != nil {
		t.Fatal(err)
	}
	want("0 is older but in use", "03")
	r3, err := cache.Get(context.Background(), addrs[3])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Get(context.Background(), addrs[1]); err == nil || !strings.Contains(err.Error(), "larger cache") {
		t.Errorf("all is in use: %v", err)
	}
	want("nothing in use was evicted", "03")
	r.Close()
	r3.Close()
	if _, err := cache.bytes(addrs[1]); err != nil {
		t.Error(err)
	}
	small, _ := newCache(t, 999, c.clock, c.nodes[0].source())
	if _, err := small.Get(context.Background(), addrs[0]); err == nil {
		t.Error("a blob larger than the cache was taken")
	}
}

// A worker serves what it has cached to other workers, and takes nothing.
func TestWorkerServesWorkers(t *testing.T) {
	c := start(t, 1, nil)
	data := random(blob.ChunkSize+5, 1)
	addr := blob.Address(data)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	first, store := newCache(t, 0, c.clock, c.nodes[0].source())
	if _, err := first.bytes(addr); err != nil {
		t.Fatal(err)
	}
	svc, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	pb.RegisterDataServer(srv, svc)
	go srv.Serve(lis)
	defer srv.Stop()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	worker := pb.NewDataClient(conn)
	c.nodes[0].down()
	second, store2 := newCache(t, 0, c.clock, c.nodes[0].source(), Source{"worker", worker})
	if got, err := second.bytes(addr); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	missing := random(10, 2)
	if _, err := Send(context.Background(), worker, blob.Address(missing), 10, bytes.NewReader(missing), nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("upload to a worker: %v", err)
	}
	if _, err := second.bytes(blob.Address(missing)); err == nil {
		t.Error("read what nobody has")
	}
	// A decayed copy is noticed when it is opened or read, and fetched again.
	r, err := second.Get(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	path := r.Path()
	r.Close()
	if filepath.Base(path) != addr {
		t.Error(path)
	}
	os.WriteFile(path, data[:100], 0o644)
	if got, err := second.bytes(addr); err != nil || !bytes.Equal(got, data) {
		t.Errorf("truncated copy: %d bytes, %v", len(got), err)
	}
	if in, err := store2.Stat(addr); err != nil || !in.Complete {
		t.Error(in, err)
	}
}
