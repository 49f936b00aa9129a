package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gonum.org/v1/gonum/floats"
	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// applied is a preconditioner, its vectors, and what it makes of them alone.
type applied struct {
	p    *problem
	pre  *precond.LowRank
	want [][]float64
}

// newApplied returns a preconditioner for 1,400 rows, whose factor is in 6 chunks.
func newApplied(t *testing.T, kind string, rank int) *applied {
	a := &applied{p: newProblem(kernel.RBF, 1400, 3, 5)}
	op := a.p.operator()
	op.Set(a.p.theta, []float64{0.3})
	var err error
	if a.pre, err = precond.Build(t.Context(), kind, op, rank, random.Key{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	a.want = a.apply(a.pre)
	return a
}

// apply returns what a preconditioner and its root make of the vectors.
func (a *applied) apply(pre *precond.LowRank) (all [][]float64) {
	for _, f := range []func(dst, v [][]float64){pre.Solve, pre.MulRoot, pre.SolveRoot, pre.SolveRootTrans} {
		dst := solve.Columns(a.p.in.Len(), len(a.p.v))
		f(dst, a.p.v)
		all = append(all, dst...)
	}
	return all
}

// counted counts the units that members answer, of products with a factor.
type counted struct {
	Member
	name  string
	units *sync.Map // names to numbers
}

func (c counted) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	err := c.Member.Do(ctx, p, u, out)
	if err == nil && (p.Kind == Trans || p.Kind == Low) {
		n, _ := c.units.LoadOrStore(c.name, 0)
		c.units.Store(c.name, n.(int)+1)
	}
	return err
}

// count counts the units of a group's members.
func count(g *Group) *sync.Map {
	var units sync.Map
	dial := g.conf.Dial
	g.conf.Dial = func(name string) Member { return counted{dial(name), name, &units} }
	return &units
}

// eventually repeats what it is given until it is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// held returns how many chunks each member of a group holds.
func held(g *Group) (all []int) {
	for _, p := range g.peers {
		p.rows.mu.Lock()
		n := bits.OnesCount64(uint64(p.rows.held))
		if p.rows.stop != nil {
			n = -1
		}
		p.rows.mu.Unlock()
		all = append(all, n)
	}
	return all
}

// spread applies a shared preconditioner until members hold so many chunks each.
func (a *applied) spread(t *testing.T, g *Group, pre *precond.LowRank, want ...int) {
	t.Helper()
	eventually(t, fmt.Sprintf("members that hold %v", want), func() bool {
		equal(t, a.apply(pre), a.want)
		return fmt.Sprint(held(g)) == fmt.Sprint(want)
	})
}

// A preconditioner that is applied over a group is the same to the last bit as that of the driver
// alone, for any number of members, whatever B is.
func TestApplyingOverAGroup(t *testing.T) {
	for _, x := range []struct {
		kind    string
		recipes bool
	}{{"rpcholesky", false}, {"rpcholesky", true}, {"pitc", false}} {
		a := newApplied(t, x.kind, 60)
		for members, want := range [][]int{{}, {3}, {2, 2}, {2, 1, 1}} {
			t.Run(fmt.Sprintf("%s/recipes=%v/members=%d", x.kind, x.recipes, members), func(t *testing.T) {
				g, names, _ := cluster(t, a.p, members, ServerConfig{})
				g.eager, g.recipes = true, x.recipes
				units := count(g)
				pre := a.pre.Shared(g.Share)
				a.spread(t, g, pre, want...)
				for _, name := range names {
					eventually(t, name, func() bool {
						equal(t, a.apply(pre), a.want)
						_, ok := units.Load(name)
						return ok
					})
				}
			})
		}
	}
}

// shared returns a group over some workers all of which hold rows, and its preconditioner.
func (a *applied) shared(t *testing.T, members int, c ServerConfig) (*Group, *precond.LowRank, []string, *workers) {
	g, names, w := cluster(t, a.p, members, c)
	g.eager = true
	pre := a.pre.Shared(g.Share)
	a.spread(t, g, pre, map[int][]int{1: {3}, 2: {2, 2}}[members]...)
	return g, pre, names, w
}

// A member that is killed in the middle of an application costs no bit. When it is back it is sent its rows
// again; what nobody else holds the driver computes.
func TestHolderKilledDuringAnApplication(t *testing.T) {
	a := newApplied(t, "rpcholesky", 60)
	g, pre, names, w := a.shared(t, 2, ServerConfig{})
	for _, p := range g.peers {
		p.rows.Member = hooked{p.rows.Member, func(context.Context, Unit) { w.kill(names[0]) }}
	}
	log := &reasons{Handler: slog.DiscardHandler, first: make(chan struct{})}
	g.factors.log = slog.New(log)
	g.factors.self = hooked{g.factors.self, func(ctx context.Context, _ Unit) { // until it has failed
		select {
		case <-log.first:
		case <-ctx.Done():
		}
	}}
	equal(t, a.apply(pre), a.want)
	if n := held(g); n[0] != 0 || n[1] != 2 {
		t.Errorf("members hold %v", n)
	}
	equal(t, a.apply(pre), a.want)
	g.SetMembers() // all are gone
	equal(t, a.apply(pre), a.want)
}

// A member that takes requests and never answers is waited for no longer than the driver needs for its chunks, and
// is not put aside for that alone.
func TestHolderThatIsStuck(t *testing.T) {
	a := newApplied(t, "rpcholesky", 60)
	busy := parallel.NewBudget(1)
	g, pre, _, _ := a.shared(t, 1, ServerConfig{Budget: busy})
	if err := busy.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	var asked sync.Map // products of which it was given a unit
	member := g.peers[0].rows.Member
	g.peers[0].rows.Member = waiting{member, func(_ context.Context, p *Product) { asked.Store(p.ID, true) }}
	g.factors.self = waiting{g.factors.self, func(ctx context.Context, p *Product) {
		for is := false; !is && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			_, is = asked.Load(p.ID)
		}
	}}
	equal(t, a.apply(pre), a.want)
	if g.conf.Meter.Load().Hedges == 0 || g.peers[0].backoff != 0 {
		t.Errorf("%d chunks done twice, backoff %v", g.conf.Meter.Load().Hedges, g.peers[0].backoff)
	}
	busy.Release()
	equal(t, a.apply(pre), a.want)
}

