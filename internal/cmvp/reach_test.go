package cmvp

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// clustered returns a problem whose points are in clusters, in no order, with length-scales short against their distances,
// and the same with the points arranged.
func clustered(c *kernel.Covariance, n int, seed uint64) (plain, arranged *problem) {
	p := problemOf(c, n, 3)
	rnd := rand.New(rand.NewPCG(seed, 1))
	x, rows := make([]float64, 3*n), rnd.Perm(n)
	var centre [3]float64
	for at, i := range rows {
		for k := range 3 {
			if at%TileRows == 0 {
				centre[k] = 10 * rnd.NormFloat64()
			}
			x[3*i+k] = centre[k] + 0.1*rnd.NormFloat64()
		}
	}
	for _, l := range c.Leaves() { // categories stay what they are
		switch l := l.(type) {
		case *kernel.Hamming:
			for i := range n {
				for _, k := range l.Inputs {
					x[3*i+k] = p.in.Row(i)[k]
				}
			}
		case *kernel.Coregion:
			for i := range n {
				x[3*i+l.Input] = p.in.Row(i)[l.Input]
			}
		}
	}
	for i, q := range c.Params() {
		if q.Role == param.Rate {
			p.theta[i] *= math.Exp(6 + 2*rnd.Float64())
		}
	}
	p.in = kernel.NewInputs(n, 3, x)
	over, _ := c.Local()
	q := *p
	q.in = Arrange(p.in, over)
	return p, &q
}

// What is passed over, and its derivatives, is below the bound: looked for in pairs of points at random.
func TestPassedOverIsNothing(t *testing.T) {
	const n = 5*TileRows + 30
	sparse := 0
	for i, text := range sums {
		c := parsed(t, text)
		_, p := clustered(c, n, uint64(i))
		o := p.operator(1, tile.Portable)
		e := o.engine.(*tiles)
		if e.reach == nil {
			continue // all of low rank
		}
		in, _ := p.in.Arranged()
		pairs := o.f.Pairs()
		rnd, passed := rand.New(rand.NewPCG(1, 2)), 0
		for _, prec := range []Precision{Double, Single} {
			limit := prec.unit() / n * pairs.Scale()
			for range 4000 {
				x, y := rnd.IntN(n), rnd.IntN(n)
				a, b := min(x, y)/TileRows, max(x, y)/TileRows
				if e.reach.reaches(a, b, prec) && e.reach.reachesStrip(min(x, y), b, prec) {
					continue
				}
				passed++
				if k := pairs.Value(in.Row(x), in.Row(y)); math.Abs(k) > limit {
					t.Fatalf("%s: %g between points %d and %d is passed over, more than %g", text, k, x, y, limit)
				}
				if !e.reach.forms {
					continue
				}
				g := make([]float64, len(pairs.Theta()))
				pairs.AddGradient(g, 1, in.Row(x), in.Row(y))
				for j, d := range g {
					if math.Abs(d) > limit {
						t.Fatalf("%s: the derivative %g by %s is passed over, more than %g", text, d, pairs.Covariance().Params()[j].Name(), limit)
					}
				}
			}
		}
		if _, everywhere := c.Local(); !everywhere && passed > 0 {
			t.Errorf("%s: %d pairs are passed over, where a term does not come to nothing", text, passed)
		}
		if passed > 0 {
			sparse++
		}
	}
	if sparse < 10 {
		t.Errorf("pairs are passed over of %d covariances", sparse)
	}
}

// Products, forms and blocks are those of all pairs, to rounding.
func TestArrangedAgainstPlain(t *testing.T) {
	ctx, n := context.Background(), 4*TileRows+30
	isas := tile.Available()
	for i, text := range sums {
		if testing.Short() && i%5 != 0 {
			continue
		}
		plain, arranged := clustered(parsed(t, text), n, uint64(i))
		o, a := plain.operator(1, isas[i%len(isas)]), arranged.operator(1, isas[i%len(isas)])
		for _, m := range multiplies {
			want, got := zeros(n, 3), zeros(n, 3)
			if err := m.mul(o)(ctx, want, plain.v); err != nil {
				t.Fatal(err)
			}
			if err := m.mul(a)(ctx, got, plain.v); err != nil {
				t.Fatal(err)
			}
			tol := 1e-13
			if strings.Contains(text, "linear") || strings.Contains(text, "polynomial") {
				tol = 1e-11 // elements are larger than the product
			}
			if m.name != multiplies[0].name {
				tol = 1e-3 // float32 inputs, far from 0 in units of length-scales
			}
			for c := range want {
				near(t, text+" "+m.name, got[c], want[c], tol)
			}
		}
		group := []int{0, 1, 0}
		want, err := o.Forms(ctx, plain.u, plain.v, group, 2)
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Forms(ctx, plain.u, plain.v, group, 2)
		if err != nil {
			t.Fatal(err)
		}
		for g := range want {
			near(t, text+" forms", got[g], want[g], 1e-9) // slopes of features cancel
		}
		points := plain.in.Select([]int{3, 900, 17, 500, 4, 1, 800, 77, 5, 6, 1000})
		testArrangedCross(t, text, o, a, points, plain.v)
	}
}

