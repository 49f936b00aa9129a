package blobnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/blob"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestUploadIsReplicatedAndRecorded(t *testing.T) {
	c := start(t, 3, nil)
	data := random(2*blob.ChunkSize+9, 1)
	addr := blob.Address(data)
	b, err := send(c.nodes[0], data)
	if err != nil || !b.Complete || len(b.Holders) < 2 {
		t.Fatalf("%v, %v", b, err)
	}
	if e, ok := c.reg.Lookup(addr); !ok || e.Size != int64(len(data)) || len(e.Holders) < 2 {
		t.Errorf("recorded as %+v", e)
	}
	if c.holders(data) < 2 {
		t.Errorf("on %d nodes", c.holders(data))
	}
	c.reg.mu.Lock()
	c.reg.jobs[addr] = []string{"j1"}
	c.reg.mu.Unlock()
	for _, n := range c.nodes {
		st, err := n.client().Stat(context.Background(), &pb.StatRequest{Sha256: addr})
		if err != nil || !st.Complete || st.Present != int64(len(data)) || st.Stored == nil || len(st.Jobs) != 1 {
			t.Errorf("%s: %v, %v", n.id, st, err)
		}
		for _, off := range []int{0, 1, blob.ChunkSize, len(data)} { // also where it is not yet, or never was
			if got, err := read(n, addr, int64(off)); err != nil || !bytes.Equal(got, data[off:]) {
				t.Errorf("%s from %d: %d bytes, %v", n.id, off, len(got), err)
			}
		}
		list, err := n.client().List(context.Background(), &pb.ListBlobsRequest{})
		if err != nil || len(list.Blobs) != 1 || list.Blobs[0].Sha256 != addr || !list.Blobs[0].Complete {
			t.Errorf("%s: %v, %v", n.id, list, err)
		}
		if b, err := send(n, data); err != nil || !b.Complete { // once more changes nothing
			t.Errorf("%s: %v, %v", n.id, b, err)
		}
	}
	if err := func() error { _, err := read(c.nodes[0], addr, int64(len(data))+1); return err }(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := send(c.nodes[1], nil); err != nil {
		t.Errorf("an empty blob: %v", err)
	}
}

func TestResumedAtAnotherNode(t *testing.T) {
	c := start(t, 3, nil)
	data := random(2*blob.ChunkSize, 1)
	begin(t, c.nodes[0], data, 700_000)
	first := int64(-1)
	b, err := Send(context.Background(), c.nodes[1].client(), blob.Address(data), int64(len(data)), bytes.NewReader(data), func(at int64) {
		if first < 0 {
			first = at
		}
	})
	if err != nil || !b.Complete {
		t.Fatalf("%v, %v", b, err)
	}
	if want := int64(len(data)); first != min(700_000+blob.ChunkSize, want) {
		t.Errorf("after one chunk the upload was at %d: it did not go on from 700000", first)
	}
	if k := c.holders(data); k < 2 {
		t.Errorf("on %d nodes", k)
	}
}

// The node that had the first half dies: the upload starts again elsewhere.
func TestNodeDiesInUpload(t *testing.T) {
	c := start(t, 3, nil)
	data := random(3*blob.ChunkSize, 1)
	died := false
	nodes := []Source{c.nodes[0].source(), c.nodes[1].source(), c.nodes[2].source()}
	b, err := Upload(context.Background(), nodes, 3, blob.Address(data), int64(len(data)), bytes.NewReader(data), func(at int64) {
		if !died && at > blob.ChunkSize {
			died = true
			c.nodes[0].down()
		}
	})
	if err != nil || !b.Complete || !died {
		t.Fatalf("%v, %v, died %v", b, err, died)
	}
	if k := c.holders(data); k != 2 {
		t.Errorf("on %d nodes", k)
	}
}

func TestMajorityThenRejoin(t *testing.T) {
	c := start(t, 3, nil)
	c.nodes[2].down()
	data := random(blob.ChunkSize+1, 1)
	addr := blob.Address(data)
	if b, err := send(c.nodes[0], data); err != nil || !b.Complete {
		t.Fatalf("%v, %v", b, err)
	}
	c.nodes[1].down()
	more := random(1000, 2)
	if _, err := send(c.nodes[0], more); status.Code(err) != codes.Unavailable {
		t.Fatalf("a minority suffices: %v", err)
	}
	if _, ok := c.reg.Lookup(blob.Address(more)); ok {
		t.Error("recorded on a minority")
	}
	c.nodes[1].up(nil, nil)
	c.nodes[2].up(nil, nil)
	// What was sent to the minority is not sent twice, wherever it goes on.
	at, err := c.nodes[1].client().Stat(context.Background(), &pb.StatRequest{Sha256: blob.Address(more)})
	if err != nil || at.Complete || at.Present != int64(len(more)) {
		t.Errorf("%v, %v", at, err)
	}
	if b, err := send(c.nodes[1], more); err != nil || !b.Complete {
		t.Fatalf("%v, %v", b, err)
	}
	for _, n := range c.nodes {
		if err := n.svc.Reconcile(context.Background()); err != nil {
			t.Errorf("%s: %v", n.id, err)
		}
	}
	if c.holders(data) != 3 || c.holders(more) != 3 {
		t.Errorf("after the rejoin on %d and %d nodes", c.holders(data), c.holders(more))
	}
	if e, _ := c.reg.Lookup(addr); len(e.Holders) != 3 {
		t.Errorf("holders %v", e.Holders)
	}
}

