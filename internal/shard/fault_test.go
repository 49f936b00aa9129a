package shard

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// hooked is a member that does something before each unit.
type hooked struct {
	Member
	before func(ctx context.Context, u Unit)
}

func (h hooked) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	h.before(ctx, u)
	return h.Member.Do(ctx, p, u, out)
}

// hook puts a hook before every unit that a group's members are given.
func hook(g *Group, before func(name string)) {
	dial := g.conf.Dial
	g.conf.Dial = func(name string) Member {
		return hooked{dial(name), func(context.Context, Unit) { before(name) }}
	}
}

// holdSelf makes the driver's own share wait until a channel is closed.
func holdSelf(g *Group, until <-chan struct{}) {
	g.sched.self = hooked{g.sched.self, func(ctx context.Context, _ Unit) {
		select {
		case <-until:
		case <-ctx.Done():
		}
	}}
}

// reasons is a log of why members were put aside.
type reasons struct {
	slog.Handler
	mu    sync.Mutex
	seen  []string
	first chan struct{} // closed at the first
}

func watch(g *Group) *reasons {
	r := &reasons{Handler: slog.DiscardHandler, first: make(chan struct{})}
	g.sched.log = slog.New(r)
	return r
}

func (r *reasons) Enabled(context.Context, slog.Level) bool { return true }

func (r *reasons) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			if r.seen = append(r.seen, a.Value.String()); len(r.seen) == 1 {
				close(r.first)
			}
		}
		return true
	})
	return nil
}

func (r *reasons) reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func small(t testing.TB) (*problem, [][]float64) {
	p := newProblem(kernel.Matern32, 1500, 2, 3)
	return p, p.truth(t)
}

func same(t *testing.T, p *problem, g *Group, want [][]float64) {
	t.Helper()
	got, err := p.results(g)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, want)
}

func TestMemberKilledDuringAProduct(t *testing.T) {
	p, want := small(t)
	g, names, w := cluster(t, p, 2, ServerConfig{})
	log := watch(g)
	holdSelf(g, log.first)
	var units int
	var mu sync.Mutex
	hook(g, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if units++; units == 3 {
			for _, n := range names {
				w.kill(n)
			}
		}
	})
	same(t, p, g, want)
	if g.conf.Meter.Load().TileRetries == 0 {
		t.Error("nothing was done again")
	}
	same(t, p, g, want) // alone
}

// A worker that takes requests and never answers.
func TestMemberThatIsStuck(t *testing.T) {
	p, want := small(t)
	busy := parallel.NewBudget(1)
	if err := busy.Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
	g, names, _ := cluster(t, p, 2, ServerConfig{})
	w := &workers{t: t, servers: map[string]*grpc.Server{}}
	stuck := w.start(ServerConfig{Source: inputs{p.in}, Budget: busy})
	t.Cleanup(func() { w.kill(stuck) })
	g.SetMembers(append(names, stuck)...)
	log := watch(g)
	for range 3 {
		same(t, p, g, want)
	}
	i := slices.IndexFunc(g.peers, func(p *peer) bool { return p.name == stuck })
	if g.peers[i].backoff == 0 || g.conf.Meter.Load().Hedges == 0 {
		t.Errorf("the stuck member is not put aside: %v", log.seen)
	}
}

// liar is a worker whose answers are changed on their way.
type liar struct {
	*Server
	change func(f *frame) []*frame
}

func (l *liar) Session(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
	return l.serve(lying{stream, l.change})
}

type lying struct {
	messages
	change func(f *frame) []*frame
}

func (l lying) SendMsg(m any) error {
	for _, f := range l.change(m.(*frame)) {
		if err := l.messages.SendMsg(f); err != nil {
			return err
		}
	}
	return nil
}

// lie is a kind of wrong answer, and what the driver says of it.
type lie struct {
	name, reason string
	change       func(a *pb.TilesAnswer, f *frame)
}

