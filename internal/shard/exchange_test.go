package shard

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Parts cover each task once, and what they sum up is added to the bits of the product, whoever has the first of them.
func TestPartsAddUpToTheProduct(t *testing.T) {
	for _, n := range []int{300, 1000, 1500, 4200} {
		p := newProblem(kernel.Matern32, n, 2, 2)
		op := p.operator()
		op.Set(p.theta, p.noise)
		want, got := solve.Columns(n, 2), solve.Columns(n, 2)
		if err := op.Mul(t.Context(), want, p.v); err != nil {
			t.Fatal(err)
		}
		g, factor := cmvp.NewGrid(n), []float64{1, 1}
		for _, cut := range [][2]int{{g.Units(), 1}, {g.Units() / 3, 2}, {0, 3}} {
			if cut[1] > leastTasks(g) {
				continue
			}
			x := newExchange(layoutOf(n, cut[0], cut[1]), nil, 1, 0)
			q := &Product{Kind: Double, N: n, V: p.v, Factor: factor, Exchange: x}
			at := 0
			for i := range x.len() {
				if _, lo, hi := x.tasks(i); lo != at || hi <= lo {
					t.Fatalf("n=%d, %v: part %d has the tasks [%d,%d), after %d", n, cut, i, lo, hi, at)
				} else {
					at = hi
				}
				var err error
				if x.own[i], err = q.part(t.Context(), op, i, nil); err != nil {
					t.Fatal(err)
				}
			}
			if at != g.Tasks() {
				t.Fatalf("n=%d, %v: %d tasks of %d", n, cut, at, g.Tasks())
			}
			for _, x.floor = range []int{0, x.len() / 3, x.len() - 1, x.len()} {
				for point := range g.Points() {
					first := newAdder(x.layout, point, 2, 0, nil)
					k := x.have(point)
					for _, part := range x.parts[point][:k] {
						first.add(x.stream(part, point, 2, x.own[part]))
					}
					a := newAdder(x.layout, point, 2, k, first.answer())
					for _, part := range x.parts[point][k:] {
						a.add(x.stream(part, point, 2, x.own[part]))
					}
					for c := range got {
						copy(got[c][a.lo:], a.sum[c*a.rows:][:a.rows])
					}
				}
				op.Finish(got, p.v, factor)
				equal(t, got, want)
			}
		}
	}
}

// exchanges are products that a group exchanges, and what they have to come to.
type exchanges struct {
	*problem
	want [][]float64
	adds atomic.Int64 // points that members added up
}

func newExchanges(t testing.TB, n int) *exchanges {
	e := &exchanges{problem: newProblem(kernel.Matern32, n, 2, 3)}
	var err error
	if e.want, err = e.products(e.operator()); err != nil {
		t.Fatal(err)
	}
	return e
}

// products are two of each precision, of which the second is exchanged.
func (e *exchanges) products(o solve.SingleOperator) (all [][]float64, err error) {
	ctx, n := context.Background(), e.in.Len()
	o.(interface{ Set(theta, noise []float64) }).Set(e.theta, e.noise)
	for _, mul := range []func(ctx context.Context, dst, v [][]float64) error{o.Mul, o.MulSingle} {
		for _, v := range [][][]float64{e.v, e.u} {
			y := solve.Columns(n, len(v))
			if err := mul(ctx, y, v); err != nil {
				return nil, err
			}
			all = append(all, y...)
		}
	}
	return all, nil
}

// group has a group exchange sums, with units cut like this.
func (e *exchanges) force(g *Group, whole, pieces, members int) {
	g.forced = &Plan{Members: members, Exchange: true, whole: whole, pieces: pieces}
	dial := g.conf.Dial
	g.conf.Dial = func(name string) Member {
		return faulty{dial(name), func(p *Product, _ Unit, _ []float64) {
			if p.Add {
				e.adds.Add(1)
			}
		}}
	}
}

