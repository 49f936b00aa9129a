package blobnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/blob"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// byMetadata takes callers for what their metadata says.
type byMetadata struct{ most int64 }

func (byMetadata) Caller(ctx context.Context) (who, namespace string, err error) {
	v := metadata.ValueFromIncomingContext(ctx, "who")
	if len(v) == 0 {
		return "?", "?", nil
	}
	return v[0], v[0], nil
}

func (a byMetadata) Spaces(ctx context.Context, b Blob) []string {
	_, mine, _ := a.Caller(ctx)
	return slices.DeleteFunc(slices.Clone(b.Namespaces), func(n string) bool { return n != mine })
}

func (byMetadata) Jobs(context.Context, string) []string { return nil }

func (a byMetadata) Upload(ctx context.Context, _ string, size int64) (string, error) {
	_, mine, _ := a.Caller(ctx)
	if a.most > 0 && size > a.most {
		return "", status.Error(codes.ResourceExhausted, "no room")
	}
	return mine, nil
}

func as(who string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "who", who)
}

// give uploads a part of a blob, from an offset on, and says how large it is.
func give(n *node, who, addr string, size, offset int64, data []byte) (*pb.Blob, error) {
	s, err := n.client().Upload(as(who))
	if err != nil {
		return nil, err
	}
	_ = s.Send(&pb.UploadChunk{Sha256: addr, Size: size, Offset: offset, Data: data})
	return s.CloseAndRecv()
}

func whole(n *node, who string, data []byte) error {
	b, err := Send(as(who), n.client(), blob.Address(data), int64(len(data)), bytes.NewReader(data), nil)
	if err == nil && !b.Complete {
		err = errors.New("it is not complete")
	}
	return err
}

