package shard

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sparse"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// approximated is data in three blocks, and inducing inputs.
type approximated struct {
	*problem
	z    *kernel.Inputs
	y, v []float64
}

func newApproximated() *approximated {
	a := &approximated{problem: newProblem(kernel.RBF, 9000, 2, 1)}
	a.z = a.in.Select([]int{7, 77, 777, 1777, 2777, 3777, 4777, 5777, 6777, 7777, 8777})
	a.y = a.problem.v[0]
	for i := range a.z.Len() {
		a.v = append(a.v, math.Sin(float64(i)))
	}
	return a
}

// values returns what approximations come to at θ, with the passes of a summer, nil for none.
func (a *approximated) values(t testing.TB, s sparse.Summer, kinds ...sparse.Kind) (all [][]float64) {
	t.Helper()
	ctx, b := context.Background(), parallel.NewBudget(1)
	keep := func(err error, x ...[]float64) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x...)
	}
	row := func(i int, mean, variance float64) (value, score, weight float64) {
		y, rate := math.Round(math.Abs(a.y[i])), math.Exp(mean+variance/2)
		return y*mean - rate, y - rate, rate
	}
	f := a.cov.At(a.theta)
	for _, kind := range kinds {
		of := kind
		if kind == sparse.SVGP || kind == sparse.SGPMC {
			of = sparse.SGPR
		}
		x := sparse.New(of, a.cov, a.in, a.z, b)
		x.Share(s)
		switch kind {
		case sparse.SGPMC:
			j, err := x.Joint(ctx, f, row, a.v)
			if err != nil {
				t.Fatal(err)
			}
			theta, err := j.Theta(ctx)
			keep(err, []float64{j.Value}, j.V, j.Mean, j.Variance, theta)
		case sparse.SVGP:
			v, err := sparse.NewVariational(x).Gradient(ctx, f, row, true)
			keep(err, []float64{v.LogDensity}, v.Theta, v.Inducing, v.Mean, v.Variance)
		default:
			for _, noise := range [][]float64{{0.3}, a.noise} {
				v, err := x.Gradient(ctx, f, noise, a.y, true)
				keep(err, []float64{v.LogDensity}, v.Theta, v.Noise, v.Inducing)
			}
		}
	}
	return all
}

var allKinds = append(sparse.Kinds(), sparse.SVGP, sparse.SGPMC)

// Sums over the rows are the same to the last bit as those of the driver alone, for any number of members.
func TestPassesOverAGroup(t *testing.T) {
	a, served := newApproximated(), &Meter{}
	want := a.values(t, nil, allKinds...)
	for members := range 4 {
		g, _, _ := cluster(t, a.problem, members, ServerConfig{Meter: served})
		g.eager = true
		equal(t, a.values(t, g, allKinds...), want)
		before := g.state
		g.Set(a.theta, []float64{1})
		if before == g.state || g.passState != nil && g.passState.Version == g.state.Version {
			t.Errorf("θ of passes and of products has the number %d", g.state.Version)
		}
	}
	if served.Load().Tiles == 0 {
		t.Error("no member computed anything")
	}
}

func TestMemberKilledDuringAPass(t *testing.T) {
	a := newApproximated()
	want := a.values(t, nil, sparse.SGPMC)
	g, names, w := cluster(t, a.problem, 2, ServerConfig{})
	g.eager = true
	log := watch(g)
	holdSelf(g, log.first)
	var units int
	var mu sync.Mutex
	hook(g, func(string) {
		mu.Lock()
		defer mu.Unlock()
		if units++; units == 2 {
			for _, n := range names {
				w.kill(n)
			}
		}
	})
	for range 2 { // the second time alone
		equal(t, a.values(t, g, sparse.SGPMC), want)
	}
	if g.conf.Meter.Load().TileRetries == 0 {
		t.Error("nothing was done again")
	}
}