// numbers replaces some of an answer's numbers.
func numbers(x ...float64) func(a *pb.TilesAnswer, f *frame) {
	return func(a *pb.TilesAnswer, f *frame) {
		all := make([]float64, f.data.Len()/8)
		copy(all[len(all)/2:], x)
		f.data, a.Crc32C = encode(all)
	}
}

var lies = []lie{
	{"NaN", "is NaN", numbers(math.NaN())},
	{"infinite", "is +Inf", numbers(math.Inf(1))},
	{"too large", "is -1e+09", numbers(-1e9)},
	{"checksum", "checksum", func(a *pb.TilesAnswer, f *frame) { a.Crc32C++ }},
	{"flipped bit", "checksum", func(a *pb.TilesAnswer, f *frame) {
		b := slices.Clone(f.data.ReadOnlyData())
		b[len(b)/2] ^= 1
		f.data = mem.SliceBuffer(b)
	}},
	{"too short", "with numbers", func(a *pb.TilesAnswer, f *frame) { a.Total-- }},
	{"too long", "with numbers", func(a *pb.TilesAnswer, f *frame) {
		f.data, a.Crc32C = encode(make([]float64, f.data.Len()/8+1))
	}},
	{"empty", "with numbers", func(a *pb.TilesAnswer, f *frame) { f.data = nil }},
	{"offset", "with numbers", func(a *pb.TilesAnswer, f *frame) { a.Offset++ }},
	{"product", "for product", func(a *pb.TilesAnswer, f *frame) { a.Product++ }},
	{"theta", "for product", func(a *pb.TilesAnswer, f *frame) { a.Version++ }},
	{"unit", "was not asked for", func(a *pb.TilesAnswer, f *frame) { a.Unit += 1000 }},
	{"odd bytes", "not whole numbers", func(a *pb.TilesAnswer, f *frame) { f.data = mem.SliceBuffer(make([]byte, 13)) }},
}

func TestMemberThatAnswersGarbage(t *testing.T) {
	p, want := small(t)
	for _, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			testLiar(t, p, want, l.reason, func(f *frame) []*frame {
				if a := f.head.(*pb.TilesResponse).GetAnswer(); a != nil {
					l.change(a, f)
				}
				return []*frame{f}
			})
		})
	}
	t.Run("not opened", func(t *testing.T) {
		testLiar(t, p, want, "before it had opened", func(f *frame) []*frame {
			if f.head.(*pb.TilesResponse).GetOpened() != nil {
				return nil
			}
			return []*frame{f}
		})
	})
	t.Run("other data", func(t *testing.T) {
		testLiar(t, p, want, "cache is damaged", func(f *frame) []*frame {
			if o := f.head.(*pb.TilesResponse).GetOpened(); o != nil {
				o.Rows++
			}
			return []*frame{f}
		})
	})
}

// testLiar checks that a member that lies is found out, for the reason given,
// and that no result suffers. The driver's own share waits until it is found out.
func testLiar(t *testing.T, p *problem, want [][]float64, reason string, change func(f *frame) []*frame) {
	g, done := newGroup(t, p)
	defer done()
	w := &workers{t: t, servers: map[string]*grpc.Server{}}
	address := w.serve(&liar{NewServer(ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1)}), change})
	defer w.kill(address)
	g.SetMembers(address)
	log := watch(g)
	holdSelf(g, log.first)
	same(t, p, g, want)
	if len(log.seen) == 0 || !strings.Contains(log.seen[0], reason) {
		t.Errorf("reasons %q, want %q", log.seen, reason)
	}
}

