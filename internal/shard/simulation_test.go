package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
)

// line is a resource that serves one after another: a network card, a processor.
type line struct {
	mu   sync.Mutex
	free time.Time
}

// reserve takes a turn of some length, and returns how long it is to its end.
func (l *line) reserve(d time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(d)
	return l.free.Sub(now)
}

// use waits for a turn, and through it. What is not used of it because ctx is done others may have.
func (l *line) use(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(l.reserve(d))
	err := sleep(ctx, time.Until(end))
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.free = l.free.Add(-min(d, time.Until(end)))
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// simulated is a member that takes the time that computing and sending would
// take, and computes nothing.
type simulated struct {
	name     string
	others   map[string]*simulated // members by name
	up, down line                  // its own network card, for what members exchange
	rate     float64               // elements of K a second
	apply    float64               // elements of L and columns a second
	out, in  *line                 // the driver's network card; nil for the driver itself
	stuck    bool
	faulty   float64 // probability that a unit fails

	cpu  line
	mu   sync.Mutex
	rnd  *rand.Rand
	id   uint64 // product
	have pieces // of its vectors, that are there or on their way
	due  time.Time
	kept map[int]bool // parts of the product
}

const (
	bandwidth = 1.25e9                 // bytes a second, in each direction: 10 Gb/s
	latency   = 100 * time.Microsecond // one way
)

func transfer(bytes int) time.Duration {
	return time.Duration(float64(bytes) / bandwidth * 1e9)
}

var errFault = errors.New("a simulated fault")

func (m *simulated) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	if m.out != nil && p.Add {
		if err := m.gather(ctx, p, u.Lo); err != nil {
			return err
		}
	} else if m.out != nil {
		if err := m.receive(ctx, p, u); err != nil {
			return err
		}
	}
	if m.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	fails := m.rnd.Float64() < m.faulty
	m.mu.Unlock()
	rate := m.rate
	if p.L != nil {
		rate = m.apply
	}
	if err := m.cpu.use(ctx, time.Duration(p.work(u)/rate*1e9)); err != nil {
		return err
	}
	if p.Kind == Hold {
		out[1] = 1e18 // bytes that it has room for
	}
	if m.in == nil && !fails {
		return nil
	}
	m.mu.Lock()
	if fails { // its session is over, and what it kept
		clear(m.kept)
	} else if p.Exchange != nil && !p.Add && m.id == p.ID {
		m.kept[u.Lo] = true
	}
	m.mu.Unlock()
	if fails {
		return errFault
	}
	if err := sleep(ctx, latency); err != nil {
		return err
	}
	return m.in.use(ctx, transfer(8*len(out)))
}

// receive takes what a unit needs of the vectors, and is not there, over the driver's
// network card.
func (m *simulated) receive(ctx context.Context, p *Product, u Unit) error {
	m.mu.Lock()
	if m.id != p.ID {
		m.id, m.have, m.kept = p.ID, 0, map[int]bool{}
	}
	bytes, missing := 0, p.needs(u)&^m.have
	if p.Kind == Hold {
		bytes = int(p.L.bytes(p.Chunk))
	} else {
		for i, r := range p.regions() {
			if missing&(1<<i) == 0 {
				continue
			}
			if p.Exchange != nil {
				if from := p.Exchange.source(i, m.name); from != "" {
					m.fetch(m.others[from], p.Kind.width()*r.len())
					continue
				}
			}
			bytes += p.Kind.width() * r.len()
		}
	}
	m.have |= missing
	if bytes > 0 {
		m.later(time.Now().Add(m.out.reserve(transfer(bytes)) + latency))
	}
	due := m.due
	m.mu.Unlock()
	return sleep(ctx, time.Until(due))
}

// later moves the time when all that was sent is there.
func (m *simulated) later(due time.Time) {
	if due.After(m.due) {
		m.due = due
	}
}

// fetch takes vectors from another member. The driver sends them to that one at about this time.
func (m *simulated) fetch(from *simulated, bytes int) {
	d := transfer(bytes)
	m.later(time.Now().Add(max(from.up.reserve(d), m.down.reserve(d)) + d + 3*latency))
}

