package shard

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

var _ operator = (*Group)(nil)

func TestMain(m *testing.M) {
	if role := os.Getenv(asMember); role != "" {
		if err := processMain(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// problem is a set of inputs, θ and vectors.
type problem struct {
	in    *kernel.Inputs
	cov   *kernel.Covariance
	theta []float64
	noise []float64
	u, v  [][]float64
	group []int
}

func newProblem(f kernel.Family, n, d, s int) *problem {
	return problemOf(kernel.Single(f, d, true), n, s)
}

func problemOf(c *kernel.Covariance, n, s int) *problem {
	d := c.Dim()
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(s)))
	normal := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rnd.NormFloat64()
		}
		return x
	}
	x := normal(n * d)
	for _, l := range c.Leaves() {
		if l, ok := l.(*kernel.Coregion); ok {
			for i := range n {
				x[i*d+l.Input] = float64(i * i % 7 % len(l.Levels))
			}
		}
	}
	p := &problem{in: kernel.NewInputs(n, d, x), cov: c}
	for _, q := range c.Params() {
		switch q.Role {
		case param.Variance:
			p.theta = append(p.theta, 1.7)
		case param.Place:
			p.theta = append(p.theta, -0.3)
		default:
			p.theta = append(p.theta, (0.1+rnd.Float64())/float64(d))
		}
	}
	for range n {
		p.noise = append(p.noise, 0.1+rnd.Float64())
	}
	for c := range s {
		p.u, p.v, p.group = append(p.u, normal(n)), append(p.v, normal(n)), append(p.group, c%2)
	}
	return p
}

func (p *problem) operator() *cmvp.Operator {
	return cmvp.New(p.in, p.cov, parallel.NewBudget(1))
}

// results are what an operator makes of a problem: K·V in double and in single
// precision and the forms, with a common and with an own noise variance.
// operator is what a chain multiplies by (driver.Operator, which knows this package).
type operator interface {
	solve.SingleOperator
	precond.Covariance
	Set(theta, noise []float64)
	Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error)
	Counts() cmvp.Counts
}

func (p *problem) results(o operator) ([][]float64, error) {
	ctx := context.Background()
	n, s := p.in.Len(), len(p.v)
	a, b, c := solve.Columns(n, s), solve.Columns(n, s), solve.Columns(n, s)
	o.Set(p.theta, []float64{0.3})
	if err := o.Mul(ctx, a, p.v); err != nil {
		return nil, err
	}
	forms, err := o.Forms(ctx, p.u, p.v, p.group, min(s, 2))
	if err != nil {
		return nil, err
	}
	o.Set(p.theta, p.noise)
	if err := o.Mul(ctx, b, p.u); err != nil {
		return nil, err
	}
	if err := o.MulSingle(ctx, c, p.v); err != nil {
		return nil, err
	}
	var all [][]float64
	for _, x := range [][][]float64{a, forms, b, c} {
		all = append(all, x...)
	}
	return all, nil
}

func (p *problem) truth(t testing.TB) [][]float64 {
	t.Helper()
	want, err := p.results(p.operator())
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func equal(t testing.TB, got, want [][]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d columns, want %d", len(got), len(want))
	}
	for c := range want {
		for i := range want[c] {
			if math.Float64bits(got[c][i]) != math.Float64bits(want[c][i]) {
				t.Fatalf("column %d, row %d is %v, want %v", c, i, got[c][i], want[c][i])
			}
		}
	}
}

// inputs is a source of one set of inputs, at the address "x".
type inputs struct{ in *kernel.Inputs }

func (s inputs) Inputs(_ context.Context, address string) (*kernel.Inputs, error) {
	if address != "x" {
		return nil, fmt.Errorf("address %q: %w", address, fs.ErrNotExist)
	}
	return s.in, nil
}

// workers are tile servers on loopback addresses.
type workers struct {
	t       testing.TB
	mu      sync.Mutex
	servers map[string]*grpc.Server
}

// start serves tiles and returns the address.
func (w *workers) start(c ServerConfig) string { return w.serve(NewServer(c)) }

func (w *workers) serve(tiles pb.TilesServer) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s := grpc.NewServer(append(ServerOptions(), grpc.WaitForHandlers(true))...)
	pb.RegisterTilesServer(s, tiles)
	go s.Serve(l)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[l.Addr().String()] = s
	return l.Addr().String()
}

func (w *workers) kill(address string) {
	w.mu.Lock()
	s := w.servers[address]
	w.mu.Unlock()
	s.Stop()
}

var quiet = slog.New(slog.DiscardHandler)

