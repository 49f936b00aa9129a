package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
	"github.com/ulisse-gp/ulisse/internal/sparse"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// grownRank is of two blocks of pivots at the least, the last of which is cut off.
const grownRank = 200

// newGrown is newApplied with a rank of several blocks, and noise for each row if that is asked for.
func newGrown(t *testing.T, noise []float64) *applied {
	t.Helper()
	a := &applied{p: newProblem(kernel.RBF, 1400, 3, 5)}
	op := a.p.operator()
	op.Set(a.p.theta, noise)
	var err error
	if a.pre, err = precond.Build(t.Context(), "rpcholesky", op, grownRank, random.Key{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	a.want = a.apply(a.pre)
	return a
}

// build builds the same over a group.
func (a *applied) build(t *testing.T, g *Group, noise []float64) *precond.LowRank {
	t.Helper()
	g.eager = true
	g.Set(a.p.theta, noise)
	pre, err := precond.BuildAny(t.Context(), "rpcholesky", g, grownRank, random.Key{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return pre.(*precond.LowRank).Shared(g.Share)
}

// chunksHere returns how many chunks of the factor that a group builds its driver has.
func chunksHere(pre *precond.LowRank) (n int) {
	pre.Shared(func(f precond.Factor) (by dense.Products) {
		for _, c := range f.By.(*factor).m.chunks {
			if c != nil {
				n++
			}
		}
		return f.By
	})
	return n
}

func rowNoise(n int) []float64 {
	noise := make([]float64, n)
	for i := range noise {
		noise[i] = 0.2 + 0.1*float64(i%3)
	}
	return noise
}

// A preconditioner that a group builds and keeps is the same to the last bit as one of the driver alone, determinant and all, for
// any number of members; the driver has its share of the rows alone.
func TestBuildingOverAGroup(t *testing.T) {
	for _, noise := range [][]float64{{0.3}, rowNoise(1400)} {
		a := newGrown(t, noise)
		for members, here := range []int{-1, 3, 2, 2, 2, 1, 0} { // of 6 chunks
			t.Run(fmt.Sprintf("noise=%d/members=%d", len(noise), members), func(t *testing.T) {
				g, _, _ := cluster(t, a.p, members, ServerConfig{})
				eventually(t, "shares of each", func() bool { // not if one was late
					pre := a.build(t, g, noise)
					equal(t, a.apply(pre), a.want)
					if pre.LogDet() != a.pre.LogDet() || pre.Rank() != a.pre.Rank() {
						t.Fatalf("rank %d, determinant %v, want %d and %v", pre.Rank(), pre.LogDet(), a.pre.Rank(), a.pre.LogDet())
					}
					return members == 0 || chunksHere(pre) == here
				})
			})
		}
	}
}

// A covariance with a part of low rank, whose columns come beside those of the pivots.
func TestBuildingAMeanOverAGroup(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	c, err := kernel.Parse("a*rbf(1-3:u)+=100*linear(0,1,2)", 3)
	if err != nil {
		t.Fatal(err)
	}
	a.p.cov, a.p.theta = c, []float64{1.2, 0.4}
	op := a.p.operator()
	op.Set(a.p.theta, []float64{0.3})
	if a.pre, err = precond.Build(t.Context(), "rpcholesky", op, grownRank, random.Key{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	a.want = a.apply(a.pre)
	g, _, _ := cluster(t, a.p, 2, ServerConfig{})
	equal(t, a.apply(a.build(t, g, []float64{0.3})), a.want)
}

// buildKinds are what members are asked for while they build, and apply, a preconditioner.
var buildKinds = map[string]Kind{"grow": Grow, "gram": Gram, "low": Low, "trans": Trans}

// killer kills a worker when it is asked for the n-th unit of a kind.
type killer struct {
	Member
	kind  Kind
	left  *atomic.Int64
	after func()
}

func (k killer) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	if p.Kind == k.kind && k.left.Add(-1) == 0 {
		k.after()
	}
	return k.Member.Do(ctx, p, u, out)
}

// A member that is killed in any part of the building, or of an application, costs no bit; nor do all of them.
func TestMembersKilledWhileTheyBuild(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	for name, kind := range buildKinds {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/all=%v", name, all), func(t *testing.T) {
				g, names, w := cluster(t, a.p, 2, ServerConfig{})
				var left atomic.Int64
				left.Store(4)
				var once sync.Once
				dial := g.conf.Dial
				g.conf.Dial = func(name string) Member {
					return killer{dial(name), kind, &left, func() {
						once.Do(func() {
							w.kill(names[0])
							if all {
								w.kill(names[1])
							}
						})
					}}
				}
				pre := a.build(t, g, []float64{0.3})
				equal(t, a.apply(pre), a.want)
				if left.Load() > 0 {
					t.Fatal("nobody was killed")
				}
				equal(t, a.apply(pre), a.want)
				if g.SetMembers(); true { // all are gone
					equal(t, a.apply(pre), a.want)
				}
			})
		}
	}
}

// A member that is stuck while it builds is not waited for for ever.
func TestMemberStuckWhileItBuilds(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	busy := parallel.NewBudget(1)
	g, _, _ := cluster(t, a.p, 1, ServerConfig{Budget: busy})
	if err := busy.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, a.apply(a.build(t, g, []float64{0.3})), a.want)
	if g.conf.Meter.Load().Hedges == 0 {
		t.Error("the driver waited")
	}
	busy.Release()
}

// What a member builds wrongly is found, whether in what it says of the diagonal, of LᵀL or of products; the member is named, and the
// bits are right.
func TestMemberThatBuildsWrongly(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	for name, kind := range buildKinds {
		t.Run(name, func(t *testing.T) {
			g, names, _ := cluster(t, a.p, 2, ServerConfig{})
			var told []string
			g.sched.wrong = func(member, _ string) { told = append(told, member) }
			g.factors.wrong = g.sched.wrong
			dial := g.conf.Dial
			var sealed atomic.Bool
			g.conf.Dial = func(name string) Member {
				if name != names[1] {
					return dial(name)
				}
				return faulty{dial(name), func(p *Product, _ Unit, out []float64) {
					if p.Kind == kind && (kind == Grow || kind == Gram && !sealed.Swap(true) || kind == Low || sealed.Load()) {
						for i := range out {
							out[i] *= 1 + 1e-6
						}
					}
				}}
			}
			pre := a.build(t, g, []float64{0.3})
			sealed.Store(true)
			equal(t, a.apply(pre), a.want)
			if kind == Gram { // nobody can say who it was
				return
			}
			if !slices.Contains(told, names[1]) || slices.Contains(told, names[0]) {
				t.Errorf("wrong: %v, want %v", told, names[1:])
			}
		})
	}
}

// A chain of the same process whose group did not build the factor has it computed anew, by its recipe.
func TestFactorOfAnotherGroup(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	one, _, _ := cluster(t, a.p, 1, ServerConfig{})
	pre := a.build(t, one, []float64{0.3})
	for _, members := range []int{0, 2} {
		g, _, _ := cluster(t, a.p, members, ServerConfig{})
		g.Set(slices.Repeat([]float64{0.5}, len(a.p.theta)), []float64{1})
		equal(t, a.apply(pre.Shared(g.Share)), a.want)
	}
}

// Members that join while a preconditioner is in use take a share of it.
func TestMemberThatJoinsComputesItsShare(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	g, names, w := cluster(t, a.p, 1, ServerConfig{})
	pre := a.build(t, g, []float64{0.3})
	third := w.start(ServerConfig{Source: inputs{a.p.in}, Budget: parallel.NewBudget(1)})
	g.SetMembers(names[0], third)
	eventually(t, "a share", func() bool {
		equal(t, a.apply(pre), a.want)
		return held(g)[1] > 0
	})
}

// A worker that has room for less than its share keeps what it has room for; others compute the rest.
func TestBuildingWithLittleRoom(t *testing.T) {
	a := newGrown(t, []float64{0.3})
	cols := int64(a.pre.Rank())
	most := 8*256*cols + 4*cols*cols + 1 // a chunk, and the factor at the pivots
	server := NewServer(ServerConfig{Source: inputs{a.p.in}, Budget: parallel.NewBudget(1), MaxHeld: most})
	g, names, w := cluster(t, a.p, 1, ServerConfig{})
	small := w.serve(server)
	g.SetMembers(names[0], small)
	var seen atomic.Int64
	dial := g.conf.Dial
	g.conf.Dial = func(name string) Member {
		return waiting{dial(name), func(context.Context, *Product) { seen.Store(max(seen.Load(), server.held.Load())) }}
	}
	pre := a.build(t, g, []float64{0.3})
	equal(t, a.apply(pre), a.want)
	if n := seen.Load(); n > most {
		t.Errorf("the worker held %d bytes, and has room for %d", n, most)
	}
}

// older is a worker of a version that builds no preconditioners, and knows no passes of approximations: it refuses what it does not know, and ends the
// session.
type older struct{ *Server }

func (o older) Session(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
	return o.serve(outdated{stream})
}

type outdated struct{ messages }

func (o outdated) RecvMsg(m any) error {
	if err := o.messages.RecvMsg(m); err != nil {
		return err
	}
	r := m.(*frame).head.(*pb.TilesRequest)
	switch {
	case r.GetPivots() != nil:
		return invalid("a message of an unknown kind")
	case r.GetProduct() == nil:
		return nil
	}
	switch r.GetProduct().Kind {
	case pb.TilesKind_TILES_KIND_GROW, pb.TilesKind_TILES_KIND_GRAM, pb.TilesKind_TILES_KIND_PASS:
		return invalid("product %d is of an unknown kind", r.GetProduct().Id)
	}
	return nil
}

// Beside a member of an older version, or with such members alone, a preconditioner is built by those who know how, to the same bits; the older one
// is asked once, and has its part of products with K.
func TestBuildingBesideAnOlderMember(t *testing.T) {
	for _, noise := range [][]float64{{0.3}, rowNoise(1400)} {
		a := newGrown(t, noise)
		for _, newer := range []int{0, 2} {
			t.Run(fmt.Sprintf("noise=%d/newer=%d", len(noise), newer), func(t *testing.T) {
				g, names, w := cluster(t, a.p, newer, ServerConfig{})
				old := w.serve(older{NewServer(ServerConfig{Source: inputs{a.p.in}, Budget: parallel.NewBudget(1)})})
				g.SetMembers(append(slices.Clone(names), old)...)
				pre := a.build(t, g, noise)
				equal(t, a.apply(pre), a.want)
				if pre.LogDet() != a.pre.LogDet() {
					t.Errorf("determinant %v, want %v", pre.LogDet(), a.pre.LogDet())
				}
				p := g.peers[newer]
				if p.name != old || p.rows.most() != 0 || held(g)[newer] != 0 {
					t.Errorf("%s has room for %d chunks, and holds %d", p.name, p.rows.most(), held(g)[newer])
				}
				eventually(t, "a part of a product", func() bool {
					dst := solve.Columns(a.p.in.Len(), len(a.p.v))
					if err := g.Mul(t.Context(), dst, a.p.v); err != nil {
						t.Fatal(err)
					}
					return p.pace > 0
				})
			})
		}
	}
}

// Likewise of sums over rows.
func TestPassesBesideAnOlderMember(t *testing.T) {
	a := newApproximated()
	want := a.values(t, nil, sparse.SGPR)
	for _, newer := range []int{0, 1} {
		g, names, w := cluster(t, a.problem, newer, ServerConfig{})
		g.eager = true
		log := watch(g)
		old := w.serve(older{NewServer(ServerConfig{Source: inputs{a.in}, Budget: parallel.NewBudget(1)})})
		g.SetMembers(append(slices.Clone(names), old)...)
		holdSelf(g, log.first)
		equal(t, a.values(t, g, sparse.SGPR), want)
		if all := strings.Join(log.reasons(), "; "); !strings.Contains(all, "unknown kind") {
			t.Errorf("the reasons are %s", all)
		}
	}
}