// testArrangedCross compares rectangular products, and holds those of one point against those of many.
func testArrangedCross(t *testing.T, text string, o, a *Operator, points *kernel.Inputs, v [][]float64) {
	t.Helper()
	ctx, m := context.Background(), points.Len()
	want, got := zeros(m, 3), zeros(m, 3)
	if err := o.Cross(ctx, want, points, v); err != nil {
		t.Fatal(err)
	}
	if err := a.Cross(ctx, got, points, v); err != nil {
		t.Fatal(err)
	}
	for c := range want {
		near(t, text+" cross", got[c], want[c], 1e-13)
	}
	for i := range m {
		one := zeros(1, 3)
		if err := a.Cross(ctx, one, points.Select([]int{i}), v); err != nil {
			t.Fatal(err)
		}
		for c := range one {
			if one[c][0] != got[c][i] {
				t.Fatalf("%s: point %d alone comes to %v, beside others to %v", text, i, one[c][0], got[c][i])
			}
		}
	}
	rows, err := o.CrossMatrix(ctx, points)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := a.CrossMatrix(ctx, points)
	if err != nil {
		t.Fatal(err)
	}
	testCrossRows(t, a, points, mine)
	for i := range rows {
		for j := range rows[i] {
			if math.Abs(mine[i][j]-rows[i][j]) > 0x1p-52*o.f.Scale() {
				t.Fatalf("%s: element %d,%d is %g, want %g", text, i, j, mine[i][j], rows[i][j])
			}
		}
	}
}

// near fails unless two vectors agree, relative to the largest number.
func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	var most float64
	for _, x := range want {
		most = max(most, math.Abs(x))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol*most) {
			t.Fatalf("%s: number %d is %g, want %g (the largest is %g)", what, i, got[i], want[i], most)
		}
	}
}

// Bits do not depend on threads or on how units are cut, and the sums of units are those of a product.
func TestArrangedBits(t *testing.T) {
	ctx, n := context.Background(), 9*TileRows+30
	_, p := clustered(parsed(t, "a*rbf(1-3:u)+b*matern32(1-2:v)*linear(1,3)"), n, 3)
	want, forms := zeros(n, 3), []float64(nil)
	for _, cores := range []int{1, 3} {
		o := p.operator(cores, tile.Available()[0])
		got := zeros(n, 3)
		if err := o.Mul(ctx, got, p.v); err != nil {
			t.Fatal(err)
		}
		f, err := o.Forms(ctx, p.u, p.v, []int{0, 0, 0}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if cores == 1 {
			want, forms = got, f[0]
			evaluated, all := o.Evaluated(Double), int64(n)*int64(n)
			if evaluated == 0 || evaluated > all*3/4 || o.Evaluated(Single) > evaluated {
				t.Errorf("%d and %d of %d elements are evaluated", evaluated, o.Evaluated(Single), all)
			}
			if c := o.Counts(); c.Pairs != 2*evaluated {
				t.Errorf("counted %d, want twice %d", c.Pairs, evaluated)
			}
			continue
		}
		if !slices.Equal(f[0], forms) {
			t.Error("forms differ")
		}
		there, grid := o.There(p.v), NewGrid(n)
		factor := Scales(there, Double)
		var sums []float64
		for u := range grid.Units() {
			part := make([]float64, UnitSums(n, 3, u, u+1))
			if err := o.MulUnits(ctx, part, there, factor, u, u+1, Double); err != nil {
				t.Fatal(err)
			}
			sums = append(sums, part...)
		}
		back, units := zeros(n, 3), zeros(n, 3)
		o.ReduceUnits(back, sums, there, factor)
		o.Back(units, back)
		for c := range want {
			if !slices.Equal(got[c], want[c]) || !slices.Equal(units[c], want[c]) {
				t.Fatalf("column %d differs", c)
			}
		}
	}
}

// Products of arranged inputs allocate nothing either.
func TestArrangedProductsDoNotAllocate(t *testing.T) {
	_, p := clustered(parsed(t, "a*rbf(1-3:u)"), 3*TileRows, 1)
	o, dst := New(p.in, p.cov, parallel.NewBudget(1)), zeros(p.in.Len(), 3)
	o.Set(p.theta, p.noise)
	mul := func() {
		if err := o.Mul(context.Background(), dst, p.v); err != nil {
			t.Fatal(err)
		}
	}
	mul()
	if allocs := testing.AllocsPerRun(3, mul); allocs > 0 {
		t.Errorf("%v allocations a product", allocs)
	}
}
