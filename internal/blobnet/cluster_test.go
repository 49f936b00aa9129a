package blobnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ulisse-gp/ulisse/internal/blob"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func random(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(uint64(n), seed))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// registry is a Registry that all nodes of a test share.
type registry struct {
	mu    sync.Mutex
	blobs map[string]Blob
	jobs  map[string][]string
	peers []Peer
	fail  error // of Record
	clock *clock
}

func (r *registry) Record(_ context.Context, b Blob) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.blobs[b.Addr] = b
	return nil
}

func (r *registry) Tidy(_ context.Context, unused time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.clock.Now().Add(-unused)
	maps.DeleteFunc(r.blobs, func(addr string, b Blob) bool { return len(r.jobs[addr]) == 0 && !b.Stored.After(before) })
	return nil
}

func (r *registry) Lookup(addr string) (Blob, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.blobs[addr]
	return b, ok
}

func (r *registry) All() []Blob {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.blobs))
}

func (r *registry) Jobs(addr string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[addr]
}

func (r *registry) Peers() []Peer { return r.peers }

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// node is a coordinator on a real loopback port that can be stopped and started.
type node struct {
	t     testing.TB
	c     *cluster
	id    string
	dir   string
	addr  string
	opts  blob.Options
	store *blob.Store
	svc   *Service
	srv   *grpc.Server
	conn  *grpc.ClientConn // as others see it
}

type cluster struct {
	reg   *registry
	clock *clock
	nodes []*node
}

// start returns n running coordinators. edit, if not nil, changes each Config.
func start(t testing.TB, n int, edit func(*Config)) *cluster {
	c := &cluster{clock: &clock{now: time.Now()}}
	c.reg = &registry{blobs: map[string]Blob{}, jobs: map[string][]string{}, clock: c.clock}
	for i := range n {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		id := string(rune('a' + i))
		nd := &node{t: t, c: c, id: id, dir: t.TempDir(), addr: lis.Addr().String(), opts: blob.Options{Now: c.clock.Now}}
		nd.conn, err = grpc.NewClient(nd.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}, MinConnectTimeout: time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, nd)
		c.reg.peers = append(c.reg.peers, Peer{id, nd.addr})
		nd.up(lis, edit)
		t.Cleanup(func() { nd.down(); nd.conn.Close() })
	}
	return c
}

func (n *node) up(lis net.Listener, edit func(*Config)) {
	n.t.Helper()
	var err error
	if lis == nil {
		if lis, err = net.Listen("tcp", n.addr); err != nil {
			n.t.Fatal(err)
		}
	}
	if n.store, err = blob.Open(n.dir, n.opts); err != nil {
		n.t.Fatal(err)
	}
	cfg := Config{Store: n.store, Self: n.id, Registry: n.c.reg, Now: n.c.clock.Now, Dial: func(p Peer) (pb.DataClient, error) {
		for _, o := range n.c.nodes {
			if o.id == p.ID {
				return pb.NewDataClient(o.conn), nil
			}
		}
		return nil, errors.New("no such peer")
	}}
	if edit != nil {
		edit(&cfg)
	}
	if n.svc, err = New(cfg); err != nil {
		n.t.Fatal(err)
	}
	n.srv = grpc.NewServer(grpc.WaitForHandlers(true)) // their files are this test's
	pb.RegisterDataServer(n.srv, n.svc)
	srv := n.srv
	go srv.Serve(lis)
	n.conn.ResetConnectBackoff()
	for st := n.conn.GetState(); st != connectivity.Ready; st = n.conn.GetState() {
		n.conn.Connect()
		n.conn.WaitForStateChange(context.Background(), st)
	}
}

func (n *node) down() {
	if n.srv == nil {
		return
	}
	n.srv.Stop()
	for n.conn.GetState() == connectivity.Ready { // until the other end has noticed
		n.conn.WaitForStateChange(context.Background(), connectivity.Ready)
	}
	n.svc.Close()
	n.store.Close()
	n.srv = nil
}

func (n *node) client() pb.DataClient { return pb.NewDataClient(n.conn) }
func (n *node) source() Source        { return Source{n.id, n.client()} }

// has reports whether a node's disk has the whole blob, and that it is right.
func (n *node) has(data []byte) bool {
	n.t.Helper()
	r, err := n.store.Open(blob.Address(data))
	if err != nil {
		return false
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	return err == nil && bytes.Equal(got, data)
}

func (c *cluster) holders(data []byte) int {
	k := 0
	for _, n := range c.nodes {
		if n.srv != nil && n.has(data) {
			k++
		}
	}
	return k
}

func send(n *node, data []byte) (*pb.Blob, error) {
	return Send(context.Background(), n.client(), blob.Address(data), int64(len(data)), bytes.NewReader(data), nil)
}

// read downloads a blob by an unmarked call, as a client does.
func read(n *node, addr string, off int64) ([]byte, error) {
	stream, err := n.client().Download(context.Background(), &pb.DownloadRequest{Sha256: addr, Offset: off})
	if err != nil {
		return nil, err
	}
	var out []byte
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, m.Data...)
	}
}

// begin uploads the first n bytes to a node and ends the stream.
func begin(t *testing.T, to *node, data []byte, n int) {
	t.Helper()
	stream, err := to.client().Upload(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.UploadChunk{Sha256: blob.Address(data), Size: int64(len(data)), Data: data[:n]}); err != nil {
		t.Fatal(err)
	}
	b, err := stream.CloseAndRecv()
	if err != nil || b.Complete || b.Present != int64(n) {
		t.Fatalf("upload cut at %d: %v, %v", n, b, err)
	}
}