func (e *exchanges) check(t *testing.T, g *Group) {
	t.Helper()
	got, err := e.products(g)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, e.want)
}

// A group that exchanges sums computes the bits of one operator, for all ways to cut units.
func TestExchange(t *testing.T) {
	for _, n := range []int{1000, 4200} {
		e, units := newExchanges(t, n), cmvp.NewGrid(n).Units()
		for _, c := range []struct{ whole, pieces, members int }{{units, 1, 2}, {units / 2, 2, 3}, {0, 2, 4}} {
			if c.pieces > leastTasks(cmvp.NewGrid(n)) {
				continue
			}
			t.Run(fmt.Sprintf("n=%d/whole=%d/members=%d", n, c.whole, c.members), func(t *testing.T) {
				g, _, _ := cluster(t, e.problem, c.members-1, ServerConfig{})
				log := watch(g)
				e.force(g, c.whole, c.pieces, c.members)
				leave(g, 20*time.Millisecond)
				e.adds.Store(0)
				e.until(t, g, func() bool { return e.adds.Load() > 0 })
				t.Log(log.seen)
			})
		}
	}
}

// leastTasks returns how many tasks a unit has at the least.
func leastTasks(g cmvp.Grid) int {
	least := g.Tasks()
	for i := range g.Units() {
		lo, hi := g.UnitTasks(i)
		least = min(least, hi-lo)
	}
	return least
}

// leave makes the driver leave something of each exchange to the members, if that takes them no longer than d.
func leave(g *Group, d time.Duration) {
	var last uint64
	g.sched.self = waiting{g.sched.self, func(ctx context.Context, p *Product) {
		if p.Exchange != nil && p.again == nil && p.ID != last {
			last = p.ID
			_ = sleep(ctx, d)
		}
	}}
}

