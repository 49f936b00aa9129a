package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// pairs returns the columns of a product with what came of them.
func pairs(v, y [][]float64) (out []pair) {
	for c := range v {
		out = append(out, pair{v[c], y[c]})
	}
	return out
}

// Rounding leaves the asymmetry of right products far below what is suspicious, for all
// kernels, precisions, sizes and kinds of vectors; one number that is wrong does not.
func TestAsymmetryOfRightProducts(t *testing.T) {
	trials := 100
	if testing.Short() {
		trials = 20
	}
	most := 0.0
	for _, f := range []kernel.Family{kernel.RBF, kernel.Matern12, kernel.Matern32, kernel.Matern52} {
		for _, n := range []int{600, 2500} {
			for _, kind := range []Kind{Double, Single} {
				p := newProblem(f, n, 3, 6)
				for i := range p.v[0] { // smooth, constant, small and parallel vectors beside random ones
					p.v[0][i], p.v[1][i] = 1, math.Sin(p.in.Row(i)[0])
					p.v[2][i] *= 1e-6
					p.v[4][i] = 3*p.v[0][i] + 1e-7*p.v[5][i]
				}
				op := p.operator()
				op.Set(p.theta, []float64{0.3})
				x := &Product{Kind: kind, N: n, V: p.v, Bound: largest(op)}
				y := solve.Columns(n, len(p.v))
				mul := op.Mul
				if kind == Single {
					mul = op.MulSingle
				}
				if err := mul(t.Context(), y, p.v); err != nil {
					t.Fatal(err)
				}
				all := pairs(p.v, y)
				for range trials {
					for lo := range all {
						for hi := lo + 2; hi <= len(all); hi++ {
							a := x.asymmetry(all[lo:hi])
							if most = max(most, a); a > suspicious/10 {
								t.Fatalf("%v, %d rows, kind %d, columns [%d,%d): %.2g", f, n, kind, lo, hi, a)
							}
						}
					}
				}
				y[3][n/2] *= 1 + map[Kind]float64{Double: 1e-6, Single: 1}[kind]
				if a := x.asymmetry(all[2:4]); a < suspicious {
					t.Errorf("%v, %d rows, kind %d, one number wrong: %.2g", f, n, kind, a)
				}
			}
		}
	}
	t.Logf("at most %.2g, and %.2g is suspicious", most, suspicious)
}

// faulty is a member that answers other numbers than it should.
type faulty struct {
	Member
	change func(p *Product, u Unit, out []float64)
}

func (f faulty) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	err := f.Member.Do(ctx, p, u, out)
	if err == nil {
		f.change(p, u, out)
	}
	return err
}

// flip changes one bit.
func flip(x []float64) {
	x[len(x)/2] = math.Float64frombits(math.Float64bits(x[len(x)/2]) ^ 1<<40)
}

// waiting is a driver's own share that waits before each unit.
type waiting struct {
	Member
	until func(ctx context.Context, p *Product)
}

func (w waiting) Do(ctx context.Context, p *Product, u Unit, out []float64) error {
	w.until(ctx, p)
	return w.Member.Do(ctx, p, u, out)
}

// waitFor makes the driver wait with each product, but for those that compute something again
// that members did, until one of some members has answered a unit of it.
func waitFor(g *Group, names ...string) {
	var mu sync.Mutex
	answered := map[uint64]bool{}
	dial := g.conf.Dial
	g.conf.Dial = func(n string) Member {
		if !slices.Contains(names, n) {
			return dial(n)
		}
		return faulty{dial(n), func(p *Product, _ Unit, _ []float64) {
			mu.Lock()
			defer mu.Unlock()
			answered[p.ID] = true
		}}
	}
	has := func(id uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		return answered[id]
	}
	g.sched.self = waiting{g.sched.self, func(ctx context.Context, p *Product) {
		for end := time.Now().Add(time.Minute); p.again == nil && !has(p.ID) && ctx.Err() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}}
}

