package shard

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Rounding leaves the asymmetry of right products far below what is suspicious, for all
// kernels, precisions, sizes and kinds of vectors.
func TestAsymmetryOfRightProducts(t *testing.T) {
	for _, f := range []kernel.Family{kernel.RBF, kernel.Matern12, kernel.Matern32, kernel.Matern52} {
		for _, n := range []int{600, 2500} {
			for _, kind := range []Kind{Double, Single} {
				p := newProblem(f, n, 3, 4)
				for i := range p.v[0] { // smooth, constant and small vectors beside random ones
					p.v[0][i], p.v[1][i] = 1, math.Sin(p.in.Row(i)[0])
					p.v[2][i] *= 1e-6
				}
				op := p.operator()
				op.Set(p.theta, []float64{0.3})
				x := &Product{Kind: kind, N: n, V: p.v, Bound: largest(op)}
				y := solve.Columns(n, len(p.v))
				precision := cmvp.Double
				if kind == Single {
					precision = cmvp.Single
				}
				if err := op.MulRows(t.Context(), y, p.v, 0, n, precision); err != nil {
					t.Fatal(err)
				}
				if a := x.asymmetry(y); a > suspicious/4 {
					t.Errorf("%v, %d rows, kind %d: %.2g", f, n, kind, a)
				}
				y[3][n/2] *= 1 + map[Kind]float64{Double: 1e-6, Single: 1}[kind]
				if a := x.asymmetry(y); a < suspicious {
					t.Errorf("%v, %d rows, kind %d, one number wrong: %.2g", f, n, kind, a)
				}
			}
		}
	}
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

// A member whose numbers are wrong, in one bit or in all, is named and put aside; its
// neighbour is not, and no product suffers. Sums of forms are sampled: for them it may
// take some.
func TestMemberThatComputesWrongly(t *testing.T) {
	p, want := small(t)
	stale := p.operator()
	stale.Set(append([]float64{p.theta[0] * 1.001}, p.theta[1:]...), []float64{0.3})
	var mu sync.Mutex // units are computed side by side, an operator's products are not
	columns := func(k Kind) func(p *Product, _ Unit, out []float64) {
		return func(p *Product, _ Unit, out []float64) {
			if p.Kind == k {
				out[len(out)/2] = math.Float64frombits(math.Float64bits(out[len(out)/2]) ^ 1<<40)
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
			for range 60 {                                                                                        // it may have nothing to do wrong; sums are sampled
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
