package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// raw is a codec that sends bytes as they are, under the name of another.
type raw string

func (r raw) Name() string                { return string(r) }
func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

// hostile makes messages that no friend would send.
type hostile struct {
	*rand.Rand
	job string // one that there is
}

func pick[T any](h *hostile, all ...T) T { return all[h.IntN(len(all))] }

func (h *hostile) int() int64 {
	return pick(h, 0, 1, -1, 2, 3, 1<<20, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, int64(h.Uint64()))
}

func (h *hostile) float() float64 {
	return pick(h, 0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e308, -1e308, 5e-324, h.NormFloat64())
}

func (h *hostile) string() string {
	return pick(h, "", h.job, h.job, h.job, "nobody", "../../../etc/passwd", "..", "/", "a/b", "\x00", "%s%n", strings.Repeat("0", 64), strings.Repeat("f", 64),
		strings.Repeat("g", 64), strings.Repeat("é", 40_000), "127.0.0.1:99999999", ":", "[::", "!!binary gA==", "name: [", "data: {synthetic: {n: -1}}",
		"sampler: {chains: 1e18, draws: 9223372036854775807}", "a: &a [1]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\ndata: [*c,*c]", strings.Repeat("[", 10_000), strings.Repeat("{a: ", 5_000))
}

func (h *hostile) bytes() []byte {
	text := func(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }
	noise := make([]byte, h.IntN(2000))
	for i := range noise {
		noise[i] = byte(h.Uint32())
	}
	numbers := strings.TrimSuffix(strings.Repeat(pick(h, "0,", "-1,", "1e308,", "1e999,", "NaN,", "null,"), h.IntN(40)), ",")
	return pick(h, nil, noise, []byte("\xff\xfe\xc3\x28"), text("null"), text("{}"), text("[]"), []byte(strings.Repeat("[", 100_000)),
		text(`{"checkpoint":{"chain":%d,"from_iter":%d,"state":{"iter":%d,"psi":[%s]},"draws":[[%s]]}}`, h.int(), h.int(), h.int(), numbers, numbers),
		text(`{"prepared":{"psi":[%s],"starts":[[%s]],"cov":[%s],"probe_cov":[%s]}}`, numbers, numbers, numbers, numbers),
		text(`{"settings":{"window":%d,"c":[%s]},"stop":{"draws":%d}}`, h.int(), numbers, h.int()),
		text(`{"info":{"rows":%d,"held_out":%d,"inputs":["a","b"],"input_scales":[{"mean":0,"sd":1}],"sha256":"%d"},"instruction_set":"x"}`, h.int(), h.int(), h.int()),
		text(`{"info":{"rows":10,"inputs":["a","b"],"input_scales":[{"sd":1},{"sd":1}],"target_scale":{"sd":1},"truth":{"Tau":[%s]},"sha256":"%s"}}`, numbers, strings.Repeat("ab", 32)))
}

// fill fills in a message.
func (h *hostile) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if h.IntN(4) == 0 || depth > 4 {
			continue
		}
		if o := f.ContainingOneof(); o != nil && m.WhichOneof(o) != nil && h.IntN(2) == 0 {
			continue // whoever was first stays
		}
		if f.IsList() {
			l := m.Mutable(f).List()
			n := pick(h, 0, 1, 2, 3, 200)
			if f.Message() != nil {
				n = min(n, 3)
			}
			for range n {
				l.Append(h.value(f, l.NewElement, depth))
			}
			continue
		}
		m.Set(f, h.value(f, func() protoreflect.Value { return m.NewField(f) }, depth))
	}
}

func (h *hostile) value(f protoreflect.FieldDescriptor, fresh func() protoreflect.Value, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(h.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(h.int()))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(h.int()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(h.int())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(h.int()))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(h.int()))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(h.float()))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(h.float())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(h.string())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(h.bytes())
	}
	v := fresh()
	h.fill(v.Message(), depth+1)
	return v
}

// message returns the bytes of a message: empty, filled in, or damaged.
func (h *hostile) message(t *testing.T, d protoreflect.MessageDescriptor) []byte {
	kind := h.IntN(10)
	if kind == 0 {
		return nil
	}
	m := dynamicpb.NewMessage(d)
	h.fill(m, 0)
	b, err := proto.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	switch {
	case kind == 1: // a length that is not there
		b = append(b, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f)
	case kind == 2: // noise
		for i := range b[:min(len(b), 300)] {
			b[i] = byte(h.Uint32())
		}
	case kind <= 4 && len(b) > 0: // some bits
		for range 1 + h.IntN(4) {
			b[h.IntN(len(b))] ^= 1 << h.IntN(8)
		}
	case kind == 5 && len(b) > 1:
		b = b[:h.IntN(len(b))]
	case kind == 6: // an invalid text in the first field
		b = binary.AppendUvarint([]byte{0x0a}, 3)
		b = append(b, 0xff, 0xfe, 0xfd)
	}
	return b
}