// Answers to passes that cannot be right, and one that can but for its bits, are replaced.
func TestPassesThatAreWrong(t *testing.T) {
	a := newApproximated()
	want := a.values(t, nil, sparse.SGPR)
	for name, change := range map[string]func(x []float64){
		"NaN":   func(x []float64) { x[len(x)/2] = math.NaN() },
		"trace": func(x []float64) { x[0] *= 1 + 1e-6 },
		"bit":   func(x []float64) { x[1] = math.Nextafter(x[1], 9) },
	} {
		t.Run(name, func(t *testing.T) {
			g, _, w := cluster(t, a.problem, 0, ServerConfig{})
			g.eager = true
			log, answered := watch(g), make(chan struct{}, 1)
			g.sched.self = hooked{g.sched.self, func(ctx context.Context, _ Unit) { // the member has the time to answer
				select {
				case <-answered:
				case <-time.After(200 * time.Millisecond):
				case <-ctx.Done():
				}
			}}
			l := &liar{NewServer(ServerConfig{Source: inputs{a.in}, Budget: parallel.NewBudget(1)}), func(f *frame) []*frame {
				if m, ok := f.head.(*pb.TilesResponse); ok && m.GetAnswer() != nil {
					x := make([]float64, f.data.Len()/8)
					decode(x, f.data.ReadOnlyData())
					change(x)
					select {
					case answered <- struct{}{}:
					default:
					}
					f.data, m.GetAnswer().Crc32C = encode(x)
				}
				return []*frame{f}
			}}
			g.SetMembers(w.serve(l))
			eventually(t, "a member that is wrong", func() bool { // answers may come too late to count
				equal(t, a.values(t, g, sparse.SGPR), want)
				return g.conf.Meter.Wrong() > 0
			})
			if all := strings.Join(log.reasons(), "; "); !strings.Contains(all, "block ") && !strings.Contains(all, "not what the driver makes") {
				t.Errorf("the reasons are %s", all)
			}
		})
	}
}

// A pass is shared where computing takes longer than moving what it moves.
func TestPassesThatPay(t *testing.T) {
	for _, c := range []struct {
		s       Sums
		members int
		want    int
	}{
		{Sums{Rows: 1_000_000, Inducing: 500, Columns: 2, Shared: 254_000, Each: 129_000, Rate: 3e10, Bandwidth: 1.25e9}, 4, 4},
		{Sums{Rows: 4000, Inducing: 500, Columns: 2, Shared: 254_000, Each: 129_000, Rate: 3e10, Bandwidth: 1.25e9}, 4, 1}, // one block
		{Sums{Rows: 20_000, Inducing: 20, Columns: 2, Shared: 500, Each: 4300, Rate: 3e10, Bandwidth: 1.25e9}, 4, 1},
		{Sums{Rows: 1_000_000, Inducing: 500, Columns: 2, Shared: 254_000, Each: 129_000, Rate: 3e10, Bandwidth: 1e6}, 4, 1},
	} {
		if got := c.s.Members(c.members); got != c.want {
			t.Errorf("%+v: %d members, want %d", c.s, got, c.want)
		}
	}
}

// A pass over many rows is cut into as many units as there are pieces, that cover all blocks.
func TestUnitsOfAPass(t *testing.T) {
	for _, n := range []int{1, 4096, 4097, 300_000, 1_000_000} {
		p := &Product{Kind: Pass, N: n, Pass: &pass{Pass: &sparse.Pass{Rows: [][]float64{nil}}}}
		units, at, all := p.split(1, 1), 0, pieces(0)
		for _, u := range units {
			if u.Lo != at || u.Hi <= u.Lo {
				t.Fatalf("%d rows: units %v", n, units)
			}
			at = u.Hi
			all |= p.needs(u)
		}
		if at != sparse.Blocks(n) || len(units) > passUnits || all != 1<<(len(units)+1)-1 || slices.Max([]int{at}) < 1 {
			t.Errorf("%d rows: units %v, pieces %b", n, units, all)
		}
	}
}