// until checks products until something has happened.
func (e *exchanges) until(t *testing.T, g *Group, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; {
		e.check(t, g)
		if happened() {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// atFirstAdd calls f when a member is first asked to add sums up, and returns what is true from then on.
func atFirstAdd(g *Group, f func()) *atomic.Bool {
	var done atomic.Bool
	dial := g.conf.Dial
	g.conf.Dial = func(name string) Member {
		return addHook{dial(name), func() {
			if done.CompareAndSwap(false, true) {
				f()
			}
		}}
	}
	return &done
}

// A member that is killed when sums are to be added up has its parts computed again.
func TestMemberKilledDuringAnExchange(t *testing.T) {
	e := newExchanges(t, 1500)
	g, names, w := cluster(t, e.problem, 3, ServerConfig{})
	e.force(g, cmvp.NewGrid(1500).Units(), 1, 4)
	leave(g, 20*time.Millisecond)
	killed := atFirstAdd(g, func() { w.kill(names[1]) })
	e.until(t, g, killed.Load)
	e.check(t, g)
}

// addHook is a member that does something before it adds up a point.
type addHook struct {
	Member
	before func()
}

func (h addHook) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	if p.Add {
		h.before()
	}
	return h.Member.Do(ctx, p, u, out)
}

// mute is a worker from which others fetch nothing: it hangs, or says something else.
type mute struct {
	*Server
	fetch func(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error
}

func (m mute) Fetch(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
	return m.fetch(stream)
}

// What cannot be fetched, or is not what it should be, comes from others, or is computed again: no bit is another.
func TestMemberThatGivesNothing(t *testing.T) {
	e := newExchanges(t, 1500)
	for name, fetch := range map[string]func(s *Server, stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error{
		"hangs": func(_ *Server, stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
			<-stream.Context().Done()
			return nil
		},
		"nothing": func(*Server, grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error { return nil },
		"is of a version without the call": func(*Server, grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
			return status.Error(codes.Unimplemented, "unknown method Fetch")
		},
		"wrong numbers": func(s *Server, stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
			return s.give(lying{stream, func(f *frame) []*frame {
				x := f.head.(*pb.TilesResponse).GetAnswer()
				f.data, x.Crc32C = encode(make([]float64, f.data.Len()/8))
				return []*frame{f}
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			patience := 100 * time.Millisecond
			g, names, w := cluster(t, e.problem, 2, ServerConfig{Patience: patience})
			pool := NewPool(nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
			s := NewServer(ServerConfig{Source: inputs{e.in}, Budget: parallel.NewBudget(1), Peers: pool, Patience: patience})
			bad := w.serve(mute{s, func(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
				return fetch(s, stream)
			}})
			t.Cleanup(func() { pool.Close() })
			g.SetMembers(append(names, bad)...)
			e.force(g, 3, 2, 4)
			leave(g, 250*time.Millisecond)
			for range 2 {
				e.check(t, g)
			}
		})
	}
}

// Numbers that are wrong and have the right checksums are found by the symmetry of the product, and whose they are by computing it
// again: who computed a part, or who added up a point.
func TestMemberThatIsWrongInAnExchange(t *testing.T) {
	e := newExchanges(t, 1500)
	for _, kind := range []string{"part", "point"} {
		t.Run(kind, func(t *testing.T) {
			g, names, w := cluster(t, e.problem, 2, ServerConfig{})
			pool := NewPool(nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
			s := NewServer(ServerConfig{Source: inputs{e.in}, Budget: parallel.NewBudget(1), Peers: pool})
			bad := w.serve(&liar{s, func(f *frame) []*frame {
				spoilExchange(s, f, kind == "point")
				return []*frame{f}
			}})
			t.Cleanup(func() { pool.Close() })
			g.SetMembers(append(names, bad)...)
			var blamed []string
			g.sched.wrong = func(member, _ string) { blamed = append(blamed, member) }
			e.force(g, 3, 2, 4)
			leave(g, 20*time.Millisecond)
			e.until(t, g, func() bool { return len(blamed) > 0 })
			if !slices.Equal(blamed, []string{bad}) {
				t.Errorf("%v were blamed, not %s", blamed, bad)
			}
		})
	}
}

// spoilExchange changes the signs of what a worker keeps, or of the points that it adds up.
func spoilExchange(s *Server, f *frame, points bool) {
	a := f.head.(*pb.TilesResponse).GetAnswer()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.keys {
		k := &v.kept
		k.mu.Lock()
		defer k.mu.Unlock()
		if a == nil || k.product != a.Product {
			continue
		}
		x := make([]float64, f.data.Len()/8)
		decode(x, f.data.ReadOnlyData())
		if int(a.Total) > 64 { // no checksums
			if points {
				negate(x)
				f.data, a.Crc32C = encode(x)
			}
			return
		}
		for part, sums := range k.sums {
			if !points && slices.Equal(k.layout.checksums(part, k.columns, sums), x) {
				negate(sums)
				f.data, a.Crc32C = encode(k.layout.checksums(part, k.columns, sums))
				return
			}
		}
	}
}

// negate changes numbers by much: single precision hides what is little.
func negate(x []float64) {
	for i := range x {
		x[i] = -x[i]
	}
}

// Where nobody is left to exchange sums with the driver computes the product, and gathers sums itself for a while.
func TestExchangeThatFails(t *testing.T) {
	e := newExchanges(t, 1500)
	g, names, w := cluster(t, e.problem, 2, ServerConfig{})
	e.force(g, cmvp.NewGrid(1500).Units(), 1, 3)
	leave(g, 20*time.Millisecond)
	killed := atFirstAdd(g, func() {
		w.kill(names[0])
		w.kill(names[1])
	})
	log := watch(g)
	g.conf.Log = g.sched.log
	e.until(t, g, killed.Load)
	if g.pause == 0 || !slices.Contains(log.reasons(), errExchange.Error()) {
		t.Errorf("it says %v", log.reasons())
	}
}
