package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sparse"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// pipe is a stream whose other end is a test: frames as bytes.
type pipe struct {
	ctx context.Context
	in  chan []byte
	mu  sync.Mutex
	out [][]byte
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) RecvMsg(m any) error {
	select {
	case b, ok := <-p.in:
		if !ok {
			return io.EOF
		}
		return codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) SendMsg(m any) error {
	b, err := codec{}.Marshal(m)
	if err != nil {
		return err
	}
	defer b.Free()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, b.Materialize())
	return nil
}

// raw returns a frame's bytes.
func raw(t testing.TB, head proto.Message, data mem.Buffer) []byte {
	b, err := codec{}.Marshal(&frame{head: head, data: data})
	if err != nil {
		t.Fatal(err)
	}
	return b.Materialize()
}

// What is sent is plain protobuf.
func TestFramesAreProtobuf(t *testing.T) {
	x := []float64{1, -2, math.Inf(1), 4e-310}
	data, crc := encode(x)
	b := raw(t, &pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: &pb.TilesBlock{Offset: 7, Crc32C: crc}}}, data)
	var m pb.TilesRequest
	if err := proto.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if m.GetBlock().GetOffset() != 7 || len(m.Data) != 32 || math.Float64frombits(binary.LittleEndian.Uint64(m.Data[8:])) != -2 {
		t.Fatalf("got %v", &m)
	}
	// It is read from any pieces.
	for cut := range b {
		f := &frame{head: &pb.TilesRequest{}}
		if err := (codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b[:cut]), mem.SliceBuffer(b[cut:])}, f); err != nil {
			t.Fatal(err)
		}
		got := make([]float64, f.numbers(8))
		if err := f.read(8, crc, one(got)); err != nil || !slices.Equal(got, x) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

// script is the beginning of a session as a driver sends it, up to a unit.
func script(t testing.TB, p *problem, kind pb.TilesKind) [][]byte {
	isa, err := cmvp.ISA()
	if err != nil {
		t.Fatal(err)
	}
	n := p.in.Len()
	var all [][]byte
	add := func(m *pb.TilesRequest) { all = append(all, raw(t, m, nil)) }
	add(&pb.TilesRequest{Request: &pb.TilesRequest_Open{Open: &pb.TilesOpen{Address: "x", Covariance: p.cov.String(), InstructionSet: isa}}})
	add(&pb.TilesRequest{Request: &pb.TilesRequest_Set{Set: &pb.TilesSet{Version: 1, Theta: p.theta, Noise: 1}}})
	m := &pb.TilesProduct{Id: 1, Version: 1, Kind: kind, Columns: 1}
	x := &Product{Kind: Double, N: n, V: p.v[:1], Factor: []float64{1}}
	switch kind {
	case pb.TilesKind_TILES_KIND_SINGLE:
		x.Kind = Single
	case pb.TilesKind_TILES_KIND_FORMS:
		x.Kind, x.U = Forms, p.u[:1]
		m.Groups, m.Group = 1, []int32{0}
	}
	add(&pb.TilesRequest{Request: &pb.TilesRequest_Product{Product: m}})
	for _, cs := range x.encoded() {
		for _, c := range cs {
			all = append(all, raw(t, &pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: &pb.TilesBlock{Offset: c.offset, Crc32C: c.crc}}}, c.data))
		}
	}
	add(&pb.TilesRequest{Request: &pb.TilesRequest_Unit{Unit: &pb.TilesUnit{Id: 1, Product: 1, Lo: 0, Hi: 1}}})
	return all
}

// factorScript is the beginning of a session of a factor of three columns: the first chunk of its rows, and
// a product with it.
func factorScript(t testing.TB, p *problem, kind pb.TilesKind) [][]byte {
	n := p.in.Len()
	all := script(t, p, pb.TilesKind_TILES_KIND_DOUBLE)[:1]
	add := func(m *pb.TilesRequest, data mem.Buffer) { all = append(all, raw(t, m, data)) }
	product := func(m *pb.TilesProduct) { add(&pb.TilesRequest{Request: &pb.TilesRequest_Product{Product: m}}, nil) }
	unit := func(id, product uint64) {
		add(&pb.TilesRequest{Request: &pb.TilesRequest_Unit{Unit: &pb.TilesUnit{Id: id, Product: product, Lo: 0, Hi: 1}}}, nil)
	}
	block := func(x []float64) {
		data, crc := encode(x)
		add(&pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: &pb.TilesBlock{Crc32C: crc}}}, data)
	}
	add(&pb.TilesRequest{Request: &pb.TilesRequest_Factor{Factor: &pb.TilesFactor{Version: 1, Rows: int64(n), Columns: 3}}}, nil)
	product(&pb.TilesProduct{Id: 1, Version: 1, Kind: pb.TilesKind_TILES_KIND_HOLD})
	tile := make([]float64, 8*256) // three columns, in a strip of eight
	for i := range 3 * 256 {
		tile[i] = float64(1 + i/256)
	}
	block(tile)
	unit(1, 1)
	product(&pb.TilesProduct{Id: 2, Version: 1, Kind: kind, Columns: 1})
	v := slices.Repeat([]float64{1}, 256) // of the first chunk
	if kind == pb.TilesKind_TILES_KIND_LOW {
		v = v[:3]
	}
	block(v)
	unit(2, 2)
	return all
}

