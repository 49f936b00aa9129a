package cmvp

import (
	"context"
	"math"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// tiles is the engine of this machine's cores.
type tiles struct {
	in     *kernel.Inputs
	cov    *kernel.Covariance
	budget *parallel.Budget
	isa    tile.ISA

	f      *kernel.Function
	pairs  *kernel.Function // the part of f that double and single compute, nil if there is none
	low    *lowRank         // the other part
	reach  *reach           // which pairs are evaluated; nil for all
	noise  []float64
	double *multiplier[float64]
	single *multiplier[float32] // made when it is first needed
	forms  *formEngine
	factor []float64 // that columns are multiplied by on loading

	singleCache int64 // bytes for the cache of single
}

// newTiles returns the engine. If sparse is set, pairs of tiles are passed over that are nothing to rounding.
func newTiles(in *kernel.Inputs, c *kernel.Covariance, sparse bool, budget *parallel.Budget, isa tile.ISA) *tiles {
	pairs, _ := c.Pairs()
	e := &tiles{in: in, cov: pairs, budget: budget, isa: isa, low: newLowRank(in, c, budget)}
	if pairs != nil {
		if sparse {
			e.reach = newReach(in.Len(), pairs)
		}
		e.double = newMultiplier[float64](in, pairs, e.reach, budget, isa)
	}
	e.forms = newFormEngine(e.double, newSums(c), e.low, budget, isa)
	return e
}

func (e *tiles) Set(f *kernel.Function, noise []float64) {
	e.f, e.pairs, e.noise = f, f.Pairs(), noise
	e.low.set(f)
	if e.pairs == nil {
		return
	}
	e.double.set(e.pairs)
	if e.reach != nil {
		e.reach.set(e.pairs, e.double.z)
	}
	if e.single != nil {
		e.single.set(e.pairs)
	}
}

// Mul scales columns as Scales says.
func (e *tiles) Mul(ctx context.Context, dst, v [][]float64, p Precision) error {
	if e.pairs == nil {
		for _, y := range dst {
			clear(y)
		}
		e.finish(dst, v, Scales(v, Double))
		return ctx.Err()
	}
	e.factor = sized(e.factor, len(v))
	scales(e.factor, v, p)
	if p == Double {
		return multiplyAll(ctx, e, e.double, dst, v)
	}
	return multiplyAll(ctx, e, e.singles(), dst, v)
}

func multiplyAll[T tile.Real](ctx context.Context, e *tiles, m *multiplier[T], dst, v [][]float64) error {
	for _, y := range dst {
		clear(y)
	}
	m.load(v, e.factor, 0, m.grid.Units())
	if err := m.product(ctx, dst); err != nil {
		return err
	}
	e.finish(dst, v, e.factor)
	return nil
}

// finish makes the sums of all units K·v.
func (e *tiles) finish(dst, v [][]float64, factor []float64) {
	var unit float64
	if e.pairs != nil {
		unit = e.pairs.Scale()
	}
	for c, y := range dst {
		scale, vc := unit/factor[c], v[c]
		for i, noise := range e.noise {
			y[i] = scale*y[i] + noise*vc[i]
		}
	}
	e.low.add(dst, v)
}

func (e *tiles) Units(ctx context.Context, sums []float64, v [][]float64, factor []float64, lo, hi int, p Precision) error {
	if e.pairs == nil {
		clear(sums)
		return ctx.Err()
	}
	if p == Double {
		e.double.load(v, factor, lo, hi)
		return e.double.units(ctx, sums, lo, hi)
	}
	m := e.singles()
	m.load(v, factor, lo, hi)
	return m.units(ctx, sums, lo, hi)
}

func (e *tiles) Tasks(ctx context.Context, sums []float64, v [][]float64, factor []float64, lo, hi int, p Precision) error {
	if e.pairs == nil {
		clear(sums)
		return ctx.Err()
	}
	if p == Double {
		e.double.loadTasks(v, factor, lo, hi)
		return e.double.tasks(ctx, sums, lo, hi)
	}
	m := e.singles()
	m.loadTasks(v, factor, lo, hi)
	return m.tasks(ctx, sums, lo, hi)
}

// Reduce adds up the units of each point in their order, points side by side.
func (e *tiles) Reduce(dst [][]float64, sums []float64, v [][]float64, factor []float64) {
	if e.pairs == nil {
		for _, y := range dst {
			clear(y)
		}
		e.finish(dst, v, factor)
		return
	}
	g := NewGrid(e.in.Len())
	parts := make([][]int, g.Points()) // of each point, where its sums begin
	at := 0
	for u := range g.Units() {
		for _, p := range g.Unit(u) {
			lo, hi := g.PointRows(p)
			parts[p] = append(parts[p], at)
			at += (hi - lo) * len(v)
		}
	}
	e.budget.NewLoop(func(_, p int) {
		lo, hi := g.PointRows(p)
		for c, y := range dst {
			clear(y[lo:hi])
			for _, at := range parts[p] {
				addTo(e.double.add, y[lo:hi], sums[at+c*(hi-lo):])
			}
		}
	}).Run(g.Points())
	e.finish(dst, v, factor)
}

func (e *tiles) Finish(dst, v [][]float64, factor []float64) { e.finish(dst, v, factor) }

// singles returns the multiplier in single precision.
func (e *tiles) singles() *multiplier[float32] {
	if e.single == nil {
		e.single = newMultiplier[float32](e.in, e.cov, e.reach, e.budget, e.isa)
		e.single.set(e.pairs)
		e.single.setCache(e.singleCache)
	}
	return e.single
}

// Scales returns what the columns of a product are multiplied by before they are rounded
// to its precision: 1, or, in single precision, powers of two that bring them to where
// float32 neither overflows nor underflows.
func Scales(v [][]float64, p Precision) []float64 {
	factor := make([]float64, len(v))
	scales(factor, v, p)
	return factor
}

func scales(factor []float64, v [][]float64, p Precision) {
	for c, vc := range v {
		factor[c] = 1
		if p == Single {
			factor[c] = unitScale(vc)
		}
	}
}

// unitScale returns a power of two that brings the largest element of v near
// 1, or 1 if there is none.
func unitScale(v []float64) float64 {
	var most float64
	for _, x := range v {
		most = max(most, math.Abs(x))
	}
	if most == 0 || math.IsInf(most, 1) || math.IsNaN(most) {
		return 1
	}
	_, exp := math.Frexp(most)
	return math.Ldexp(1, max(-1000, min(1000, -exp)))
}

func (e *tiles) Forms(ctx context.Context, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	return e.forms.run(ctx, e.pairs, sums, u, v, group, groups, lo, hi)
}

func (e *tiles) Evaluates(task int, p Precision) int64 {
	if e.reach == nil {
		return NewGrid(e.in.Len()).elements(task)
	}
	return e.reach.elements(task, p)
}

func (e *tiles) Keep(double, single int64) {
	if e.double == nil {
		return
	}
	e.double.setCache(double)
	e.singleCache = single
	if e.single != nil {
		e.single.setCache(single)
	}
}

func (e *tiles) Kept() (read int64) {
	if e.double != nil {
		read = e.double.read
	}
	if e.single != nil {
		read += e.single.read
	}
	return read
}