// passScript is a session of a pass with two inducing inputs, as a driver sends it.
func passScript(t testing.TB, p *problem, k sparse.PassKind) [][]byte {
	isa, err := cmvp.ISA()
	if err != nil {
		t.Fatal(err)
	}
	a := sparse.New(sparse.FITC, p.cov, p.in, p.in.Select([]int{0, 1}), parallel.NewBudget(1))
	a.Set(p.cov.At(p.theta))
	of := &sparse.Pass{Kind: k, Of: sparse.FITC, Points: true, Z: a.Inducing()}
	shared, columns, _ := sparse.PassShape(k, 2)
	for _, n := range shared {
		of.Shared = append(of.Shared, slices.Repeat([]float64{0.5}, n))
	}
	for range columns {
		of.Rows = append(of.Rows, p.noise)
	}
	product := &Product{ID: 1, Kind: Pass, State: &State{Version: 1, Theta: p.theta, Noise: []float64{0}}, N: p.in.Len(), V: of.Rows, Pass: newPass(of, a)}
	s := &session{data: Data{Address: "x", Covariance: p.cov, ISA: isa, Rows: p.in.Len()}}
	var all [][]byte
	for _, f := range s.frames(product, product.split(1, 1)[0], 1) {
		all = append(all, raw(t, f.head, f.data))
	}
	return all
}

func TestServerRefusesBadPasses(t *testing.T) {
	p := newProblem(kernel.RBF, 300, 2, 1)
	c := ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1)}
	for k := range sparse.Slopes + 1 {
		if out, err := serveBytes(c, passScript(t, p, k)); err != nil || len(out) == 0 {
			t.Fatalf("a good session of kind %d: %v, %d answers", k, err, len(out))
		}
	}
	good := passScript(t, p, sparse.Slopes)
	for name, x := range map[string]struct {
		change func(m *pb.TilesProduct)
		want   string
	}{
		"nothing":      {func(m *pb.TilesProduct) { m.Pass = nil }, "by 0 inducing inputs"},
		"too many":     {func(m *pb.TilesProduct) { m.Pass.Inducing = 301 }, "by 301 inducing inputs"},
		"kind":         {func(m *pb.TilesProduct) { m.Pass.Kind = 3 }, "of kind 3"},
		"sign":         {func(m *pb.TilesProduct) { m.Pass.Kind = -1 }, "of kind -1"},
		"of":           {func(m *pb.TilesProduct) { m.Pass.Of = "svgp" }, "svgp"},
		"shared":       {func(m *pb.TilesProduct) { m.Pass.Shared[1] = 3 }, "shared vector 1 of a pass has 3 numbers, not 2"},
		"none":         {func(m *pb.TilesProduct) { m.Pass.Shared[2] = 0 }, "shared vector 2 of a pass has 0 numbers, not 4"},
		"shared count": {func(m *pb.TilesProduct) { m.Pass.Shared = nil }, "with 0 shared vectors"},
		"columns":      {func(m *pb.TilesProduct) { m.Columns = 1 << 30 }, "columns, not 3"},
		"theta":        {func(m *pb.TilesProduct) { m.Version = 7 }, "for θ 7, not 1"},
	} {
		_, columns, _ := sparse.PassShape(sparse.Slopes, 2)
		m := &pb.TilesProduct{Id: 2, Version: 1, Kind: pb.TilesKind_TILES_KIND_PASS, Columns: int32(columns),
			Pass: &pb.TilesPass{Kind: int32(sparse.Slopes), Of: "fitc", Inducing: 2, Shared: []int64{4, 2, 4}}}
		x.change(m)
		_, err := serveBytes(c, append(slices.Clone(good[:2]), raw(t, &pb.TilesRequest{Request: &pb.TilesRequest_Product{Product: m}}, nil)))
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	unit := &pb.TilesRequest{Request: &pb.TilesRequest_Unit{Unit: &pb.TilesUnit{Id: 2, Product: 1, Lo: 0, Hi: 2}}}
	if _, err := serveBytes(c, append(slices.Clone(good), raw(t, unit, nil))); err == nil || !strings.Contains(err.Error(), "no part of") {
		t.Errorf("a unit that is none: %v", err)
	}
	c.MaxBytes = 1 << 10
	if _, err := serveBytes(c, good); err == nil || !strings.Contains(err.Error(), "more than the 1024") {
		t.Errorf("without memory: %v", err)
	}
}