// serveBytes runs a session over frames and returns how it ended and what it
// answered.
func serveBytes(c ServerConfig, frames [][]byte) ([][]byte, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &pipe{ctx: ctx, in: make(chan []byte, len(frames))}
	for _, f := range frames {
		p.in <- f
	}
	close(p.in)
	err := NewServer(c).serve(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out, err
}

// manyLeaves is a covariance of n different leaves.
func manyLeaves(n int) string {
	text := "a"
	for i := range n {
		text += fmt.Sprintf("*rbf(1:t%d)", i)
	}
	return text
}

func TestServerRefusesBadRequests(t *testing.T) {
	p := newProblem(kernel.RBF, 1100, 2, 1) // four points, six units
	c := ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1), MaxUnits: 2}
	good := script(t, p, pb.TilesKind_TILES_KIND_DOUBLE)
	all := len(good) - 1 // but for the unit
	if _, err := serveBytes(c, good); err != nil {
		t.Fatalf("a good session: %v", err)
	}
	isa, _ := cmvp.ISA()
	product := func(change func(m *pb.TilesProduct)) *pb.TilesRequest {
		m := &pb.TilesProduct{Id: 2, Version: 1, Kind: pb.TilesKind_TILES_KIND_FORMS, Columns: 2, Groups: 1, Group: []int32{0, 0}}
		change(m)
		return &pb.TilesRequest{Request: &pb.TilesRequest_Product{Product: m}}
	}
	set := func(noise float64, theta ...float64) *pb.TilesRequest {
		return &pb.TilesRequest{Request: &pb.TilesRequest_Set{Set: &pb.TilesSet{Version: 2, Noise: noise, Theta: theta}}}
	}
	unit := func(product uint64, lo, hi int64) *pb.TilesRequest {
		return &pb.TilesRequest{Request: &pb.TilesRequest_Unit{Unit: &pb.TilesUnit{Id: 2, Product: product, Lo: lo, Hi: hi}}}
	}
	block := func(offset uint64) *pb.TilesRequest {
		return &pb.TilesRequest{Request: &pb.TilesRequest_Block{Block: &pb.TilesBlock{Offset: offset}}}
	}
	open := func(covariance string) *pb.TilesRequest {
		return &pb.TilesRequest{Request: &pb.TilesRequest_Open{Open: &pb.TilesOpen{Address: "x", Covariance: covariance, InstructionSet: isa}}}
	}
	for _, x := range []struct {
		name  string
		after int // frames of the good session
		m     *pb.TilesRequest
		data  mem.Buffer
		want  string
	}{
		{"not opened", 0, set(1, 1), nil, "begins with one TilesOpen"},
		{"opened twice", 1, open("a*rbf(1:b)"), nil, "begins with one TilesOpen"},
		{"family", 0, open("a*sinc(1:b)"), nil, "sinc"},
		{"input", 0, open("a*rbf(1-3:b)"), nil, "an input, 1 to 2"},
		{"many leaves", 0, open(manyLeaves(65)), nil, "at most 64"},
		{"version", 0, open(""), nil, "upgrade it"},
		{"nothing", 1, &pb.TilesRequest{}, nil, "unknown kind"},
		{"parameters", 1, set(1, 1, 2, 3, 4), nil, "4 parameters, want 3"},
		{"no parameters", 1, set(1), nil, "0 parameters, want 3"},
		{"noise", 1, set(math.NaN(), 1, 1, 1), nil, "the noise is NaN"},
		{"negative", 1, set(1, 1, -1, 1), nil, "the parameter tau[1] is -1"},
		{"theta", 2, product(func(m *pb.TilesProduct) { m.Version = 9 }), nil, "for θ 9, not 1"},
		{"before theta", 1, product(func(m *pb.TilesProduct) { m.Version = 0 }), nil, "for θ 0"},
		{"columns", 2, product(func(m *pb.TilesProduct) { m.Columns = math.MaxInt32 }), nil, "at most 4096"},
		{"no columns", 2, product(func(m *pb.TilesProduct) { m.Columns = -1 }), nil, "has -1 columns"},
		{"groups", 2, product(func(m *pb.TilesProduct) { m.Groups = 3 }), nil, "in 3"},
		{"group", 2, product(func(m *pb.TilesProduct) { m.Group[1] = 1 }), nil, "in group 1 of 1"},
		{"group list", 2, product(func(m *pb.TilesProduct) { m.Group = m.Group[:1] }), nil, "has 1 groups for 2"},
		{"kind", 2, product(func(m *pb.TilesProduct) { m.Kind = 99 }), nil, "unknown kind"},
		{"stray block", 2, block(0), mem.SliceBuffer(make([]byte, 8)), "nothing asked for"},
		{"block offset", 3, block(5), mem.SliceBuffer(make([]byte, 8)), "from 5 on, which nothing asked for"},
		{"block twice", 4, block(0), mem.SliceBuffer(make([]byte, 8)), "from 0 on, which nothing asked for"},
		{"block after all", all, block(1100), mem.SliceBuffer(make([]byte, 8)), "from 1100 on, which nothing asked for"},
		{"block length", 3, block(0), mem.SliceBuffer(make([]byte, 8*257)), "[0,+257), of which 256 are wanted"},
		{"empty block", 3, block(0), mem.SliceBuffer(nil), "[0,+0)"},
		{"half a number", 3, block(0), mem.SliceBuffer(make([]byte, 12)), "too long"},
		{"block checksum", 3, block(0), mem.SliceBuffer(make([]byte, 8)), "checksum"},
		{"unit without vectors", 3, unit(1, 0, 1), nil, "have not come"},
		{"unit without some vectors", 4, unit(1, 0, 1), nil, "have not come"},
		{"unit of no product", 2, unit(1, 0, 1), nil, "which is not there"},
		{"unit of another", all, unit(7, 0, 1), nil, "which is not there"},
		{"unit beyond", all, unit(1, 6, 7), nil, "no part of"},
		{"units at once", all, unit(1, 0, 2), nil, "no part of"},
		{"unit order", all, unit(1, 1, 0), nil, "no part of"},
		{"unit sign", all, unit(1, math.MinInt64, 1), nil, "no part of"},
	} {
		_, err := serveBytes(c, append(slices.Clone(good[:x.after]), raw(t, x.m, x.data)))
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
	c.MaxHeld = 8 * 256 * 3
	good = factorScript(t, p, pb.TilesKind_TILES_KIND_TRANS)
	out, err := serveBytes(c, good)
	if err != nil || len(out) == 0 {
		t.Fatalf("a good session of a factor: %v", err)
	}
	factor := func(rows, columns int64) *pb.TilesRequest {
		return &pb.TilesRequest{Request: &pb.TilesRequest_Factor{Factor: &pb.TilesFactor{Version: 1, Rows: rows, Columns: columns}}}
	}
	hold := func(chunk int32) *pb.TilesRequest {
		return product(func(m *pb.TilesProduct) { m.Kind, m.Chunk = pb.TilesKind_TILES_KIND_HOLD, chunk })
	}
	for _, x := range []struct {
		name  string
		after int
		m     *pb.TilesRequest
		want  string
	}{
		{"rows", 1, factor(1000, 3), "1000 rows and 3 columns over 1100"},
		{"columns", 1, factor(1100, 1101), "1101 columns"},
		{"no columns", 1, factor(1100, 0), "0 columns"},
		{"chunk", 2, hold(5), "chunk 5"},
		{"chunk sign", 2, hold(-1), "chunk -1"},
		{"chunk twice", 5, hold(0), "which is there"},
		{"room", 5, hold(1), "room for 0"},
		{"product with K", 2, product(func(*pb.TilesProduct) {}), "the session is not"},
		{"theta", 6, unit(1, 0, 1), "which is not there"},
		{"chunk that is not held", 7, unit(2, 1, 2), "not held"},
		{"chunk beyond", 7, unit(2, 5, 6), "no part of"},
		{"chunks at once", 7, unit(2, 0, 2), "no part of"},
	} {
		_, err := serveBytes(c, append(slices.Clone(good[:x.after]), raw(t, x.m, nil)))
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("factor, %s: %v, want %q", x.name, err, x.want)
		}
	}
	good = script(t, p, pb.TilesKind_TILES_KIND_DOUBLE)
	for _, x := range []*pb.TilesRequest{hold(0), product(func(m *pb.TilesProduct) { m.Kind = pb.TilesKind_TILES_KIND_TRANS })} {
		if _, err := serveBytes(c, append(slices.Clone(good[:2]), raw(t, x, nil))); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a factor in a session of K: %v", err)
		}
	}
	var many [][]byte
	for range 100 {
		many = append(many, good[all])
	}
	busy := parallel.NewBudget(1)
	busy.Acquire(context.Background())
	c.Budget = busy
	if _, err := serveBytes(c, append(slices.Clone(good[:all]), many...)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("100 units at once: %v", err)
	}
}