// gather takes the sums of a point from other members, and adds them up.
func (m *simulated) gather(ctx context.Context, p *Product, point int) error {
	m.mu.Lock()
	if m.id != p.ID {
		m.id, m.have, m.kept = p.ID, 0, map[int]bool{}
	}
	m.mu.Unlock()
	x, numbers, due := p.Exchange, 0, time.Now()
	for i, s := range x.sources(point, "") {
		part := x.parts[point][i]
		k := len(p.V) * x.rows(part, point)
		numbers += k
		if s.Address == m.name {
			continue
		}
		from := m.others[s.Address]
		from.mu.Lock()
		has := from.id == p.ID && from.kept[part]
		from.mu.Unlock()
		if !has {
			return missing{s.Address, "a simulated loss"}
		}
		d := transfer(8 * k)
		if t := time.Now().Add(max(from.up.reserve(d), m.down.reserve(d))); t.After(due) {
			due = t
		}
	}
	if err := sleep(ctx, latency); err != nil { // the request
		return err
	}
	if err := sleep(ctx, time.Until(due.Add(2*latency))); err != nil {
		return err
	}
	return m.cpu.use(ctx, time.Duration(reduceSeconds*float64(numbers)*1e9))
}

func (m *simulated) Close() error { return nil }

// scenario is a simulated cluster and product.
type scenario struct {
	n, s, members int
	kind          Kind
	alone         time.Duration // that the driver computes between two products, while nobody else does
	rate          float64       // elements of K that a worker computes in a second
	rank          int           // of a preconditioner that the group applies after each product; 0 for none
	apply         float64       // elements of its factor, for each column, that a worker multiplies by in a second
	slow          float64       // share of members at a quarter of the speed
	stuck         float64       // share of members that never answer
	faulty        float64       // probability that a unit fails
	gathered      bool          // the driver gathers all sums
}

// outcome is what came of a scenario.
type outcome struct {
	times      []time.Duration // of each product
	efficiency float64         // of the last: work over time and the members' speed, those slow as they are
	power      float64         // that speed, of all members that are alive
	used       int             // members, the driver among them
	plan       Plan            // of the exchange of the last; empty for none
	meter      *Meter
	peers      []*peer
	elapsed    time.Duration // real, of all products
}

// simulate runs products through the scheduler itself, on a simulated clock.
func (sc scenario) simulate(t *testing.T, products int) (o outcome) {
	real := realTime()
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, uint64(sc.members)))
		out, in := &line{}, &line{}
		self := &simulated{rate: sc.rate, apply: sc.apply, rnd: rnd}
		power, others := sc.rate, map[string]*simulated{}
		for i := range sc.members - 1 {
			m := &simulated{name: fmt.Sprint(i), others: others, rate: sc.rate, apply: sc.apply, out: out, in: in, rnd: rand.New(rand.NewPCG(2, uint64(i))), faulty: sc.faulty}
			switch x := rnd.Float64(); {
			case x < sc.stuck:
				m.stuck = true
			case x < sc.stuck+sc.slow:
				m.rate, m.apply = m.rate/4, m.apply/4
			}
			if !m.stuck {
				power += m.rate
			}
			others[m.name] = m
			o.peers = append(o.peers, &peer{Member: m, name: m.name})
		}
		o.meter = &Meter{}
		s := scheduler{self: self, units: defaultUnits, depth: depth, bandwidth: bandwidth, meter: o.meter, log: quiet}
		var pre *preconditioner
		if sc.rank > 0 {
			pre = sc.preconditioner(s, o.peers)
			defer pre.close()
		}
		zero := make([]float64, sc.n)
		p := Product{Kind: sc.kind, N: sc.n, State: &State{Version: 1, Noise: []float64{0}}}
		for range sc.s {
			p.V, p.Factor = append(p.V, zero), append(p.Factor, 1)
		}
		for id := range products {
			began := time.Now()
			q := &Product{ID: uint64(2*id + 1), Kind: p.Kind, N: p.N, State: p.State, V: p.V, Factor: p.Factor}
			if err := sc.product(t, &s, q, o.peers, &o); err != nil {
				t.Fatal(err)
			}
			if pre != nil {
				if err := pre.apply(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(sc.alone)
			took := time.Since(began)
			o.times = append(o.times, took)
			o.power = power
			o.efficiency = float64(sc.n) * float64(sc.n) / power / took.Seconds()
		}
	})
	o.elapsed = real()
	return o
}