// Answers that come twice, or for units that nobody waits for any more, do no
// harm.
func TestDuplicateAnswers(t *testing.T) {
	p, want := small(t)
	var mu sync.Mutex
	var sent int
	var kept []*frame
	answered := make(chan struct{})
	g, done := newGroup(t, p)
	defer done()
	w := &workers{t: t, servers: map[string]*grpc.Server{}}
	address := w.serve(&liar{NewServer(ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1)}), func(f *frame) []*frame {
		mu.Lock()
		defer mu.Unlock()
		if f.data == nil {
			return []*frame{f}
		}
		again := append([]*frame{f}, kept...)
		kept = append(kept, &frame{head: f.head, data: mem.SliceBuffer(slices.Clone(f.data.ReadOnlyData()))})
		if sent++; sent == 4 {
			close(answered)
		}
		return append(again, kept...)
	}})
	defer w.kill(address)
	g.SetMembers(address)
	log := watch(g)
	holdSelf(g, answered)
	for range 2 {
		same(t, p, g, want)
	}
	for _, why := range log.seen { // other than slowness
		if !strings.Contains(why, "did nothing") {
			t.Errorf("put aside: %s", why)
		}
	}
}

func TestMembersChangeBetweenProducts(t *testing.T) {
	p, want := small(t)
	g, names, _ := cluster(t, p, 4, ServerConfig{})
	for _, m := range [][]string{names[:1], names, names[2:], nil, names[1:2], {names[0], names[3]}} {
		g.SetMembers(m...)
		same(t, p, g, want)
		if len(g.peers) != len(m) {
			t.Errorf("%d members, want %d", len(g.peers), len(m))
		}
	}
}

func TestGroupStopsWithItsContext(t *testing.T) {
	p, want := small(t)
	g, _, _ := cluster(t, p, 2, ServerConfig{})
	never := make(chan struct{})
	self := g.sched.self
	holdSelf(g, never)
	var once sync.Once
	ctx, cancel := context.WithCancel(context.Background())
	hook(g, func(string) { once.Do(cancel) })
	g.Set(p.theta, []float64{0.3})
	if err := g.Mul(ctx, solve.Columns(p.in.Len(), 3), p.v); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := g.Forms(ctx, p.u, p.v, p.group, 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	g.sched.self = self
	same(t, p, g, want)
}

func TestAddressThatNobodyAnswers(t *testing.T) {
	p, want := small(t)
	g, done := newGroup(t, p)
	defer done()
	g.SetMembers("127.0.0.1:1")
	same(t, p, g, want)
}

// refusing is a source that has nothing.
type refusing struct{ err error }

func (r refusing) Inputs(context.Context, string) (*kernel.Inputs, error) { return nil, r.err }

func TestSessionIsRefused(t *testing.T) {
	p, want := small(t)
	isa, _ := cmvp.ISA()
	other := "avx512"
	if isa == other {
		other = "portable"
	}
	for _, c := range []struct {
		name string
		conf ServerConfig
		data func(*Data)
		want codes.Code
	}{
		{"no data", ServerConfig{}, func(d *Data) { d.Address = "y" }, codes.NotFound},
		{"no data at all", ServerConfig{Source: refusing{fs.ErrNotExist}}, func(*Data) {}, codes.NotFound},
		{"unreadable", ServerConfig{Source: refusing{errors.New("disk")}}, func(*Data) {}, codes.Unavailable},
		{"other bits", ServerConfig{}, func(d *Data) { d.ISA = other }, codes.FailedPrecondition},
		{"memory", ServerConfig{MaxBytes: 1 << 10}, func(*Data) {}, codes.ResourceExhausted},
		{"columns", ServerConfig{MaxColumns: 2}, func(*Data) {}, codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, names, _ := cluster(t, p, 1, c.conf)
			d := Data{Address: "x", Covariance: p.cov, ISA: isa, Rows: p.in.Len()}
			c.data(&d)
			dial := g.conf.Dial
			g.conf.Dial = func(name string) Member {
				m := dial(name).(*remote)
				m.data = d
				return m
			}
			log := watch(g)
			holdSelf(g, log.first)
			same(t, p, g, want)
			if len(log.seen) == 0 || !strings.Contains(log.seen[0], "code = "+c.want.String()) {
				t.Errorf("%s: %q, want %v", names[0], log.seen, c.want)
			}
		})
	}
}
