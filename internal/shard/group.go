package shard

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
	"github.com/ulisse-gp/ulisse/internal/tracing"
)

// Config says how a group computes.
type Config struct {
	// Local is the driver's own operator. It is the group's from now on.
	Local *cmvp.Operator
	// Dial returns the member of a name, without waiting for it. It may be nil if
	// there are to be no members.
	Dial func(name string) Member
	// MinRows is the number of rows below which products are not split; 0 means
	// DefaultMinRows.
	MinRows int
	// Units is into how many parts a member's share of gradient forms is cut, the last
	// of them once more into four; 0 means 4. With more of them members of
	// different speed finish closer together.
	Units int
	// Bandwidth is how many bytes the driver can send in a second; 0 means 1.25e9,
	// 10 Gb/s. A product is split over fewer members than there are if sending
	// it to more would take longer than they save, but over four at the least.
	Bandwidth float64
	// Meter counts the work; nil means that it is not counted.
	Meter *Meter
	// Log is told of members that fail; nil means slog.Default.
	Log *slog.Logger
	// Wrong, if set, is told of a member whose numbers were wrong, and how that was
	// seen. It must not wait.
	Wrong func(member, reason string)
}

// DefaultMinRows is where products last for some milliseconds on a worker of
// several cores, so that a round trip is not most of it (docs/benchmarks.md).
const DefaultMinRows = 8000

// DefaultSplitRows is the number of rows from which idle workers join the groups of chains.
const DefaultSplitRows = 20_000

const (
	defaultUnits     = 4
	defaultBandwidth = 1.25e9
	// depth is how many units a member has: while one is computed the request for
	// the next is on its way.
	depth = 2
	// patienceOfDriver is how long nothing may come in an exchange of sums, beside what moving them takes.
	patienceOfDriver = 20 * time.Second
)

// Group is K(θ) over a group of workers: a solve.SingleOperator, a
// posterior.Operator, a precond.Covariance and a driver.Operator; and a sparse.Summer. The bits of its results are those of
// Config.Local. Like that, it is not safe for concurrent use, but for
// SetMembers, which may be called at any time.
type Group struct {
	local *cmvp.Operator
	conf  Config
	sched scheduler
	state *State
	// states is how many θ there were, of passes too.
	states uint64
	bound  float64 // of |K_f| at θ; 0 if it is not known yet
	last   uint64  // product
	count  cmvp.Counts
	sums   []float64 // of all units of a product, in their order
	// Of factors of preconditioners, which members hold rows of.
	factors  scheduler
	eager    bool          // to share products that are not worth it: of tests
	versions uint64        // of factors
	ids      atomic.Uint64 // of their products
	chunks   []float64     // what these make
	failed   error         // why one of them did: the next product tells
	sending  chan struct{} // holds an element for each member that is sent rows
	// Of passes of sparse approximations.
	passRates [3]float64 // of each kind, as scheduler.rate
	passState *State
	// Of exchanges of sums among the members.
	key    []byte        // by which members know each other
	stall  time.Duration // how long nothing may come
	forced *Plan         // how, of tests
	pause  time.Duration // the last truce; 0 if exchanges have done well since
	truce  time.Time     // sums are gathered before
	// references are what products are verified by, in double and in single precision.
	references [2]reference

	mu    sync.Mutex
	names []string // wanted members
	peers []*peer  // those of the last product
}