// product computes one as a Group does: members exchange sums if that is sooner, or the driver gathers them.
func (sc scenario) product(t *testing.T, s *scheduler, p *Product, peers []*peer, o *outcome) error {
	members := 1
	for _, m := range peers {
		if !m.until.After(time.Now()) {
			members++
		}
	}
	cost := Cost{Kind: p.Kind, Rows: p.N, Columns: len(p.V), Rate: s.rate, Bandwidth: bandwidth, Cores: iterationCores}
	if best, ok := cost.exchanged(members); ok && p.Kind != Forms && !sc.gathered {
		o.used, o.plan = best.Members, best
		p.Exchange = newExchange(layoutOf(p.N, best.whole, best.pieces), nil, best.Members, patienceOfDriver)
		_, err := s.exchange(t.Context(), p, peers)
		if !errors.Is(err, errExchange) {
			return err
		}
		t.Log("an exchange failed")
		p = &Product{ID: p.ID + 1, Kind: p.Kind, N: p.N, State: p.State, V: p.V, Factor: p.Factor}
	}
	o.used, o.plan = s.limit(p, sc.members), Plan{}
	covered := make([]bool, p.units())
	var mu sync.Mutex
	_, err := s.run(t.Context(), p, peers, func(u Unit, _ []float64) {
		mu.Lock()
		defer mu.Unlock()
		for i := u.Lo; i < u.Hi; i++ {
			if covered[i] {
				t.Errorf("unit %d is committed twice", i)
			}
			covered[i] = true
		}
	})
	for i, ok := range covered {
		if !ok && err == nil {
			t.Fatalf("unit %d is missing", i)
		}
	}
	return err
}

// preconditioner is one whose rows simulated members hold.
type preconditioner struct {
	f     *factor
	sched scheduler
	peers []*peer
	v, w  [][]float64
}

// preconditioner sends its rows to the members, as the driver does.
func (sc scenario) preconditioner(s scheduler, peers []*peer) *preconditioner {
	g := &Group{conf: Config{Bandwidth: bandwidth, Log: quiet}, sending: make(chan struct{}, maxLoads)}
	m := newMatrix(sc.n, sc.rank)
	f := &factor{g: g, m: m, state: &State{Version: 1}, owner: make([]*peer, len(m.chunks))}
	zero := make([]float64, sc.n)
	sums := &m.sums
	sums.rows, sums.cols = zero, zero[:sc.rank]
	for i := range m.chunks {
		lo, hi := m.rowRange(Unit{i, i + 1})
		sums.gl, sums.lh, sums.norm, sums.elements = append(sums.gl, zero[:sc.rank]), append(sums.lh, zero[lo:hi]), append(sums.norm, 0), append(sums.elements, 0)
	}
	p := &preconditioner{f: f, sched: s, peers: peers}
	for _, m := range peers {
		m.rows = &holder{Member: m.Member, g: g, limit: len(f.m.chunks)}
	}
	for range sc.s {
		p.v, p.w = append(p.v, zero), append(p.w, zero[:sc.rank])
	}
	p.holders()
	time.Sleep(time.Duration(3 * 8e9 * float64(sc.n) * float64(sc.rank) / bandwidth)) // until they have come
	return p
}

// holders returns the members that hold rows, and has others sent theirs.
func (p *preconditioner) holders() []*peer {
	now := time.Now()
	for _, m := range p.peers {
		if m.rows.failure() != nil && !m.until.After(now) {
			m.setAside(now)
		}
	}
	return p.f.spread(p.peers, now)
}

// apply does what factor.product does, twice.
func (p *preconditioner) apply(ctx context.Context) error {
	for _, x := range []*Product{{Kind: Trans, V: p.v, N: p.f.m.rows}, {Kind: Low, V: p.w, N: p.f.m.cols}} {
		x.ID, x.State, x.L = p.f.g.ids.Add(1), p.f.state, p.f.m
		if _, err := p.sched.run(ctx, x, p.holders(), func(Unit, []float64) {}); err != nil {
			return err
		}
	}
	return nil
}

func (p *preconditioner) close() {
	for _, m := range p.peers {
		m.rows.Close()
	}
}

// realTime measures time outside the simulation.
func realTime() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func TestStragglersDoNotHoldAProductUp(t *testing.T) {
	even := scenario{n: 100_000, s: 5, members: 10, rate: 1e9, gathered: true}
	if o := even.simulate(t, 2); o.efficiency < 0.85 || o.meter.Load().TileRetries != 0 {
		t.Errorf("ten equal members: %v, efficiency %.2f, %v", o.times, o.efficiency, o.meter.Load())
	}
	bad := even
	bad.slow, bad.stuck, bad.faulty = 0.2, 0.2, 0.02
	o := bad.simulate(t, 3)
	if o.efficiency < 0.6 {
		t.Errorf("stragglers: %v, efficiency %.2f", o.times, o.efficiency)
	}
	for _, p := range o.peers {
		if p.Member.(*simulated).stuck && p.backoff == 0 {
			t.Errorf("member %s is stuck and still gets work", p.name)
		}
	}
	exchanged := bad // what a member kept is lost with its connection, and is computed again
	exchanged.gathered, exchanged.faulty = false, 0.001
	if o := exchanged.simulate(t, 3); !o.plan.Exchange || o.efficiency < 0.2 {
		t.Errorf("stragglers that exchange sums: %v, efficiency %.2f, %+v", o.times, o.efficiency, o.plan)
	}
}

