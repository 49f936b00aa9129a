package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"
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

// use waits for a turn, and through it.
func (l *line) use(ctx context.Context, d time.Duration) error { return sleep(ctx, l.reserve(d)) }

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
	rate    float64 // elements of K a second
	out, in *line   // the driver's network card; nil for the driver itself
	stuck   bool
	faulty  float64 // probability that a unit fails

	cpu  line
	mu   sync.Mutex
	rnd  *rand.Rand
	id   uint64 // product
	have pieces // of its vectors, that are there or on their way
	due  time.Time
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
	if m.out != nil {
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
	if err := m.cpu.use(ctx, time.Duration(p.work(u)/m.rate*1e9)); err != nil {
		return err
	}
	if fails {
		return errFault
	}
	if m.in == nil {
		return nil
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
		m.id, m.have = p.ID, 0
	}
	bytes, missing := 0, p.needs(u)&^m.have
	for i, r := range p.regions() {
		if missing&(1<<i) != 0 {
			bytes += p.Kind.width() * r.len()
		}
	}
	m.have |= missing
	if bytes > 0 {
		m.due = time.Now().Add(m.out.reserve(transfer(bytes)) + latency)
	}
	due := m.due
	m.mu.Unlock()
	return sleep(ctx, time.Until(due))
}

func (m *simulated) Close() error { return nil }

// scenario is a simulated cluster and product.
type scenario struct {
	n, s, members int
	kind          Kind
	alone         time.Duration // that the driver computes between two products, while nobody else does
	rate          float64       // elements of K that a worker computes in a second
	slow          float64       // share of members at a quarter of the speed
	stuck         float64       // share of members that never answer
	faulty        float64       // probability that a unit fails
}

// outcome is what came of a scenario.
type outcome struct {
	times      []time.Duration // of each product
	efficiency float64         // of the last: work over time and the members' speed, those slow as they are
	power      float64         // that speed, of all members that are alive
	used       int             // members, the driver among them
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
		self := &simulated{rate: sc.rate, rnd: rnd}
		power := sc.rate
		for i := range sc.members - 1 {
			m := &simulated{rate: sc.rate, out: out, in: in, rnd: rand.New(rand.NewPCG(2, uint64(i))), faulty: sc.faulty}
			switch x := rnd.Float64(); {
			case x < sc.stuck:
				m.stuck = true
			case x < sc.stuck+sc.slow:
				m.rate /= 4
			}
			if !m.stuck {
				power += m.rate
			}
			o.peers = append(o.peers, &peer{Member: m, name: fmt.Sprint(i)})
		}
		o.meter = &Meter{}
		s := scheduler{self: self, units: defaultUnits, depth: depth, bandwidth: bandwidth, meter: o.meter, log: quiet}
		zero := make([]float64, sc.n)
		p := Product{Kind: sc.kind, N: sc.n, State: &State{Version: 1, Noise: []float64{0}}}
		for range sc.s {
			p.V, p.Factor = append(p.V, zero), append(p.Factor, 1)
		}
		for id := range products {
			began := time.Now()
			covered := make([]bool, p.units())
			var mu sync.Mutex
			_, err := s.run(t.Context(), &Product{ID: uint64(id + 1), Kind: p.Kind, N: p.N, State: p.State, V: p.V, Factor: p.Factor}, o.peers, func(u Unit, _ []float64) {
				mu.Lock()
				defer mu.Unlock()
				for i := u.Lo; i < u.Hi; i++ {
					if covered[i] {
						t.Errorf("unit %d is committed twice", i)
					}
					covered[i] = true
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, ok := range covered {
				if !ok {
					t.Fatalf("unit %d is missing", i)
				}
			}
			time.Sleep(sc.alone)
			took := time.Since(began)
			o.times = append(o.times, took)
			o.power = power
			o.used = s.limit(&p, sc.members)
			o.efficiency = float64(sc.n) * float64(sc.n) / power / took.Seconds()
		}
	})
	o.elapsed = real()
	return o
}

// realTime measures time outside the simulation.
func realTime() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func TestStragglersDoNotHoldAProductUp(t *testing.T) {
	even := scenario{n: 100_000, s: 5, members: 10, rate: 1e9}
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

// alone returns the seconds that the driver computes beside the product, with a group or without.
func (it iteration) alone(group bool) float64 {
	numbers := float64(it.n) * iterationColumns
	t := applySeconds*numbers*it.rank()/iterationCores + vectorSeconds*numbers/iterationColumns
	if group {
		sums := Cost{Kind: it.kind, Rows: it.n, Columns: iterationColumns}.Sums()
		t += reduceSeconds * float64(sums) / iterationColumns
	}
	return t
}

// efficiency simulates a group, and returns what an iteration takes, with the work of a worker alone
// over that and the group's speed.
func (it iteration) efficiency(t *testing.T, members int, stragglers bool) (seconds, efficiency float64) {
	sc := scenario{n: it.n, s: iterationColumns, members: members, kind: it.kind, rate: it.rate(), alone: time.Duration(it.alone(true) * 1e9)}
	if stragglers {
		sc.slow, sc.stuck, sc.faulty = 0.05, 0.01, 0.001
	}
	o := sc.simulate(t, 4)
	seconds = o.times[3].Seconds()
	alone := float64(it.n)*float64(it.n)/it.rate() + it.alone(false)
	return seconds, alone / seconds / (o.power / it.rate())
}

// The table of whole iterations of docs/benchmarks.md, if ULISSE_SIMULATE is set.
func TestIterationTable(t *testing.T) {
	if os.Getenv("ULISSE_SIMULATE") == "" {
		t.Skip("set ULISSE_SIMULATE=1 for the table of docs/benchmarks.md")
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "n\tprecision\trank\tmembers\tused\tplanned s\titeration s\tP\tefficiency\twith stragglers s\tefficiency\tbound\t")
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		for _, kind := range []Kind{Single, Double} {
			it := iteration{n, kind}
			cost := Cost{Kind: kind, Rows: n, Columns: iterationColumns, Rate: it.rate(), Bandwidth: bandwidth}
			whole := float64(n)*float64(n)/it.rate() + it.alone(false)
			for _, members := range []int{4, 10, 36, 72, 300} {
				seconds, even := it.efficiency(t, members, false)
				slower, uneven := it.efficiency(t, members, true)
				used := cost.Members(members)
				fmt.Fprintf(w, "%d\t%s\t%.0f\t%d\t%d\t%.3g\t%.3g\t%.0f %%\t%.2f\t%.3g\t%.2f\t%.2f\t\n", n, map[Kind]string{Single: "single", Double: "double"}[kind], it.rank(), members, used,
					cost.Seconds(used)+it.alone(true), seconds, 100*applySeconds*float64(n)*iterationColumns*it.rank()/iterationCores/seconds, even, slower, uneven,
					whole/(whole-it.alone(false)+float64(members)*it.alone(false)))
			}
		}
	}
	w.Flush()
}