// A session that is silent is closed; one that is not goes on.
func TestIdleSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProblem(kernel.RBF, 100, 2, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		in := make(chan []byte)
		done := make(chan error, 1)
		s := NewServer(ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1), Idle: time.Minute})
		go func() { done <- s.serve(&pipe{ctx: ctx, in: in}) }()
		for _, f := range script(t, p, pb.TilesKind_TILES_KIND_FORMS)[:3] {
			in <- f
			time.Sleep(50 * time.Second)
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("closed while in use: %v", err)
			default:
			}
		}
		began := time.Now()
		if err := <-done; status.Code(err) != codes.Unavailable || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// frames cuts fuzzed bytes into frames: a length, then that many bytes.
func frames(b []byte) [][]byte {
	var all [][]byte
	for len(b) > 2 && len(all) < 50 {
		n := min(int(binary.LittleEndian.Uint16(b)), len(b)-2)
		all = append(all, b[2:2+n])
		b = b[2+n:]
	}
	return all
}

func join(all [][]byte) []byte {
	var b bytes.Buffer
	for _, f := range all {
		binary.Write(&b, binary.LittleEndian, uint16(len(f)))
		b.Write(f)
	}
	return b.Bytes()
}

// Whatever a driver sends, the server does not panic and takes no more memory
// than it is allowed to.
func FuzzServer(f *testing.F) {
	p := newProblem(kernel.RBF, 800, 2, 1) // four points
	c := ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1), MaxBytes: 1 << 20, MaxHeld: 1 << 20}
	for _, kind := range []pb.TilesKind{pb.TilesKind_TILES_KIND_DOUBLE, pb.TilesKind_TILES_KIND_SINGLE, pb.TilesKind_TILES_KIND_FORMS} {
		all := script(f, p, kind)
		f.Add(join(all))
		f.Add(join(append(all, all[1:]...)))
		f.Add(join(append(all[:2:2], all[3:]...)))
	}
	for _, kind := range []pb.TilesKind{pb.TilesKind_TILES_KIND_TRANS, pb.TilesKind_TILES_KIND_LOW} {
		f.Add(join(factorScript(f, p, kind)))
	}
	for k := range sparse.Slopes + 1 {
		f.Add(join(passScript(f, p, k)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, _ := serveBytes(c, frames(b))
		for _, o := range out {
			if len(o) > 1<<20 {
				t.Errorf("an answer of %d bytes", len(o))
			}
		}
	})
}