// Members that the driver could not send vectors to in time are left out, so that
// more of them do not make a product slower.
func TestMoreMembersThanAreOfUse(t *testing.T) {
	few := scenario{n: 100_000, s: 17, members: 10, rate: 5.7e9}
	many := few
	many.members = 1000
	a, b := few.simulate(t, 2), many.simulate(t, 2)
	if b.times[1] > a.times[1] {
		t.Errorf("10 members take %v, 1000 take %v", a.times[1], b.times[1])
	}
}

// A member that failed gets work again after a while, longer each time.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &simulated{rate: 1e9, rnd: rand.New(rand.NewPCG(1, 1)), faulty: 1}
		self := &simulated{rate: 1e9, rnd: rand.New(rand.NewPCG(1, 2))}
		p := &peer{Member: m}
		s := scheduler{self: self, units: 4, depth: depth, bandwidth: bandwidth, meter: &Meter{}, log: quiet}
		product := func() {
			t.Helper()
			x := &Product{N: 10_000, State: &State{Noise: []float64{0}}, V: [][]float64{make([]float64, 10_000)}, Factor: []float64{1}}
			if _, err := s.run(t.Context(), x, []*peer{p}, func(Unit, []float64) {}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			product()
			if p.backoff != want*time.Second {
				t.Fatalf("backoff %v, want %v s", p.backoff, want)
			}
			product() // without it
			if p.backoff != want*time.Second {
				t.Fatal("it was given work while it was put aside")
			}
			time.Sleep(p.backoff)
		}
		m.faulty = 0
		product()
		if p.backoff != 0 {
			t.Errorf("backoff %v after it has done well", p.backoff)
		}
	})
}

// The table of docs/benchmarks.md, if ULISSE_SIMULATE is set.
func TestSimulationTable(t *testing.T) {
	if os.Getenv("ULISSE_SIMULATE") == "" {
		t.Skip("set ULISSE_SIMULATE=1 for the table of docs/benchmarks.md")
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "n\ts\tmembers\tused\tproduct s\tefficiency\twith stragglers s\tefficiency\tfirst s\tretries\thedges\treal s a product\t")
	for _, n := range []int{100_000, 1_000_000} {
		for _, s := range []int{1, 5, 17} {
			rate := map[int]float64{1: 2e10, 5: 1.48e10, 17: 7.8e9}[s] // 8 cores, from bench/shard
			for _, members := range []int{2, 4, 10, 36, 72, 300} {
				const products = 4
				even := scenario{n: n, s: s, members: members, rate: rate}
				a := even.simulate(t, products)
				even.slow, even.stuck, even.faulty = 0.05, 0.01, 0.001
				b := even.simulate(t, products)
				l := b.meter.Load()
				fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.3g\t%.2f\t%.3g\t%.2f\t%.3g\t%d\t%d\t%.2g\t\n", n, s, members, a.used, a.times[products-1].Seconds(), a.efficiency,
					b.times[products-1].Seconds(), b.efficiency, b.times[0].Seconds(), l.TileRetries, l.Hedges, a.elapsed.Seconds()/products)
			}
		}
	}
	w.Flush()
}

// iteration is one of CG on a chain whose members have 8 cores, with a preconditioner of rank 4√n:
// rates are those of one core (ulisse plan --workers with --json, 5 right-hand sides, 8 inputs, RBF).
type iteration struct {
	n    int
	kind Kind
}

const (
	iterationColumns = 5
	iterationCores   = 8
	applySeconds     = 3.0e-10 // of an element of L and a column: P⁻¹·V
	vectorSeconds    = 5.4e-9  // of a row and column: what CG does with its vectors
	reduceSeconds    = 4.1e-10 // of a number: adding up the sums of units
)

// rate returns the elements of K a second of a member.
func (it iteration) rate() float64 {
	return iterationCores / map[Kind]float64{Double: 5.7e-10, Single: 2.7e-10}[it.kind]
}