// A member whose numbers are wrong, in one bit or in all, is named and put aside; its
// neighbour is not, and no product suffers. Sums of forms are sampled: for them it may
// take some.
func TestMemberThatComputesWrongly(t *testing.T) {
	p, want := small(t)
	stale := p.operator()
	stale.Set(append([]float64{p.theta[0], p.theta[1] * 1.001}, p.theta[2:]...), []float64{0.3}) // not the variance, which the driver multiplies by
	var mu sync.Mutex                                                                            // units are computed side by side, an operator's products are not
	columns := func(k Kind) func(p *Product, _ Unit, out []float64) {
		return func(p *Product, _ Unit, out []float64) {
			if p.Kind == k {
				flip(out)
			}
		}
	}
	for name, change := range map[string]func(p *Product, u Unit, out []float64){
		"a bit": columns(Double),
		"zeros in single": func(p *Product, _ Unit, out []float64) {
			if p.Kind == Single {
				clear(out)
			}
		},
		"all sums": func(p *Product, _ Unit, out []float64) {
			for i := range out {
				if p.Kind == Forms {
					out[i] *= 1 + 1e-9
				}
			}
		},
		"a stale θ": func(p *Product, u Unit, out []float64) {
			if p.Kind == Double && len(p.State.Noise) == 1 {
				mu.Lock()
				defer mu.Unlock()
				_ = p.compute(context.Background(), stale, u, out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, names, _ := cluster(t, p, 2, ServerConfig{})
			bad := names[1]
			dial := g.conf.Dial
			g.conf.Dial = func(name string) Member {
				if name == bad {
					return faulty{dial(name), change}
				}
				return dial(name)
			}
			g.sched.self = hooked{g.sched.self, func(context.Context, Unit) { time.Sleep(5 * time.Millisecond) }} // leaves the members something
			for range 2000 {                                                                                      // it may have nothing to do wrong; sums are sampled
				got, err := p.results(g)
				if err != nil {
					t.Fatal(err)
				}
				if name != "all sums" { // which are found in the end only
					equal(t, got, want)
				}
				if g.conf.Meter.wrong.Load() > 0 {
					break
				}
			}
			for _, m := range g.peers {
				if aside := time.Until(m.until) > wrongBench/2; aside != (m.name == bad) {
					t.Errorf("%s is put aside: %v (%s)", m.name, aside, strings.Join(names, ", "))
				}
			}
			if g.conf.Meter.wrong.Load() == 0 {
				t.Error("nothing was counted")
			}
			same(t, p, g, want) // without it
		})
	}
}

// Products are held against a column of an earlier one with the same θ: what is wrong in them
// does not depend on samples to be found, a bit in one column as little as numbers that are
// those of another matrix, symmetric too.
func TestProductsAreHeldAgainstAnEarlierColumn(t *testing.T) {
	for name, c := range map[string]struct {
		s      int
		change func(out []float64)
	}{
		"a bit of one column": {1, flip},
		"another variance":    {3, func(out []float64) { floats.Scale(1+1e-9, out) }},
		"no elements":         {2, func(out []float64) { clear(out) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProblem(kernel.Matern32, 1500, 2, c.s)
			g, names, _ := cluster(t, p, 1, ServerConfig{}) // alone nobody overtakes it
			dial := g.conf.Dial
			var broken atomic.Bool
			g.conf.Dial = func(name string) Member {
				return faulty{dial(name), func(p *Product, u Unit, out []float64) {
					if broken.Load() {
						c.change(out)
					}
				}}
			}
			var blamed []string
			g.sched.wrong = func(member, _ string) { blamed = append(blamed, member) }
			waitFor(g, names[0])
			alone := p.operator()
			for _, noise := range []float64{0.3, 0.2} {
				g.Set(p.theta, []float64{noise})
				alone.Set(p.theta, []float64{noise})
				for i := range 3 {
					broken.Store(noise == 0.2 && i == 2)
					v, want, got := p.u, solve.Columns(1500, c.s), solve.Columns(1500, c.s)
					if i == 0 {
						v = p.v
					}
					if err := errors.Join(alone.Mul(t.Context(), want, v), g.Mul(t.Context(), got, v)); err != nil {
						t.Fatal(err)
					}
					equal(t, got, want)
				}
			}
			if len(blamed) == 0 || slices.ContainsFunc(blamed, func(m string) bool { return m != names[0] }) {
				t.Errorf("blamed: %q, want %q", blamed, names[0])
			}
		})
	}
}

// Where two have computed the same unit, their bits are compared, whoever was first.
func TestHedgedAnswersAreCompared(t *testing.T) {
	p, _ := small(t)
	for _, first := range []string{"wrong", "right"} {
		t.Run(first, func(t *testing.T) {
			g, names, _ := cluster(t, p, 2, ServerConfig{})
			g.Set(p.theta, []float64{0.3})
			peers, err := g.members()
			if err != nil {
				t.Fatal(err)
			}
			x := &Product{ID: 1, Kind: Forms, State: g.state, N: 1500, U: p.u, V: p.v, Group: p.group, Groups: 2, Sums: g.local.FormSums(2)}
			u := Unit{0, 3}
			good, bad := make([]float64, x.Size(u)), make([]float64, x.Size(u))
			if err := x.compute(t.Context(), g.local, u, good); err != nil {
				t.Fatal(err)
			}
			copy(bad, good)
			flip(bad)
			g.sums = slices.Clone(good)
			s := share{u, peers[1], []answer{{peers[0], bad}, {nil, good}}}
			if first == "wrong" {
				g.sums = slices.Clone(bad)
				s = share{u, peers[0], []answer{{peers[1], good}}}
			}
			var blamed []string
			g.sched.wrong = func(member, _ string) { blamed = append(blamed, member) }
			if err := g.verify(t.Context(), x, nil, peers, []share{s}); err != nil {
				t.Fatal(err)
			}
			equal(t, [][]float64{g.sums}, [][]float64{good})
			if !slices.Equal(blamed, names[:1]) {
				t.Errorf("blamed: %q, want %q", blamed, names[:1])
			}
			if aside := time.Until(peers[0].until) > wrongBench/2; !aside || !peers[1].until.IsZero() {
				t.Errorf("until %v and %v", peers[0].until, peers[1].until)
			}
		})
	}
	t.Run("collected", func(t *testing.T) {
		one, two := &worker{peer: &peer{name: "one"}}, &worker{peer: &peer{name: "two"}}
		r := &run{scheduler: &scheduler{meter: &Meter{}, log: quiet}, p: &Product{}, changed: make(chan struct{}), units: []unitState{{Unit: Unit{0, 3}, extent: 3}}, todo: []int{0}, left: 1}
		slow, _, _ := r.next(one)
		fast := r.give(two, 0, time.Now())
		if !r.end(t.Context(), fast, []float64{1}, nil) || r.end(t.Context(), slow, []float64{2}, nil) {
			t.Error("it is not the first answer that counts")
		}
		if u := r.units[0]; u.by != two.peer || len(u.others) != 1 || u.others[0].by != one.peer || u.others[0].out[0] != 2 {
			t.Errorf("%+v", u)
		}
	})
}

// A driver that computes other numbers each time blames nobody.
func TestDriverThatIsUnsteady(t *testing.T) {
	p, _ := small(t)
	g, names, _ := cluster(t, p, 2, ServerConfig{})
	waitFor(g, names...)
	var n atomic.Uint64
	g.sched.self = faulty{g.sched.self, func(p *Product, _ Unit, out []float64) {
		out[len(out)/2] = math.Float64frombits(math.Float64bits(out[len(out)/2]) ^ n.Add(1)<<40)
	}}
	var blamed []string
	g.sched.wrong = func(member, _ string) { blamed = append(blamed, member) }
	g.Set(p.theta, []float64{0.3})
	var err error
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); { // members may be faster than it in all units
		err = g.Mul(t.Context(), solve.Columns(1500, 3), p.v)
	}
	if !errors.Is(err, ErrUnsteady) || len(blamed) > 0 {
		t.Errorf("%v, blamed: %q", err, blamed)
	}
}