// cluster returns a group over n workers, all on this machine.
func cluster(t testing.TB, p *problem, n int, c ServerConfig) (*Group, []string, *workers) {
	t.Helper()
	if c.Source == nil {
		c.Source = inputs{p.in}
	}
	w := &workers{t: t, servers: map[string]*grpc.Server{}}
	if c.Budget == nil {
		c.Budget = parallel.NewBudget(1)
	}
	peers := NewPool(c.Meter, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if c.Peers == nil {
		c.Peers = peers
	}
	var names []string
	for range n {
		names = append(names, w.start(c))
	}
	g, done := newGroup(t, p)
	t.Cleanup(func() {
		done()
		for _, s := range w.servers {
			s.Stop()
		}
		peers.Close()
	})
	g.SetMembers(names...)
	return g, names, w
}

// newGroup returns a group without members, and what ends it.
func newGroup(t testing.TB, p *problem) (*Group, func()) {
	isa, err := cmvp.ISA()
	if err != nil {
		t.Fatal(err)
	}
	meter := &Meter{}
	pool := NewPool(meter, grpc.WithTransportCredentials(insecure.NewCredentials()))
	d := Data{Address: "x", Covariance: p.cov, ISA: isa, Rows: p.in.Len()}
	g := New(Config{Local: p.operator(), MinRows: 1, Bandwidth: 1e15, Meter: meter, Log: quiet,
		Dial: func(name string) Member { return pool.Member(name, d) }})
	return g, func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSameBitsOnAnyNumberOfWorkers(t *testing.T) {
	served := &Meter{}
	n := 2000
	if testing.Short() {
		n = 1100
	}
	covariances := map[string]*kernel.Covariance{}
	for _, f := range kernel.Families() {
		covariances[f.String()] = kernel.Single(f, 3, true)
	}
	for name, text := range map[string]string{"sum": "a*rbf(1-3:u)+b*matern32(2:v)", "product": "a*rbf(1:u[1],2:u[2])*matern12(3:v)+b*rbf(3:w)", "periodic": "a*periodic(1:u:p:1)*rbf(1:v)+b*warped(rbf(2-3:=0.3);2:e:=1.3:-4:4)",
		"shapes": "a*rq(1:u[1],2:u[2];al)*hamming(3:t)+b*cosine(1:p:1)*wendland(2:v)+c*coregion(3:0:s:f:A,B,C)*rbf(1:w)",
		"lines":  "a*linear(1,2)+b*rbf(1-3:u)*linear(0,3:0.5)+=2*linear(0)+c*sigmoid(1:d:=0.5:0:1)*matern12(2:v)", "low rank": "a*linear(0,1,2)+b*linear(3)"} {
		c, err := kernel.Parse(text, 3)
		if err != nil {
			t.Fatal(err)
		}
		covariances[name] = c
	}
	for name, c := range covariances {
		for _, s := range []int{1, 5, 17} {
			p := problemOf(c, n, s)
			want := p.truth(t)
			for _, members := range []int{0, 1, 2, 4} {
				if name != "rbf" && members == 1 {
					continue
				}
				t.Run(fmt.Sprintf("%s/s=%d/members=%d", name, s, members), func(t *testing.T) {
					g, _, _ := cluster(t, p, members, ServerConfig{Meter: served})
					got, err := p.results(g)
					if err != nil {
						t.Fatal(err)
					}
					equal(t, got, want)
					if l := g.conf.Meter.Load(); l.TileRetries != 0 || members == 0 && l.BytesSent != 0 {
						t.Errorf("load %v", l)
					}
				})
			}
		}
	}
	if l := served.Load(); l.Tiles == 0 || l.Pairs == 0 || l.BusySeconds == 0 || l.BytesSent == 0 || l.BytesReceived == 0 {
		t.Errorf("the members did nothing: %v", l)
	}
}

// Members pass over the pairs of tiles that the driver passes over, in the same order of the rows.
func TestSameBitsOfArrangedInputs(t *testing.T) {
	c, err := kernel.Parse("a*rbf(1-3:u)+b*matern32(2:v)*rbf(1:w)", 3)
	if err != nil {
		t.Fatal(err)
	}
	p := problemOf(c, 1500, 5)
	for i, q := range c.Params() {
		if q.Role == param.Rate {
			p.theta[i] *= 1e4
		}
	}
	p.in = cmvp.Arrange(p.in, []int{0})
	want := p.truth(t)
	for _, members := range []int{0, 2} {
		g, _, _ := cluster(t, p, members, ServerConfig{})
		got, err := p.results(g)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, got, want)
		alone := p.operator()
		if _, err := p.results(alone); err != nil {
			t.Fatal(err)
		}
		if g.Counts() != alone.Counts() || g.Counts().Pairs >= 4*1500*1500 {
			t.Errorf("counted %+v, want %+v and fewer than all pairs", g.Counts(), alone.Counts())
		}
	}
}

// A preconditioner is built through the group's products, and is the same as that of
// the driver alone.
func TestPreconditionerOverAGroup(t *testing.T) {
	p := newProblem(kernel.RBF, 1100, 3, 1)
	served := &Meter{}
	g, _, _ := cluster(t, p, 2, ServerConfig{Meter: served})
	deadline := time.Now().Add(time.Minute)
	g.sched.self = hooked{g.sched.self, func(ctx context.Context, _ Unit) { // leaves the members something
		for served.Load().Tiles == 0 && ctx.Err() == nil && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}}
	g.Set(p.theta, []float64{0.3})
	alone := p.operator()
	alone.Set(p.theta, []float64{0.3})
	for _, kind := range []string{"svd", "rpcholesky"} {
		var solved [2][][]float64
		for i, k := range []precond.Covariance{g, alone} {
			pre, err := precond.Build(t.Context(), kind, k, 40, random.Key{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			solved[i] = solve.Columns(1100, 1)
			pre.Solve(solved[i], p.v)
		}
		equal(t, solved[0], solved[1])
	}
	if served.Load().Tiles == 0 {
		t.Error("the members computed nothing")
	}
}
