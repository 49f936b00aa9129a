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
	noise  []float64
	double *multiplier[float64]
	single *multiplier[float32] // made when it is first needed
	forms  *formEngine
	factor []float64 // that columns are multiplied by on loading

	singleCache int64 // bytes for the cache of single
}

func newTiles(in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget, isa tile.ISA) *tiles {
	pairs, _ := c.Pairs()
	e := &tiles{in: in, cov: pairs, budget: budget, isa: isa, low: newLowRank(in, c, budget)}
	if pairs != nil {
		e.double = newMultiplier[float64](in, pairs, budget, isa)
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
	if e.single != nil {
		e.single.set(e.pairs)
	}
}

// Rows scales columns by powers of two, in single precision, to where float32
// neither overflows nor underflows.
func (e *tiles) Rows(ctx context.Context, dst, v [][]float64, lo, hi int, p Precision) error {
	if lo == hi {
		return ctx.Err()
	}
	if e.pairs == nil {
		for c, y := range dst {
			for i, d := range e.noise[lo:hi] {
				y[i] = d * v[c][lo+i]
			}
		}
		e.low.addRows(dst, v, lo, hi)
		return ctx.Err()
	}
	e.factor = sized(e.factor, len(v))
	if p == Double {
		e.unscaled()
		return multiplyRows(ctx, e, e.double, dst, v, lo, hi)
	}
	if e.single == nil {
		e.single = newMultiplier[float32](e.in, e.cov, e.budget, e.isa)
		e.single.set(e.pairs)
		e.single.setCache(e.singleCache)
	}
	for c, vc := range v {
		e.factor[c] = unitScale(vc)
	}
	return multiplyRows(ctx, e, e.single, dst, v, lo, hi)
}

func (e *tiles) unscaled() {
	for c := range e.factor {
		e.factor[c] = 1
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

func multiplyRows[T tile.Real](ctx context.Context, e *tiles, m *multiplier[T], dst, v [][]float64, lo, hi int) error {
	for _, y := range dst {
		clear(y)
	}
	m.load(v, e.factor)
	if err := m.product(ctx, dst, lo, hi); err != nil {
		return err
	}
	noise := e.noise[lo:hi]
	for c, y := range dst {
		scale, vc := e.pairs.Scale()/e.factor[c], v[c][lo:hi]
		for i := range y {
			y[i] = scale*y[i] + noise[i]*vc[i]
		}
	}
	e.low.addRows(dst, v, lo, hi)
	return nil
}

func (e *tiles) Forms(ctx context.Context, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	return e.forms.run(ctx, e.pairs, sums, u, v, group, groups, lo, hi)
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