// Members join, leave and come back while a preconditioner is applied, which may be another one.
func TestHoldersChange(t *testing.T) {
	a, b := newApplied(t, "rpcholesky", 60), newApplied(t, "svd", 50)
	b.p = a.p
	g, names, w := cluster(t, a.p, 1, ServerConfig{})
	third := w.start(ServerConfig{Source: inputs{a.p.in}, Budget: parallel.NewBudget(1)})
	one, two := a.pre.Shared(g.Share), b.pre.Shared(g.Share)
	a.spread(t, g, one, 3)
	g.SetMembers(names[0], third)
	a.spread(t, g, one, 3, 2) // the first keeps what it has
	b.spread(t, g, two, 2, 2)
	g.SetMembers(third)
	b.spread(t, g, two, 3)
	a.spread(t, g, one, 3)
}

// A worker holds no more than it has room for, and gives it back when the session ends.
func TestRoomForRows(t *testing.T) {
	a := newApplied(t, "rpcholesky", 60)
	chunk := int64(8 * 256 * 60)
	server := NewServer(ServerConfig{Source: inputs{a.p.in}, Budget: parallel.NewBudget(1), MaxHeld: 2*chunk + 1})
	g, done := newGroup(t, a.p)
	w := &workers{t: t, servers: map[string]*grpc.Server{}}
	address := w.serve(server)
	defer w.kill(address)
	g.SetMembers(address)
	a.spread(t, g, a.pre.Shared(g.Share), 2)
	if n := server.held.Load(); n != 2*chunk {
		t.Errorf("the worker holds %d bytes, want %d", n, 2*chunk)
	}
	done()
	eventually(t, "nothing held", func() bool { return server.held.Load() == 0 })
}

// A worker that has no room at all, or knows nothing of factors, is asked once, and still has products.
func TestWorkerWithoutRoom(t *testing.T) {
	a := newApplied(t, "rpcholesky", 60)
	g, _, _ := cluster(t, a.p, 1, ServerConfig{MaxHeld: 1})
	pre := a.pre.Shared(g.Share)
	eventually(t, "no room", func() bool {
		equal(t, a.apply(pre), a.want)
		return g.peers[0].rows.most() == 0 && held(g)[0] == 0
	})
	if g.peers[0].backoff != 0 {
		t.Error("it is put aside")
	}
}