// Sync runs by itself: a node that lost its disk gets all back.
func TestSyncLoop(t *testing.T) {
	c := start(t, 3, nil)
	data := random(1000, 1)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[2]
	n.down()
	if err := os.RemoveAll(n.dir); err != nil {
		t.Fatal(err)
	}
	n.up(nil, func(cfg *Config) { cfg.Interval = 5 * time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.svc.Sync(ctx); close(done) }()
	for !n.has(data) {
		n.svc.Kick()
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
}

func TestDecayIsRepaired(t *testing.T) {
	c := start(t, 3, nil)
	data := random(3*blob.ChunkSize, 1)
	addr := blob.Address(data)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[0]
	f, err := os.OpenFile(filepath.Join(n.dir, "blobs", addr), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("decayed"), blob.ChunkSize+5)
	f.Close()
	if got, err := read(n, addr, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if !n.has(data) {
		t.Error("not repaired on disk")
	}
	// With no other copy the reader is told.
	for _, o := range c.nodes[1:] {
		o.down()
	}
	f, _ = os.OpenFile(filepath.Join(n.dir, "blobs", addr), os.O_RDWR, 0)
	f.WriteAt([]byte("decayed"), blob.ChunkSize+5)
	f.Close()
	got, err := read(n, addr, 0)
	if status.Code(err) != codes.Unavailable || !bytes.Equal(got, data[:blob.ChunkSize]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestGarbage(t *testing.T) {
	c := start(t, 3, nil)
	used, unused, orphan := random(1000, 1), random(1000, 2), random(1000, 3)
	for _, d := range [][]byte{used, unused} {
		if _, err := send(c.nodes[0], d); err != nil {
			t.Fatal(err)
		}
	}
	c.reg.mu.Lock()
	c.reg.jobs[blob.Address(used)] = []string{"j1"}
	c.reg.mu.Unlock()
	begin(t, c.nodes[1], orphan, 500)
	round := func() {
		for _, n := range c.nodes {
			if err := n.svc.Reconcile(context.Background()); err != nil {
				t.Errorf("%s: %v", n.id, err)
			}
		}
	}
	c.clock.add(23 * time.Hour)
	round() // too early
	if c.holders(used) != 3 || c.holders(unused) != 3 {
		t.Errorf("before the grace period is over on %d and %d", c.holders(used), c.holders(unused))
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // a call that ends may hold a blob still
		c.clock.add(25 * time.Hour)
		round()
		if c.holders(unused) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for range 2 {
		c.clock.add(25 * time.Hour)
		round()
	}
	if c.holders(used) != 3 || c.holders(unused) != 0 {
		t.Errorf("after: on %d and %d", c.holders(used), c.holders(unused))
	}
	for _, d := range [][]byte{unused, orphan} {
		_, err := c.nodes[1].client().Stat(context.Background(), &pb.StatRequest{Sha256: blob.Address(d)})
		if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "upload it") {
			t.Error(err)
		}
		if _, err := read(c.nodes[1], blob.Address(d), 0); status.Code(err) != codes.NotFound {
			t.Error(err)
		}
	}
}

func TestNotRecordedNotComplete(t *testing.T) {
	c := start(t, 1, nil)
	data := random(100, 1)
	c.reg.fail = errors.New("no leader")
	if _, err := send(c.nodes[0], data); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	c.reg.fail = nil
	if st, err := c.nodes[0].client().Stat(context.Background(), &pb.StatRequest{Sha256: blob.Address(data)}); err != nil || st.Complete || st.Present != 100 {
		t.Errorf("%v, %v", st, err)
	}
	if b, err := send(c.nodes[0], data); err != nil || !b.Complete {
		t.Errorf("%v, %v", b, err)
	}
}

func TestBadUploads(t *testing.T) {
	c := start(t, 1, func(cfg *Config) { cfg.Idle = 200 * time.Millisecond })
	n := c.nodes[0]
	data := random(1000, 1)
	addr := blob.Address(data)
	other := random(1000, 2)
	for name, x := range map[string]struct {
		code  codes.Code
		field string
		sent  []*pb.UploadChunk
	}{
		"nothing":       {codes.InvalidArgument, "sha256", nil},
		"no address":    {codes.InvalidArgument, "sha256", []*pb.UploadChunk{{Size: 10}}},
		"path":          {codes.InvalidArgument, "sha256", []*pb.UploadChunk{{Sha256: "../../" + addr[6:], Size: 10}}},
		"negative size": {codes.InvalidArgument, "size", []*pb.UploadChunk{{Sha256: addr, Size: -1}}},
		"negative":      {codes.InvalidArgument, "offset", []*pb.UploadChunk{{Sha256: addr, Size: 10, Offset: -1}}},
		"outside":       {codes.InvalidArgument, "offset", []*pb.UploadChunk{{Sha256: addr, Size: 10, Offset: 11}}},
		"gap":           {codes.OutOfRange, "", []*pb.UploadChunk{{Sha256: addr, Size: 1000, Offset: 5}}},
		"large chunk":   {codes.InvalidArgument, "data", []*pb.UploadChunk{{Sha256: addr, Size: 3 << 20, Data: make([]byte, 1<<20+1)}}},
		"too long":      {codes.DataLoss, "", []*pb.UploadChunk{{Sha256: addr, Size: 1000, Data: data}, {Data: []byte{1}}}},
		"wrong bytes":   {codes.DataLoss, "", []*pb.UploadChunk{{Sha256: addr, Size: 1000, Data: other}}},
		"another blob":  {codes.InvalidArgument, "offset", []*pb.UploadChunk{{Sha256: addr, Size: 1000, Data: data[:1]}, {Sha256: blob.Address(other), Data: data[1:]}}},
	} {
		stream, err := n.client().Upload(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range x.sent {
			stream.Send(m)
		}
		_, err = stream.CloseAndRecv()
		if status.Code(err) != x.code {
			t.Errorf("%s: %v", name, err)
		}
		field := ""
		for _, d := range status.Convert(err).Details() {
			if br, ok := d.(*errdetails.BadRequest); ok {
				field = br.FieldViolations[0].Field
			}
		}
		if field != x.field {
			t.Errorf("%s: field %q: %v", name, field, err)
		}
		n.store.Delete(addr) // what some leave to be resumed
	}

	// A client that falls silent loses its place to the next.
	silent, err := n.client().Upload(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := silent.Send(&pb.UploadChunk{Sha256: addr, Size: 1000, Data: data[:10]}); err != nil {
		t.Fatal(err)
	}
	if err := silent.RecvMsg(new(pb.Blob)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("silent: %v", err)
	}
	if b, err := send(n, data); err != nil || !b.Complete {
		t.Errorf("%v, %v", b, err)
	}
	// A size that is not the blob's, when it is known.
	stream, _ := n.client().Upload(context.Background())
	stream.Send(&pb.UploadChunk{Sha256: addr, Size: 999})
	if _, err := stream.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("other size: %v", err)
	}
}

func TestTwoUploadsOfOneBlob(t *testing.T) {
	c := start(t, 1, func(cfg *Config) { cfg.MaxUploads = 2 })
	data := random(1000, 1)
	first, err := c.nodes[0].client().Upload(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	first.Send(&pb.UploadChunk{Sha256: blob.Address(data), Size: 1000, Data: data[:500]})
	for { // until the first has come
		if in, err := c.nodes[0].store.Stat(blob.Address(data)); err == nil && in.Present == 500 {
			break
		}
	}
	if _, err := send(c.nodes[0], data); status.Code(err) != codes.Aborted {
		t.Errorf("second: %v", err)
	}
	first.Send(&pb.UploadChunk{Data: data[500:]})
	if b, err := first.CloseAndRecv(); err != nil || !b.Complete {
		t.Errorf("first: %v, %v", b, err)
	}
}

func TestDiskFullOnTheWire(t *testing.T) {
	c := start(t, 1, nil)
	n := c.nodes[0]
	n.down()
	n.opts.Free = func(string) (int64, error) { return 100, nil }
	n.up(nil, nil)
	if _, err := send(n, random(101, 1)); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestShouldHold(t *testing.T) {
	var peers []Peer
	for i := range 9 {
		peers = append(peers, Peer{ID: string(rune('a' + i))})
		for b := range 20 {
			addr, k := blob.Address([]byte{byte(b)}), 0
			for _, p := range peers {
				if shouldHold(p.ID, addr, peers) {
					k++
				}
			}
			want := len(peers)
			if len(peers) > 5 {
				want = len(peers)/2 + 1
			}
			if k != want {
				t.Errorf("%d coordinators: %d hold the blob", len(peers), k)
			}
		}
	}
	if shouldHold("z", blob.Address(nil), peers[:3]) {
		t.Error("one that has left holds a blob")
	}
}

func BenchmarkUpload(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("coordinators=%d", n), func(b *testing.B) {
			c := start(b, n, nil)
			data := random(64<<20, 1)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				data[0]++
				if _, err := send(c.nodes[0], data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
