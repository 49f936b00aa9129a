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
	noise  []float64
	double *multiplier[float64]
	single *multiplier[float32] // made when it is first needed
	forms  *formEngine
	factor []float64 // that columns are multiplied by on loading

	singleCache int64 // bytes for the cache of single
}

func newTiles(in *kernel.Inputs, c *kernel.Covariance, budget *parallel.Budget, isa tile.ISA) *tiles {
	e := &tiles{in: in, cov: c, budget: budget, isa: isa, double: newMultiplier[float64](in, c, budget, isa)}
	e.forms = newFormEngine(e.double, newSums(c), budget, isa)
	return e
}

func (e *tiles) Set(f *kernel.Function, noise []float64) {
	e.f, e.noise = f, noise
	e.double.set(f)
	if e.single != nil {
		e.single.set(f)
	}
}

// Rows scales columns by powers of two, in single precision, to where float32
// neither overflows nor underflows.
func (e *tiles) Rows(ctx context.Context, dst, v [][]float64, lo, hi int, p Precision) error {
	if lo == hi {
		return ctx.Err()
	}
	e.factor = sized(e.factor, len(v))
	if p == Double {
		e.unscaled()
		return multiplyRows(ctx, e, e.double, dst, v, lo, hi)
	}
	if e.single == nil {
		e.single = newMultiplier[float32](e.in, e.cov, e.budget, e.isa)
		e.single.set(e.f)
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
		scale, vc := e.f.Scale()/e.factor[c], v[c][lo:hi]
		for i := range y {
			y[i] = scale*y[i] + noise[i]*vc[i]
		}
	}
	return nil
}

func (e *tiles) Forms(ctx context.Context, sums []float64, u, v [][]float64, group []int, groups, lo, hi int) error {
	return e.forms.run(ctx, e.f, sums, u, v, group, groups, lo, hi)
}

func (e *tiles) Keep(double, single int64) {
	e.double.setCache(double)
	e.singleCache = single
	if e.single != nil {
		e.single.setCache(single)
	}
}

func (e *tiles) Kept() int64 {
	if e.single == nil {
		return e.double.read
	}
	return e.double.read + e.single.read
}