// New returns a group of the driver alone. Set must be called before it is used.
func New(c Config) *Group {
	if c.MinRows == 0 {
		c.MinRows = DefaultMinRows
	}
	if c.Units == 0 {
		c.Units = defaultUnits
	}
	if c.Bandwidth == 0 {
		c.Bandwidth = defaultBandwidth
	}
	if c.Meter == nil {
		c.Meter = &Meter{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	self := &local{op: c.Local, meter: c.Meter}
	sched := scheduler{self: self, units: c.Units, depth: depth, bandwidth: c.Bandwidth, meter: c.Meter, log: c.Log, wrong: c.Wrong}
	key := make([]byte, keyLen)
	crand.Read(key) // which never fails
	return &Group{local: c.Local, conf: c, state: &State{}, sched: sched, factors: sched, sending: make(chan struct{}, maxLoads), key: key, stall: patienceOfDriver}
}

// SetMembers changes who shares the products beside the driver, from the next
// product on. Members that stay keep their sessions.
func (g *Group) SetMembers(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names = slices.Clone(names)
}

// members brings the peers in line with what SetMembers asked for.
func (g *Group) members() ([]*peer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	g.peers = slices.DeleteFunc(g.peers, func(p *peer) bool {
		gone := !slices.Contains(g.names, p.name)
		if gone {
			errs = append(errs, p.Close(), p.rows.Close())
		}
		return gone
	})
	for _, name := range g.names {
		if !slices.ContainsFunc(g.peers, func(p *peer) bool { return p.name == name }) {
			rows := &holder{Member: g.conf.Dial(name), g: g, name: name, limit: dense.Chunks(g.Len())}
			g.peers = append(g.peers, &peer{Member: g.conf.Dial(name), rows: rows, name: name})
		}
	}
	return g.peers, errors.Join(errs...)
}

// Close ends the sessions with all members.
func (g *Group) Close() error {
	g.SetMembers()
	_, err := g.members()
	return err
}

// Len returns n.
func (g *Group) Len() int { return g.local.Len() }

// Set changes θ and the variances of the noise, as cmvp.Operator.Set.
func (g *Group) Set(theta, noise []float64) {
	g.local.Set(theta, noise)
	g.states++
	g.state = &State{Version: g.states, Theta: slices.Clone(theta), Noise: slices.Clone(noise)}
	g.bound = 0
}

// Inputs returns the inputs.
func (g *Group) Inputs() *kernel.Inputs { return g.local.Inputs() }

// Function returns the covariance function at θ.
func (g *Group) Function() *kernel.Function { return g.local.Function() }

// Noise returns the diagonal added to K_f, to read.
func (g *Group) Noise() []float64 { return g.local.Noise() }

// Budget returns the driver's own cores.
func (g *Group) Budget() *parallel.Budget { return g.local.Budget() }

// CrossMatrix returns K_f(X*,X), computed by the driver alone: sending elements
// takes longer than computing them.
func (g *Group) CrossMatrix(ctx context.Context, points *kernel.Inputs) ([][]float64, error) {
	return g.local.CrossMatrix(ctx, points)
}

// Counts returns the work done since the group was made, whoever did it: what
// Config.Local would have counted.
func (g *Group) Counts() cmvp.Counts { return g.count }

// Mul sets dst[c] = K·v[c], as cmvp.Operator.Mul.
func (g *Group) Mul(ctx context.Context, dst, v [][]float64) error {
	g.countProduct(v, cmvp.Double)
	return g.product(ctx, &Product{Kind: Double, V: v}, dst)
}

// MulSingle is Mul in single precision.
func (g *Group) MulSingle(ctx context.Context, dst, v [][]float64) error {
	g.countProduct(v, cmvp.Single)
	g.count.Singles++
	return g.product(ctx, &Product{Kind: Single, V: v}, dst)
}

func (g *Group) countProduct(v [][]float64, p cmvp.Precision) {
	g.count.Products++
	g.count.Columns += int64(len(v))
	g.count.Pairs += g.local.Evaluated(p)
}

// Forms returns the gradient forms, as cmvp.Operator.Forms.
func (g *Group) Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error) {
	g.count.Forms++
	g.count.Pairs += g.local.FormsEvaluated()
	if err := g.product(ctx, &Product{Kind: Forms, U: u, V: v, Group: group, Groups: groups, Sums: g.local.FormSums(groups)}, nil); err != nil {
		return nil, err
	}
	return g.local.ReduceForms(g.sums, groups), nil
}

// product computes a product into dst, or into the group's sums.
func (g *Group) product(ctx context.Context, p *Product, dst [][]float64) error {
	if err := g.failed; err != nil {
		return err
	}
	n := g.Len()
	for _, cols := range [][][]float64{p.V, p.U, dst} {
		for c := range cols {
			if len(cols[c]) != n {
				panic(fmt.Sprintf("shard: column %d has %d rows, want %d", c, len(cols[c]), n))
			}
		}
	}
	if p.Kind != Forms && len(dst) != len(p.V) || p.Kind == Forms && (len(p.U) != len(p.V) || len(p.Group) != len(p.V)) {
		panic(fmt.Sprintf("shard: %d columns against %d and %d, in %d groups", len(p.V), len(p.U), len(dst), len(p.Group)))
	}
	peers, err := g.members()
	if err != nil {
		g.conf.Log.Warn("parting with a member of the group", "reason", err)
	}
	g.last++
	p.ID, p.State, p.N = g.last, g.state, n
	ctx, end := tracing.Within(ctx, "product")
	defer end()
	lowRank := g.Function().Pairs() == nil // then products are no work to split
	alone := len(peers) == 0 || n < g.conf.MinRows || len(p.V) == 0 || lowRank
	if alone && p.Kind != Forms {
		return g.alone(ctx, p, dst)
	}
	p.V, p.U = g.local.There(p.V), g.local.There(p.U)
	switch {
	case alone:
		g.room(p)
		return g.alone(ctx, p, nil)
	case p.Kind == Forms || !g.local.Arranged():
		return g.split(ctx, p, dst, peers)
	}
	back := solve.Columns(n, len(dst))
	if err := g.split(ctx, p, back, peers); err != nil {
		return err
	}
	g.local.Back(dst, back)
	return nil
}

// split computes a product, whose rows are in the order of the local operator's There, with members of the group.
func (g *Group) split(ctx context.Context, p *Product, dst [][]float64, peers []*peer) error {
	defer p.free()
	if g.bound == 0 {
		g.bound = largest(g.local)
	}
	p.Bound, p.Scale, p.Trace = g.bound, g.Function().Pairs().Scale(), tracing.Carry(ctx)
	if p.Kind != Forms {
		p.Factor = cmvp.Scales(p.V, p.Kind.precision())
	}
	if p.Kind != Forms {
		if x := g.exchange(p, peers); x != nil {
			if done, err := g.exchanged(ctx, p, dst, peers, x); done || err != nil {
				return err
			}
		}
	}
	g.room(p)
	shares, err := g.sched.run(ctx, p, peers, func(u Unit, out []float64) { copy(p.place(g.sums, u), out) })
	if err != nil {
		return err
	}
	return g.verify(ctx, p, dst, peers, shares)
}

// room makes room for the sums of a product.
func (g *Group) room(p *Product) {
	size := p.Size(Unit{0, p.units()})
	if cap(g.sums) < size {
		g.sums = make([]float64, size)
	}
	g.sums = g.sums[:size]
}

// largest returns the largest element of K_f, which lies on its diagonal.
func largest(op *cmvp.Operator) float64 {
	in, f, most := op.Inputs(), op.Function(), 0.0
	for i := range in.Len() {
		most = max(most, f.Variance(in.Row(i)))
	}
	return most
}

// alone computes a product on the driver.
func (g *Group) alone(ctx context.Context, p *Product, dst [][]float64) (err error) {
	began := time.Now()
	defer func() {
		if err == nil {
			g.conf.Meter.computed(float64(p.N)*float64(p.N), time.Since(began), false)
		}
	}()
	switch p.Kind {
	case Single:
		return g.local.MulSingle(ctx, dst, p.V)
	case Forms:
		return g.local.FormsTasks(ctx, g.sums, p.U, p.V, p.Group, p.Groups, 0, cmvp.NewGrid(p.N).Tasks())
	}
	return g.local.Mul(ctx, dst, p.V)
}