func fetchAs(n *node, who, addr string) (out []byte, err error) {
	s, err := n.client().Download(as(who), &pb.DownloadRequest{Sha256: addr})
	for err == nil {
		var m *pb.DownloadChunk
		if m, err = s.Recv(); err == nil {
			out = append(out, m.Data...)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return out, err
}

// Nobody gets a blob for its hash, its size, or its last bytes, wherever it lies.
func TestBlobsAreNotHadForTheirHash(t *testing.T) {
	c := start(t, 3, func(cfg *Config) { cfg.Access = byMetadata{} })
	data := random(2*blob.ChunkSize+9, 1)
	addr, size := blob.Address(data), int64(len(data))
	if err := whole(c.nodes[0], "owner", data); err != nil {
		t.Fatal(err)
	}
	for c.holders(data) < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	tail := data[size-9:]
	attempt := func(what string, n *node) {
		t.Helper()
		for how, try := range map[string]func() (*pb.Blob, error){
			"its hash":       func() (*pb.Blob, error) { return give(n, "thief", addr, size, size, nil) },
			"its end":        func() (*pb.Blob, error) { return give(n, "thief", addr, size, size-9, tail) },
			"its beginning":  func() (*pb.Blob, error) { return give(n, "thief", addr, size, 0, data[:10]) },
			"another size":   func() (*pb.Blob, error) { return give(n, "thief", addr, size+1, 0, nil) },
			"other contents": func() (*pb.Blob, error) { return give(n, "thief", addr, 10, 0, []byte("0123456789")) },
		} {
			if b, err := try(); err == nil && b.Complete {
				t.Errorf("%s: the blob is had for %s", what, how)
			}
			if got, err := fetchAs(n, "thief", addr); err == nil || len(got) > 0 {
				t.Fatalf("%s: after an upload of %s, %d bytes are read", what, how, len(got))
			}
		}
		if b, err := n.client().Stat(as("thief"), &pb.StatRequest{Sha256: addr}); err == nil && (b.Present > 10 || b.Size > 0 || b.Complete) {
			t.Errorf("%s: a stranger is told of the blob: %v", what, b)
		}
	}
	attempt("where it lies", c.nodes[1])
	if err := c.nodes[2].store.Delete(addr); err != nil { // a new disk, decay, a node that has just joined
		t.Fatal(err)
	}
	attempt("where it lacks", c.nodes[2])

	// A day later nobody refers to it, and it is forgotten; its file stays.
	c.clock.add(20 * time.Hour)
	if got, err := fetchAs(c.nodes[0], "owner", addr); err != nil || !bytes.Equal(got, data) {
		t.Fatal(len(got), err)
	}
	c.clock.add(5 * time.Hour)
	if err := c.nodes[0].svc.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, known := c.reg.Lookup(addr); known || !c.nodes[0].has(data) {
		t.Fatal("the blob is known still, or gone")
	}
	attempt("once it is forgotten", c.nodes[0])

	// Who has it gets it: the owner again, and somebody else.
	for _, who := range []string{"owner", "friend"} {
		if err := whole(c.nodes[2], who, data); err != nil {
			t.Errorf("%s, who has the blob: %v", who, err)
		}
		if got, err := fetchAs(c.nodes[1], who, addr); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s reads %d bytes, %v", who, len(got), err)
		}
	}
}

// An upload that was interrupted is its namespace's: others neither see nor finish
// nor disturb it, and its owner goes on with it elsewhere.
func TestPartialsAreTheirOwners(t *testing.T) {
	c := start(t, 3, func(cfg *Config) { cfg.Access = byMetadata{} })
	data := random(3*blob.ChunkSize, 2)
	addr, size := blob.Address(data), int64(len(data))
	if b, err := give(c.nodes[0], "owner", addr, size, 0, data[:blob.ChunkSize]); err != nil || b.Present != blob.ChunkSize {
		t.Fatal(b, err)
	}
	for i, n := range c.nodes {
		if b, err := n.client().Stat(as("thief"), &pb.StatRequest{Sha256: addr}); status.Code(err) != codes.NotFound {
			t.Errorf("node %d tells a stranger of an upload: %v, %v", i, b, err)
		}
		if b, err := n.client().Stat(as("owner"), &pb.StatRequest{Sha256: addr}); err != nil || b.Present != blob.ChunkSize {
			t.Errorf("node %d tells the owner of %v, %v", i, b, err)
		}
	}
	if b, err := give(c.nodes[0], "thief", addr, size, blob.ChunkSize, data[blob.ChunkSize:2*blob.ChunkSize]); status.Code(err) != codes.OutOfRange {
		t.Errorf("somebody else goes on with an upload: %v, %v", b, err)
	}
	if b, err := give(c.nodes[0], "thief", addr, size, 0, []byte("x")); err != nil || b.Present != 1 {
		t.Errorf("somebody else begins: %v, %v", b, err)
	}
	if b, err := give(c.nodes[1], "owner", addr, size, blob.ChunkSize, data[blob.ChunkSize:2*blob.ChunkSize]); err != nil || b.Present != 2*blob.ChunkSize {
		t.Fatalf("the owner goes on elsewhere: %v, %v", b, err)
	}
	if err := whole(c.nodes[2], "owner", data); err != nil {
		t.Fatal(err)
	}
	if got, err := fetchAs(c.nodes[0], "owner", addr); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// One caller's uploads leave room for those of others, on the disk and in number,
// and what was left half-way counts for its namespace.
func TestUploadsAreShared(t *testing.T) {
	c := start(t, 1, func(cfg *Config) { cfg.Access, cfg.MaxUploads = byMetadata{}, 8 })
	n := c.nodes[0]
	free, err := blob.DiskFree(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func(who string, seed byte, size int64) pb.Data_UploadClient {
		t.Helper()
		s, err := n.client().Upload(as(who))
		if err == nil {
			err = s.Send(&pb.UploadChunk{Sha256: blob.Address(random(10, uint64(seed))), Size: size, Data: []byte{1}})
		}
		if err != nil && !errors.Is(err, io.EOF) { // it is refused already: why, the answer says
			t.Fatal(err)
		}
		return s
	}
	refused := make(chan error, 5)
	for seed, size := range []int64{free / 2, free / 2, free / 2, 1000, 1000} {
		s := open("greedy", byte(seed), size)
		go func() {
			var b pb.Blob
			refused <- s.RecvMsg(&b)
		}()
	}
	for range 3 { // two have a place, and keep it
		if err := <-refused; status.Code(err) != codes.Unavailable {
			t.Errorf("one of five uploads of one caller ended with %v", err)
		}
	}
	data := random(2<<20, 5)
	if err := whole(n, "modest", data); err != nil {
		t.Errorf("beside two uploads of one byte that may say %d GB: %v", free/2>>30, err)
	}

	small := start(t, 1, func(cfg *Config) { cfg.Access = byMetadata{most: 1000} }).nodes[0]
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		data := random(400, uint64(10+i))
		if _, err := give(small, "a", blob.Address(data), 400, 0, data[:399]); status.Code(err) != want {
			t.Errorf("upload %d that is left half-way: %v", i, err)
		}
	}
	if _, err := give(small, "b", blob.Address(random(400, 20)), 400, 0, []byte("x")); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	again := random(400, 10) // goes on
	if err := whole(small, "a", again); err != nil {
		t.Errorf("going on with one's own: %v", err)
	}
}

// An upload that is not silent, only very slow, ends.
func TestSlowUploadEnds(t *testing.T) {
	c := start(t, 1, func(cfg *Config) { cfg.Idle = 300 * time.Millisecond })
	data := random(1000, 1)
	s, err := c.nodes[0].client().Upload(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	msg := &pb.UploadChunk{Sha256: blob.Address(data), Size: 1000, Data: data[:1]}
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s.Send(msg) != nil {
			break
		}
		msg = &pb.UploadChunk{Data: []byte{0}}
	}
	if _, err := s.CloseAndRecv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("twenty bytes a second: %v", err)
	}
}