// waits are the methods that may have nothing to say for a while.
var waits = map[string]bool{"Await": true, "Watch": true, "Draws": true, "Logs": true, "Connect": true, "Session": true, "Upload": true}

// Every method of every service, on a coordinator and on a worker, gets what no
// friend would send. Everything is answered with a status, in time, and both
// live on.
func TestHostileCalls(t *testing.T) {
	calls := 200
	if testing.Short() {
		calls = 20
	}
	c := startCoordinator(t)
	newFakeWorker(t, c, "fake", "none") // takes the preparations, and does nothing
	startWorker(t, "tiles", c.address)
	var workerAddress string
	eventually(t, "the worker", func() bool {
		l, err := pb.NewWorkersClient(c.conn).List(t.Context(), &pb.ListWorkersRequest{})
		if err == nil && len(l.Workers) == 2 {
			workerAddress = l.Workers[len(l.Workers)-1].Address
		}
		return workerAddress != ""
	})
	servers := map[string]running{"coordinator": c, "worker": connect(t, workerAddress)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	methods := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("ulisse.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				methods++
				for name, r := range servers {
					job := submit(t, c, 1_000_000) // a friend's, which the calls may end
					attack(t, name, r, s.Methods().Get(j), job, calls, uint64(methods))
					_, _ = pb.NewJobsClient(c.conn).Cancel(t.Context(), &pb.JobActionRequest{Id: job})
				}
			}
		}
		return true
	})
	if methods < 30 {
		t.Errorf("only %d methods were found", methods)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d methods; memory in use %d → %d MiB, %d MiB in all", methods, before.HeapInuse>>20, after.HeapInuse>>20, after.Sys>>20)
	if after.Sys > before.Sys+1<<30 {
		t.Errorf("the calls took %d MiB of memory", (after.Sys-before.Sys)>>20)
	}
}

// attack calls a method many times.
func attack(t *testing.T, server string, r running, m protoreflect.MethodDescriptor, job string, calls int, seed uint64) {
	t.Helper()
	method := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	most := 30 * time.Second
	if waits[string(m.Name())] {
		most = 100 * time.Millisecond
		calls = min(calls, 30)
	}
	codec := raw("proto")
	if m.Name() == "Session" {
		codec = "tiles"
	}
	var wg sync.WaitGroup
	const callers = 6
	for caller := range callers {
		h := &hostile{rand.New(rand.NewPCG(seed, uint64(caller))), job}
		wg.Go(func() {
			for range calls / callers {
				ctx, cancel := context.WithTimeout(t.Context(), most)
				err := call(ctx, t, r.conn, method, codec, m, h)
				late := ctx.Err() != nil
				cancel()
				switch code := status.Code(err); {
				case code == codes.Unavailable && m.Name() == "Transfer": // there is nobody to hand over to
				case code == codes.Unavailable && m.Name() == "Upload" && strings.Contains(err.Error(), "as many as one caller"): // six at once are too many
				case code == codes.Unavailable || code == codes.Unknown:
					t.Errorf("%s of the %s: %.300v", method, server, err)
				case late && !waits[string(m.Name())]:
					t.Errorf("%s of the %s: no answer within %v", method, server, most)
				}
			}
		})
	}
	wg.Wait()
	if err := r.conn.Invoke(t.Context(), "/grpc.health.v1.Health/Check", []byte(nil), new([]byte), grpc.ForceCodec(raw("proto"))); err != nil {
		t.Fatalf("after %s the %s answers nothing: %v", method, server, err)
	}
}

// call makes one call and reads all that comes of it.
func call(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string, codec raw, m protoreflect.MethodDescriptor, h *hostile) error {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodec(codec))
	if err != nil {
		return err
	}
	n := 1
	if m.IsStreamingClient() {
		n = h.IntN(5)
	}
	for range n {
		if s.SendMsg(h.message(t, m.Input())) != nil {
			break // Recv says why
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		var reply []byte
		if err := s.RecvMsg(&reply); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