// Whatever a worker answers, the driver does not panic, and a unit is only done
// when all its numbers have come.
func FuzzAnswers(f *testing.F) {
	data, crc := encode(make([]float64, 10))
	opened := raw(f, &pb.TilesResponse{Response: &pb.TilesResponse_Opened{Opened: &pb.TilesOpened{Rows: 300, Inputs: 2}}}, nil)
	answer := func(offset uint64) []byte {
		return raw(f, &pb.TilesResponse{Response: &pb.TilesResponse_Answer{Answer: &pb.TilesAnswer{
			Unit: 1, Product: 5, Version: 3, Offset: offset, Total: 20, Crc32C: crc}}}, data)
	}
	f.Add(join([][]byte{opened, answer(0), answer(10)}))
	f.Add(join([][]byte{opened, answer(10), answer(0)}))
	f.Add(join([][]byte{answer(0), opened}))
	f.Add(join([][]byte{opened, answer(0), answer(10), answer(10), {0x7a, 1, 0}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		all := frames(b)
		in := make(chan []byte, len(all))
		for _, x := range all {
			in <- x
		}
		close(in)
		s := &session{cancel: func() {}, data: Data{Rows: 300, Covariance: kernel.Single(kernel.RBF, 2, false)}, meter: &Meter{}, calls: map[uint64]*call{},
			stream: &pipe{ctx: context.Background(), in: in}}
		c := s.expect(&Product{ID: 5, State: &State{Version: 3}}, slices.Repeat([]float64{math.Pi}, 20))
		s.fail(s.receive())
		<-c.done
		if c.err == nil && slices.Contains(c.out, math.Pi) && bytes.Count(b, []byte{0x18, 0x2d, 0x44, 0x54, 0xfb, 0x21, 0x09, 0x40}) == 0 {
			t.Errorf("done with %v", c.out)
		}
	})
}