// What a member computes wrongly of a factor is found, whether it is one bit of one number or all of them; the member
// is named and its neighbour is not. Wrong rows are found when they are sent.
func TestHolderThatComputesWrongly(t *testing.T) {
	a := newApplied(t, "rpcholesky", 60)
	for name, change := range map[string]func(p *Product, out []float64){
		"bit":       func(_ *Product, out []float64) { flip(out) },
		"zeros":     func(_ *Product, out []float64) { clear(out) },
		"NaN":       func(_ *Product, out []float64) { out[3] = math.NaN() },
		"huge":      func(_ *Product, out []float64) { out[3] = 1e30 },
		"stale":     func(p *Product, out []float64) { floats.Scale(1+1e-9, out) },
		"transpose": func(p *Product, out []float64) { slices.Reverse(out) },
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			g, pre, names, _ := a.shared(t, 2, ServerConfig{})
			g.sched.wrong = func(member, _ string) { told = append(told, member) }
			g.factors.wrong = g.sched.wrong
			var wrong atomic.Bool
			g.peers[1].rows.Member = faulty{g.peers[1].rows.Member, func(p *Product, _ Unit, out []float64) {
				change(p, out)
				wrong.Store(true)
			}}
			g.factors.self = waiting{g.factors.self, func(ctx context.Context, p *Product) {
				for end := time.Now().Add(time.Minute); !wrong.Load() && ctx.Err() == nil && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
			}}
			equal(t, a.apply(pre), a.want)
			if !slices.Equal(slices.Compact(told), names[1:]) {
				t.Errorf("wrong: %v, want %v", told, names[1:])
			}
		})
	}
	t.Run("rows", func(t *testing.T) {
		g, _, _ := cluster(t, a.p, 1, ServerConfig{})
		dial := g.conf.Dial
		g.conf.Dial = func(name string) Member {
			return faulty{dial(name), func(p *Product, _ Unit, out []float64) {
				if p.Kind == Hold {
					flip(out[:1])
				}
			}}
		}
		pre := a.pre.Shared(g.Share)
		eventually(t, "put aside", func() bool {
			equal(t, a.apply(pre), a.want)
			return g.peers[0].backoff > 0
		})
		if n := held(g)[0]; n != 0 {
			t.Errorf("it holds %d chunks", n)
		}
	})
}

// A driver that computes other numbers each time ends its chain.
func TestDriverThatIsUnsteadyWithAFactor(t *testing.T) {
	a := newApplied(t, "rpcholesky", 60)
	g, pre, _, _ := a.shared(t, 2, ServerConfig{})
	g.peers[0].rows.Member = faulty{g.peers[0].rows.Member, func(_ *Product, _ Unit, out []float64) { clear(out) }}
	unsteady := 0.0
	g.sched.self = faulty{g.sched.self, func(_ *Product, _ Unit, out []float64) {
		unsteady++
		out[0] += unsteady
	}}
	v := a.p.v
	eventually(t, "unsteady", func() bool {
		pre.Solve(solve.Columns(1400, len(v)), v)
		g.Set(a.p.theta, []float64{0.3})
		return errors.Is(g.Mul(t.Context(), solve.Columns(1400, 1), v[:1]), ErrUnsteady)
	})
}

// Rounding makes no answer doubtful: 1,500 of them, some of vectors that cancel, or whose size spans many
// magnitudes. The signs of checksums are another at each run, so that no member can know them: of 450 runs with three
// instruction sets the farthest came to 0.76, where the bound is 2.5.
func TestChecksumsOfRightAnswers(t *testing.T) {
	most, rnd := 0.0, rand.New(rand.NewPCG(7, 7))
	for _, size := range [][2]int{{700, 5}, {1400, 60}, {9000, 33}, {3000, 300}} {
		n, m := size[0], size[1]
		l := dense.New(n, m)
		for trial := range 12 {
			col := make([]float64, n)
			for j := range m {
				for i := range col {
					col[i] = math.Exp(-float64(trial%3)*float64(j)/10) * rnd.NormFloat64()
				}
				if trial%4 == 1 { // nearly the same
					floats.AddConst(1e3, col)
				}
				l.SetCol(j, col)
			}
			f := matrixOf(l)
			budget := parallel.NewBudget(1)
			f.prepare(budget)
			for _, kind := range []Kind{Trans, Low} {
				p := &Product{Kind: kind, N: n, L: f}
				if kind == Low {
					p.N = m
				}
				v := make([]float64, p.N)
				for i := range v {
					v[i] = rnd.NormFloat64() * math.Pow(10, -float64(i%(1+trial)))
				}
				p.V = [][]float64{v}
				for i := range f.chunks {
					u := Unit{i, i + 1}
					out := make([]float64, p.Size(u))
					if err := f.compute(t.Context(), p, u, out, budget); err != nil {
						t.Fatal(err)
					}
					most = max(most, f.differs(p, u, 0, out))
				}
			}
		}
	}
	t.Logf("at most %.2g, and %.2g is doubtful", most, doubt)
	if most > doubt/2 {
		t.Errorf("an answer that is right differs by %.2g, %.2g is doubtful", most, doubt)
	}
}