// rank is that of the preconditioner.
func (it iteration) rank() float64 { return 4 * math.Sqrt(float64(it.n)) }

// applied is the preconditioner.
func (it iteration) applied() Apply {
	return Apply{Rows: it.n, Rank: int(it.rank()), Columns: iterationColumns, Rate: iterationCores / applySeconds, Bandwidth: bandwidth}
}

// vectors returns the seconds that the driver alone computes, with a group or without: CG's vectors, and
// adding up the sums of units, all of them or what an exchange leaves to it, and of the preconditioner.
func (it iteration) vectors(group bool, plan Plan) float64 {
	numbers := float64(it.n) * iterationColumns
	t := vectorSeconds * numbers / iterationColumns
	if group {
		sums := float64(Cost{Kind: it.kind, Rows: it.n, Columns: iterationColumns}.Sums())
		if plan.Exchange {
			sums = float64(plan.Kept) + numbers
		}
		sums += numbers + iterationColumns*it.rank()*float64(dense.Chunks(it.n))
		t += reduceSeconds * sums / iterationColumns
	}
	return t
}

// whole returns what an iteration takes one member.
func (it iteration) whole() float64 {
	return float64(it.n)*float64(it.n)/it.rate() + it.applied().Seconds(1) + it.vectors(false, Plan{})
}

// cost is the model of its product.
func (it iteration) cost() Cost {
	return Cost{Kind: it.kind, Rows: it.n, Columns: iterationColumns, Rate: it.rate(), Bandwidth: bandwidth, Cores: iterationCores}
}

// efficiency simulates a group, whose members exchange sums if that is sooner or leave it to the driver to gather them, and returns what an
// iteration takes, with the work of a worker alone over that and the group's speed.
func (it iteration) efficiency(t *testing.T, members int, gathered, stragglers bool) (seconds, efficiency float64) {
	plan := it.cost().Plan(members)
	if gathered {
		plan = Plan{}
	}
	sc := scenario{n: it.n, s: iterationColumns, members: members, kind: it.kind, rate: it.rate(), gathered: gathered, alone: time.Duration(it.vectors(true, plan) * 1e9)}
	if it.applied().Members(members) > 1 {
		sc.rank, sc.apply = int(it.rank()), 2*iterationCores/applySeconds // of half an application
	} else {
		sc.alone += time.Duration(it.applied().Seconds(1) * 1e9)
	}
	if stragglers {
		sc.slow, sc.stuck, sc.faulty = 0.05, 0.01, 0.001
	}
	o := sc.simulate(t, 4)
	seconds = o.times[3].Seconds()
	return seconds, it.whole() / seconds / (o.power / it.rate())
}

// The table of whole iterations of docs/benchmarks.md, if ULISSE_SIMULATE is set: to the rows that it says, or to all.
func TestIterationTable(t *testing.T) {
	if os.Getenv("ULISSE_SIMULATE") == "" {
		t.Skip("set ULISSE_SIMULATE=1 for the table of docs/benchmarks.md")
	}
	most, _ := strconv.Atoi(os.Getenv("ULISSE_SIMULATE"))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "n\tprecision\trank\tmembers\tgathered s\tefficiency\twith stragglers\tused\twhole\tpieces\tplanned s\titeration s\tefficiency\twith stragglers s\tefficiency\tbound\t")
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		if most > 1 && n > most {
			break
		}
		for _, kind := range []Kind{Single, Double} {
			it := iteration{n, kind}
			whole := it.whole()
			for _, members := range []int{4, 10, 36, 72, 300} {
				plan := it.cost().Plan(members)
				before, evenBefore := it.efficiency(t, members, true, false)
				_, unevenBefore := it.efficiency(t, members, true, true)
				seconds, even := it.efficiency(t, members, false, false)
				slower, uneven := it.efficiency(t, members, false, true)
				fmt.Fprintf(w, "%d\t%s\t%.0f\t%d\t%.3g\t%.2f\t%.2f\t%d\t%d\t%d\t%.3g\t%.3g\t%.2f\t%.3g\t%.2f\t%.2f\t\n", n, map[Kind]string{Single: "single", Double: "double"}[kind], it.rank(), members, before, evenBefore, unevenBefore,
					plan.Members, plan.whole, plan.pieces, plan.Seconds+it.applied().Seconds(members)+it.vectors(true, plan), seconds, even, slower, uneven,
					whole/(whole+float64(members-1)*it.vectors(false, Plan{})))
			}
		}
		w.Flush()
	}
}
