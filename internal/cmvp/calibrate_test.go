package cmvp

import (
	"context"
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestCacheIsUsedWhenItSavesEnough(t *testing.T) {
	for _, c := range []struct {
		kept, compute, fill, read float64
		products                  int
		saving                    float64
		use                       bool
	}{
		{1, 2, 2.5, 1, 50, 1 - 51.5/100, true},
		{1, 2, 2.5, 1.95, 50, 1 - (2.5+49*1.95)/100, false}, // too little
		{1, 2, 2.5, 3, 50, 1 - (2.5+49*3)/100, false},       // slower
		{0.5, 2, 2.5, 1, 50, 1 - (2.25+49*1.5)/100, true},   // half of it fits
		{0, 2, 2.5, 1, 50, 0, false},
		{1, 2, 2.5, 1, 1, 1 - 2.5/2, false}, // never read
	} {
		p := CachePlan{Kept: c.kept, Compute: c.compute}
		p.decide(c.fill, c.read, c.products)
		if math.Abs(p.Saving-c.saving) > 1e-12 || p.Use != c.use {
			t.Errorf("%+v: decided %+v", c, p)
		}
	}
}

func TestPlanCacheMeasures(t *testing.T) {
	ctx := context.Background()
	p := newProblem(kernel.RBF, 1000, 3, 2, false)
	b := parallel.NewBudget(2)
	for _, single := range []bool{false, true} {
		whole := CacheBytes(1000, single)
		plan, err := PlanCache(ctx, p.in, p.cov.At(p.theta), CacheWork{Columns: 2, Products: 30, Single: single, Bytes: whole / 4}, b)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Bytes != whole/4 || plan.Kept != 0.25 || !(plan.Compute > 0 && plan.Fill > 0 && plan.Read > 0) {
			t.Errorf("single=%v: %+v", single, plan)
		}
	}
	// Memory for next to nothing is not worth a measurement.
	if plan, err := PlanCache(ctx, p.in, p.cov.At(p.theta), CacheWork{Columns: 2, Products: 30, Bytes: CacheBytes(1000, false) / 20}, b); err != nil || plan.Use || plan.Compute != 0 {
		t.Errorf("%+v, %v", plan, err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := PlanCache(done, p.in, p.cov.At(p.theta), CacheWork{Columns: 1, Products: 2}, b); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// A plan gives an operator the cache of the precision that it was made for.
func TestCachePlanApplies(t *testing.T) {
	ctx := context.Background()
	p := newProblem(kernel.RBF, 300, 2, 1, false)
	for _, c := range []struct {
		plan           CachePlan
		double, single int64 // elements read
	}{
		{CachePlan{Use: false, Bytes: 1 << 30}, 0, 0},
		{CachePlan{Use: true, Bytes: 1 << 30}, 300 * 300, 0},
		{CachePlan{Use: true, Bytes: 1 << 30, Single: true}, 0, 300 * 300},
	} {
		o := p.operator(1, tile.Portable)
		c.plan.Apply(o)
		dst := zeros(300, 1)
		var read [2]int64
		for i, mul := range []func(context.Context, [][]float64, [][]float64) error{o.Mul, o.MulSingle} {
			before := o.Counts().Read
			for range 2 {
				if err := mul(ctx, dst, p.v); err != nil {
					t.Fatal(err)
				}
			}
			read[i] = o.Counts().Read - before
		}
		if read != [2]int64{c.double, c.single} {
			t.Errorf("%+v: read %v", c.plan, read)
		}
	}
}