// What the check takes of a product that two cores share: check-% of its time, which the
// driver spends on one core.
func BenchmarkCheck(b *testing.B) {
	const n = 16_000
	for _, s := range []int{5, 17} {
		p := newProblem(kernel.RBF, n, 5, s)
		for name, kind := range map[string]Kind{"double": Double, "single": Single} {
			b.Run(fmt.Sprintf("n=%d/s=%d/%s", n, s, name), func(b *testing.B) {
				g, _, _ := cluster(b, p, 1, ServerConfig{})
				g.Set(p.theta, []float64{0.3})
				y := solve.Columns(n, s)
				var all, check time.Duration
				for b.Loop() {
					began := time.Now()
					mul := g.Mul
					if kind == Single {
						mul = g.MulSingle
					}
					if err := mul(b.Context(), y, p.v); err != nil {
						b.Fatal(err)
					}
					all += time.Since(began)
					began = time.Now()
					x := &Product{Kind: kind, State: g.state, N: n, V: p.v, Bound: g.bound}
					if a := x.asymmetry(g.columns(x, y)); a > suspicious/10 {
						b.Fatalf("asymmetry %.2g", a)
					}
					check += time.Since(began)
				}
				b.ReportMetric(100*check.Seconds()/all.Seconds(), "check-%")
				b.ReportMetric(1e3*check.Seconds()/float64(b.N), "check-ms/op")
			})
		}
	}
}
