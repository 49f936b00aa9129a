package cmvp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// problem is a random operator with right-hand sides.
type problem struct {
	in    *kernel.Inputs
	cov   *kernel.Covariance
	theta []float64
	noise []float64
	v, u  [][]float64
}

func newProblem(f kernel.Family, n, d, s int, ard bool) *problem {
	return problemOf(kernel.Single(f, d, ard), n, s)
}

func problemOf(c *kernel.Covariance, n, s int) *problem {
	d := c.Dim()
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(d*100+s)))
	x := make([]float64, n*d)
	for i := range x {
		x[i] = rnd.NormFloat64()
	}
	for _, l := range c.Leaves() { // categories are whole numbers
		switch l := l.(type) {
		case *kernel.Hamming:
			for i := range n {
				for _, k := range l.Inputs {
					x[i*d+k] = math.Round(2 * x[i*d+k])
				}
			}
		case *kernel.Coregion:
			for i := range n {
				x[i*d+l.Input] = float64(rnd.IntN(len(l.Levels)))
			}
		}
	}
	if n > 3 { // a duplicate row, as real tables have
		copy(x[3*d:4*d], x[:d])
	}
	p := &problem{in: kernel.NewInputs(n, d, x), cov: c}
	for _, q := range c.Params() {
		switch {
		case q.Role == param.Place || q.Role == param.Width:
			p.theta = append(p.theta, 0.3+rnd.Float64())
		case q.Role == param.Variance:
			p.theta = append(p.theta, 1.7+rnd.Float64())
		case q.Index == "":
			p.theta = append(p.theta, 0.4/float64(d))
		default:
			p.theta = append(p.theta, (0.1+rnd.Float64())/float64(d))
		}
	}
	p.noise = make([]float64, n)
	for i := range p.noise {
		p.noise[i] = 0.1 + rnd.Float64()
	}
	p.v, p.u = randomColumns(rnd, n, s), randomColumns(rnd, n, s)
	return p
}

// lines has terms of low rank, and products with leaves that are dot products.
const lines = "=100*linear(0,2)+a*rbf(1-3:u)*linear(2:0.3)+b*linear(1,3)*linear(0,2)+c*matern32(1:v[1],2:v[2])"

// sums are covariances over three inputs with several leaves: sums and products, of
// single and of several rates, leaves and parameters that occur twice, a power, periods, and
// rates and periods that are fixed.
var sums = []string{
	"a*rbf(1-3:u)+b*matern12(1-3:v)",
	"a*rbf(1-3:u)*matern32(2:v)",
	"a*rbf(1:u[1],2:u[2])*matern52(3:v)",
	"a*rbf(1:u[1],2:u[2],3:u[3])+b*matern32(1:v)*rbf(2-3:w)+c*matern12(1:x[1],3:x[3])",
	"a*rbf(1:u)*matern52(2-3:v)+b*rbf(1:u)*rbf(3:w)+a*matern32(2:v)", // shared leaf, variance and rate
	"a*matern32(1-2:u)*matern32(1-2:u)",
	"a*matern12(1:u[1],2:u[2],3:u[1])*rbf(1-3:v)*matern52(2:w)",
	"a*periodic(1:u:p:2.5)", // a single leaf whose features depend on a parameter
	"a*periodic(1:u:=0.7:2.5)*rbf(1:v)+b*rbf(2-3:=0.4)",
	"a*periodic(2:=0.8:p:1)*matern32(1-2:v)+b*periodic(2:w:p:1)+c*rbf(1:x[1],2:x[2])",
	"a*rq(1-3:u;al)", // a single leaf with a shape
	"a*rq(1:u[1],2:u[2];al)*hamming(3:t)+b*rq(1-2:=0.3;al)*rq(1-2:v;=2.5)+c*hamming(3:t)*rq(1:=0.2;be)",
	"a*wendland(1-3:u)",
	"a*wendland0(1:u)*wendland2(2:v[2],3:v[3])+b*wendland0(1-3:w)",
	"a*wendland(1:u[1],2:u[2])*matern32(3:v)+b*wendland(3:=2)",
	"a*cosine(1:p:2.5)", // rate fixed, period not
	"a*cosine(1:=2:2.5)*rbf(1:u)+b*cosine(2:p:1)*wendland(1-2:v)",
	"a*hamming(3:t)",
	"a*hamming(2-3:t)*rbf(1:u)+b*hamming(2:=0.4)*hamming(3:s)",
	"a*linear(1,2,3)",         // all of low rank
	"a*coregion(3:0:s:f:A,B)", // a single leaf that is a table
	"a*coregion(3:0:s:f:A,B,C)*matern52(1-2:u)+b*coregion(3:1:1:g:A,B,C)*rbf(1:v)*linear(0,2)+c*coregion(3:0:s:f:A,B,C)",
	lines,
	"a*sigmoid(1:0.2:0.5)*rbf(1-3:u)+b*sigmoid(1:0.2:-0.5)*matern32(1-2:v)+c*polynomial(1,3:2:1)+d*polynomial(2:3:0)*rbf(3:w)",
	"a*sigmoid(1:c:w:0.3:2)+b*sigmoid(1:c:w:0.3:2:falling)*polynomial(2:2:o)*rbf(1:u)", // places, widths and offsets
	"=2*polynomial(1,3:3:o)*sigmoid(2:c:=0.7:0:1)*sigmoid(2:c:=0.7:0:1)+b*rbf(3:u)",
	"a*sigmoid(1:c:w:0.1:1.5)*matern32(1-2:u)+b*sigmoid(1:c:w:0.1:1.5)*sigmoid(2:=0:v:0:1)*rbf(2-3:x)",
	"a*warped(matern52(1-2:u);2:p:q:-2:2.5)", // a single leaf that is warped, by points beyond its range, too
	"a*warped(rbf(1:u[1],2:u[2]);1:p[1]:=1.5:-4:4;2:=0.7:q[2]:-5:4)*matern32(3:v)+b*warped(rq(1-2:=0.3;al);1:p[1]:s:-4:4)*linear(0,3)+c*warped(wendland(1-3:w);2:=2:=0.5:-4:4)",
	"a*linear(0,1:-1,3)*matern52(1:u[1],2:u[2])*periodic(2:=0.7:p:2)+=3*rbf(1:w)*linear(2)+b*rbf(1:=0.2)+=2*rbf(3:=0.2)",
}

func parsed(t testing.TB, text string) *kernel.Covariance {
	t.Helper()
	c, err := kernel.Parse(text, 3)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func randomColumns(rnd *rand.Rand, n, s int) [][]float64 {
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = make([]float64, n)
		for i := range cols[c] {
			cols[c][i] = rnd.NormFloat64()
		}
	}
	return cols
}

func zeros(n, s int) [][]float64 {
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = make([]float64, n)
	}
	return cols
}

func (p *problem) operator(cores int, isa tile.ISA) *Operator {
	o := newOperator(p.in, p.cov, parallel.NewBudget(cores), isa)
	o.Set(p.theta, p.noise)
	return o
}

// multiply is a product in one precision.
type multiply struct {
	name  string
	mul   func(o *Operator) func(ctx context.Context, dst, v [][]float64) error
	limit float64 // of the error relative to Σ|K||v|
}

var multiplies = []multiply{
	{"double", func(o *Operator) func(context.Context, [][]float64, [][]float64) error { return o.Mul }, 1e-14},
	{"single", func(o *Operator) func(context.Context, [][]float64, [][]float64) error { return o.MulSingle }, 5e-7},
}

// eachISA runs a test with every instruction set that the machine has.
// isas are the instruction sets that are tried: in short runs, under the race detector say, not
// the portable one, whose Go code it makes a hundred times slower.
func isas() []tile.ISA {
	all := tile.Available()
	if testing.Short() && len(all) > 1 {
		return all[1:]
	}
	return all
}

func eachISA(t *testing.T, test func(t *testing.T, isa tile.ISA)) {
	for _, isa := range isas() {
		t.Run(isa.String(), func(t *testing.T) { test(t, isa) })
	}
}

// kahan is a compensated sum.
type kahan struct{ sum, c float64 }

func (k *kahan) add(x float64) {
	t := k.sum + x
	if math.Abs(k.sum) >= math.Abs(x) {
		k.c += (k.sum - t) + x
	} else {
		k.c += (x - t) + k.sum
	}
	k.sum = t
}

func (k *kahan) value() float64 { return k.sum + k.c }

// reference returns row i of K·v and of Σ|K||v|.
func (p *problem) reference(i int, v []float64) (y, scale float64) {
	var sum, abs kahan
	f := p.cov.At(p.theta)
	for j, vj := range v {
		k := f.Value(p.in.Row(i), p.in.Row(j))
		if i == j {
			k += p.noise[i]
		}
		sum.add(k * vj)
		abs.add(math.Abs(k * vj))
	}
	return sum.value(), abs.value()
}

func TestMulAgainstReference(t *testing.T) {
	shapes := []struct {
		n, d, s int
		ard     bool
	}{{1, 1, 1, false}, {7, 3, 2, true}, {32, 1, 1, false}, {255, 8, 5, false}, {257, 8, 1, true},
		{300, 200, 3, false}, {700, 4, 17, false}, {1030, 20, 64, true}}
	var problems []*problem
	if testing.Short() {
		shapes = shapes[:5]
	}
	for _, f := range kernel.Families() {
		for _, c := range shapes {
			problems = append(problems, newProblem(f, c.n, c.d, c.s, c.ard))
		}
	}
	for _, text := range sums {
		for _, n := range []int{1, 300, 700} {
			problems = append(problems, problemOf(parsed(t, text), n, 3))
		}
	}
	most := map[string]float64{} // by instruction set and precision
	for _, p := range problems {
		n, s := p.in.Len(), len(p.v)
		type element struct{ col, row int }
		want := map[element][2]float64{}
		for col := range s {
			for i := col % 3; i < n; i += 1 + n*s/200 {
				y, scale := p.reference(i, p.v[col])
				want[element{col, i}] = [2]float64{y, scale}
			}
		}
		for _, isa := range isas() {
			for _, m := range multiplies {
				dst := zeros(n, s)
				if err := m.mul(p.operator(2, isa))(context.Background(), dst, p.v); err != nil {
					t.Fatal(err)
				}
				worst := 0.0
				for at, w := range want {
					worst = max(worst, math.Abs(dst[at.col][at.row]-w[0])/w[1])
				}
				name := isa.String() + " " + m.name
				most[name] = max(most[name], worst)
				if !(worst <= m.limit) {
					t.Errorf("%s %.60v n=%d s=%d: error %.3g of Σ|K||v|", name, p.cov, n, s, worst)
				}
			}
		}
	}
	t.Logf("errors of Σ|K||v|: %v", most)
}

// The same bits at any number of threads, for any split of the rows, for a
// column alone or among others, and for elements of K that were kept.
func TestMulBitsDoNotDependOnTheSplit(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		for _, c := range []struct {
			cov *kernel.Covariance
			n   int
		}{
			{kernel.Single(kernel.RBF, 3, true), 100}, {kernel.Single(kernel.RBF, 3, true), 1030},
			{kernel.Single(kernel.RBF, 3, true), 64*TileRows + 1000}, // blocks of two tiles
			{parsed(t, sums[3]), 600}, {parsed(t, sums[4]), 300}, {parsed(t, lines), 600},
		} {
			if c.n > 5000 && (testing.Short() || isa == tile.Portable) {
				continue
			}
			p := problemOf(c.cov, c.n, 4)
			for _, m := range multiplies {
				testBitsOfProducts(t, p, m, isa)
			}
			testBitsOfUnits(t, p, isa)
		}
	})
}

func testBitsOfProducts(t *testing.T, p *problem, m multiply, isa tile.ISA) {
	ctx, n := context.Background(), p.in.Len()
	want := zeros(n, 4)
	if err := m.mul(p.operator(1, isa))(ctx, want, p.v); err != nil {
		t.Fatal(err)
	}
	check := func(what string, o *Operator, cols int) {
		t.Helper()
		got := zeros(n, cols)
		if err := m.mul(o)(ctx, got, p.v[:cols]); err != nil {
			t.Fatal(err)
		}
		for c := range cols {
			if !slices.Equal(got[c], want[c]) {
				t.Fatalf("%v n=%d %s %s: column %d differs", p.cov, n, m.name, what, c)
			}
		}
	}
	check("5 threads", p.operator(5, isa), 4)
	o := p.operator(2, isa)
	for cols := 1; cols < 4; cols++ {
		check(fmt.Sprintf("%d columns", cols), o, cols)
	}

	// Some of K is kept: the first product fills, the second reads.
	o = p.operator(2, isa)
	o.SetCache(max(tilePairSize*8, min(1<<26, CacheBytes(n, false)/2)), max(tilePairSize*4, min(1<<25, CacheBytes(n, true)/2)))
	check("filling the cache", o, 4)
	check("from the cache", o, 3)
	other := slices.Clone(p.theta)
	for i := range other {
		other[i] *= 2
	}
	o.Set(other, p.noise)
	if err := m.mul(o)(ctx, zeros(n, 4), p.v); err != nil {
		t.Fatal(err)
	}
	o.Set(p.theta, p.noise)
	check("after another θ", o, 4)
	if c := o.Counts(); c.Read < c.Pairs/128 || c.Read >= c.Pairs {
		t.Errorf("n=%d %s: counted %+v", n, m.name, c)
	}
}

// Units computed in any ranges, by operators that see no more of v than they say they read,
// add up to the product.
func testBitsOfUnits(t *testing.T, p *problem, isa tile.ISA) {
	ctx, n := context.Background(), p.in.Len()
	g := NewGrid(n)
	v := p.v[:3]
	keep := p.operator(2, isa) // one that keeps some of K
	keep.SetCache(min(1<<26, CacheBytes(n, false)/2), min(1<<25, CacheBytes(n, true)/2))
	ops := []*Operator{p.operator(1, isa), keep, p.operator(3, isa), keep}
	for _, m := range multiplies {
		want := zeros(n, 3)
		if err := m.mul(ops[0])(ctx, want, v); err != nil {
			t.Fatal(err)
		}
		prec := Double
		if m.name == "single" {
			prec = Single
		}
		factor := Scales(v, prec)
		for _, size := range []int{1, 3, g.Units()} {
			sums := make([]float64, UnitSums(n, 3, 0, g.Units()))
			for lo := 0; lo < g.Units(); lo += size {
				hi := min(lo+size, g.Units())
				o, known := ops[lo/size%len(ops)], zeros(n, 3)
				for c := range known {
					for i := range known[c] {
						known[c][i] = math.NaN()
					}
					for u := lo; u < hi; u++ {
						for _, q := range g.Unit(u) {
							a, b := g.PointRows(q)
							copy(known[c][a:b], v[c][a:b])
						}
					}
				}
				part := sums[UnitSums(n, 3, 0, lo):UnitSums(n, 3, 0, hi)]
				if err := o.MulUnits(ctx, part, known, factor, lo, hi, prec); err != nil {
					t.Fatal(err)
				}
			}
			got := zeros(n, 3)
			for c := range got {
				got[c][n/2] = math.NaN()
			}
			ops[0].ReduceUnits(got, sums, v, factor)
			for c := range got {
				if !slices.Equal(got[c], want[c]) {
					t.Fatalf("n=%d, %s, units by %d: column %d differs", n, m.name, size, c)
				}
			}
		}
	}
	testBitsOfTasks(t, p, isa)
	o := p.operator(1, isa)
	sums := make([]float64, UnitSums(n, 3, 0, g.Units()))
	if err := o.MulUnits(ctx, sums, v, Scales(v, Double), 0, g.Units(), Double); err != nil {
		t.Fatal(err)
	}
	if c := o.Counts(); c.Pairs != int64(n)*int64(n) || c.Columns != 3 {
		t.Errorf("n=%d: counted %+v", n, c)
	}
}

// Tasks computed in any ranges, and added up task by task, are the units that they are of.
func testBitsOfTasks(t *testing.T, p *problem, isa tile.ISA) {
	ctx, n := context.Background(), p.in.Len()
	g, v, o := NewGrid(n), p.v[:3], p.operator(2, isa)
	for prec, factor := range map[Precision][]float64{Double: Scales(v, Double), Single: Scales(v, Single)} {
		for u := range g.Units() {
			want := make([]float64, UnitSums(n, 3, u, u+1))
			if err := o.MulUnits(ctx, want, v, factor, u, u+1, prec); err != nil {
				t.Fatal(err)
			}
			rows := zeros(n, 3)
			lo, hi := g.UnitTasks(u)
			for size := 2; lo < hi; lo += size {
				sums := make([]float64, TaskSums(n, 3, lo, min(lo+size, hi)))
				if err := o.MulTasks(ctx, sums, v, factor, lo, min(lo+size, hi), prec); err != nil {
					t.Fatal(err)
				}
				for i := lo; i < min(lo+size, hi); i++ {
					task := g.Task(i)
					for _, b := range []int{task.A, task.B} {
						from, to := g.BlockRows(b)
						if q, end := g.PointRows(g.PointOf(b)); from < q || to > end {
							t.Fatalf("n=%d: block %d is not in point %d", n, b, g.PointOf(b))
						}
						for c := range rows {
							for i, x := range sums[:to-from] {
								rows[c][from+i] += x
							}
							sums = sums[to-from:]
						}
					}
				}
			}
			var got []float64
			for _, q := range g.Unit(u) {
				from, to := g.PointRows(q)
				for c := range rows {
					got = append(got, rows[c][from:to]...)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("n=%d, precision %d: tasks do not add up to unit %d", n, prec, u)
			}
		}
	}
}

// What MulSingle multiplies may be far from 1, as residuals are.
func TestMulSingleScales(t *testing.T) {
	ctx := context.Background()
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		p := newProblem(kernel.Matern32, 300, 2, 1, false)
		o := p.operator(1, isa)
		want, got := zeros(300, 1), zeros(300, 1)
		if err := o.MulSingle(ctx, want, p.v); err != nil {
			t.Fatal(err)
		}
		for _, exp := range []int{-900, -140, 120, 900} {
			v := [][]float64{slices.Clone(p.v[0])}
			for i := range v[0] {
				v[0][i] = math.Ldexp(v[0][i], exp)
			}
			if err := o.MulSingle(ctx, got, v); err != nil {
				t.Fatal(err)
			}
			for i, y := range got[0] {
				if y != math.Ldexp(want[0][i], exp) {
					t.Fatalf("2^%d: row %d is %v, want %v", exp, i, y, math.Ldexp(want[0][i], exp))
				}
			}
		}
		if err := o.MulSingle(ctx, got, zeros(300, 1)); err != nil || got[0][7] != 0 {
			t.Errorf("K·0 is %v, %v", got[0][7], err)
		}
		if c := o.Counts(); c.Singles != 6 || c.Products != 6 {
			t.Errorf("counted %+v", c)
		}
	})
}

// Single precision does not lose small differences of large inputs.
func TestMulSingleOfInputsFarFromZero(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		p := newProblem(kernel.RBF, 500, 2, 1, false)
		var x []float64
		for i := range 500 {
			for _, v := range p.in.Row(i) {
				x = append(x, 5e6+math.Round(1000*v)/1000)
			}
		}
		p.in = kernel.NewInputs(500, 2, x)
		got := zeros(500, 1)
		if err := p.operator(1, isa).MulSingle(context.Background(), got, p.v); err != nil {
			t.Fatal(err)
		}
		for i, y := range got[0] {
			if want, scale := p.reference(i, p.v[0]); math.Abs(y-want) > 5e-7*scale {
				t.Fatalf("row %d is %v, want %v", i, y, want)
			}
		}
	})
}

func TestFormsAgainstDense(t *testing.T) {
	for _, n := range []int{1, 9, 300, 600} {
		for _, f := range kernel.Families() {
			for _, ard := range []bool{false, true} {
				testForms(t, newProblem(f, n, 3, 4, ard))
			}
		}
	}
	for _, n := range []int{9, 300} {
		for _, text := range sums {
			testForms(t, problemOf(parsed(t, text), n, 4))
		}
	}
}

// testForms compares the forms of three groups, of which one has two pairs, with
// sums over all pairs of rows of the function's gradient.
func testForms(t *testing.T, p *problem) {
	t.Helper()
	group := []int{0, 1, 1, 2}
	f, m := p.cov.At(p.theta), len(p.theta)
	want, abs := make([][]kahan, 3), zeros(m, 3)
	for g := range want {
		want[g] = make([]kahan, m)
	}
	grad := make([]float64, m)
	for i := range p.in.Len() {
		for j := range p.in.Len() {
			clear(grad)
			f.AddGradient(grad, 1, p.in.Row(i), p.in.Row(j))
			for c, g := range group {
				uv := p.u[c][i] * p.v[c][j]
				for q, d := range grad {
					want[g][q].add(uv * d)
					abs[g][q] += math.Abs(uv * d)
				}
			}
		}
	}
	for _, isa := range isas() {
		got, err := p.operator(3, isa).Forms(context.Background(), p.u, p.v, group, 3)
		if err != nil {
			t.Fatal(err)
		}
		for g := range want {
			for q := range want[g] {
				if e := math.Abs(got[g][q] - want[g][q].value()); e > 1e-13*abs[g][q] {
					t.Errorf("%v %v n=%d: form %s of group %d is %v, want %v", isa, p.cov, p.in.Len(), p.cov.Params()[q].Name(), g, got[g][q], want[g][q].value())
				}
			}
		}
	}
}

func TestFormsBitsDoNotDependOnThreads(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		testBitsOfForms(t, newProblem(kernel.Matern32, 1500, 2, 3, true), isa)
		testBitsOfForms(t, problemOf(parsed(t, sums[3]), 600, 3), isa)
		testBitsOfForms(t, problemOf(parsed(t, lines), 600, 3), isa)
	})
}

func testBitsOfForms(t *testing.T, p *problem, isa tile.ISA) {
	n := p.in.Len()
	var want [][]float64
	for cores := 1; cores <= 4; cores++ {
		got, err := p.operator(cores, isa).Forms(context.Background(), p.u, p.v, []int{0, 2, 0}, 3)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		for g := range want {
			if !slices.Equal(got[g], want[g]) {
				t.Fatalf("%d cores: %v, want %v", cores, got[g], want[g])
			}
		}
	}
	// Any cut of the tasks gives the same sums.
	o := p.operator(2, isa)
	tasks, per := NewGrid(n).Tasks(), o.FormSums(3)
	sums := make([]float64, tasks*per)
	for _, r := range [][2]int{{tasks / 2, tasks}, {0, 1}, {1, tasks / 2}} {
		if err := o.FormsTasks(context.Background(), sums[r[0]*per:r[1]*per], p.u, p.v, []int{0, 2, 0}, 3, r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	for g, got := range o.ReduceForms(sums, 3) {
		if !slices.Equal(got, want[g]) {
			t.Fatalf("from parts: %v, want %v", got, want[g])
		}
	}
	if got, want := o.Counts().Pairs, int64(n*n); got != want {
		t.Errorf("counted %d elements, want %d", got, want)
	}
	if !slices.Equal(want[1], make([]float64, len(p.theta))) {
		t.Errorf("the forms of an empty group are %v", want[1])
	}
}

func TestCrossAgainstReference(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		for _, c := range []*kernel.Covariance{kernel.Single(kernel.Matern52, 3, true), parsed(t, sums[1]), parsed(t, sums[3]), parsed(t, lines), parsed(t, "a*linear(0,1,2,3)")} {
			testCross(t, problemOf(c, 600, 2), isa)
		}
	})
}

func testCross(t *testing.T, p *problem, isa tile.ISA) {
	o, f := p.operator(2, isa), p.cov.At(p.theta)
	for _, m := range []int{1, 37, 150} {
		points := problemOf(p.cov, m, 1).in
		dst := zeros(m, 2)
		if err := o.Cross(context.Background(), dst, points, p.v); err != nil {
			t.Fatal(err)
		}
		k, err := o.CrossMatrix(context.Background(), points)
		if err != nil {
			t.Fatal(err)
		}
		testCrossRows(t, o, points, k)
		for r := range m {
			for c := range dst {
				var sum, abs kahan
				for j := range 600 {
					want := f.Value(points.Row(r), p.in.Row(j))
					if math.Abs(k[r][j]-want) > 1e-14*f.Scale() {
						t.Fatalf("%v: K(%d,%d) = %v, want %v", p.cov, r, j, k[r][j], want)
					}
					sum.add(want * p.v[c][j])
					abs.add(math.Abs(want * p.v[c][j]))
				}
				if math.Abs(dst[c][r]-sum.value()) > 1e-14*abs.value() {
					t.Errorf("%v: row %d column %d: %v, want %v", p.cov, r, c, dst[c][r], sum.value())
				}
			}
		}
	}
}

// testCrossRows holds the columns of some rows alone against all of K(X*,X), to the last bit.
func testCrossRows(t *testing.T, o *Operator, points *kernel.Inputs, all [][]float64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(3, uint64(points.Len())))
	for _, size := range []int{0, 1, 5, 300} {
		of := make([]int, size)
		for j := range of {
			of[j] = rnd.IntN(o.Len())
		}
		some, err := o.CrossRows(context.Background(), points, of)
		if err != nil {
			t.Fatal(err)
		}
		for r := range some {
			for j, i := range of {
				if math.Float64bits(some[r][j]) != math.Float64bits(all[r][i]) {
					t.Fatalf("%v: K(%d,%d) among %d rows is %v, among all %v", o.cov, r, i, size, some[r][j], all[r][i])
				}
			}
		}
	}
}

// Equal points, huge and denormal distances, one row, many inputs and columns: no
// NaN, no overflow, and 0 where an element underflows.
func TestExtremeInputsStayFinite(t *testing.T) {
	values := []float64{0, 0, 1e-320, 1e-160, 1e3, 1e100, -1e100, 5, 1e300, -1e308}
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		for _, c := range []struct{ n, d, s int }{{1, 1, 1}, {1, 200, 64}, {10, 1, 1}, {5, 2, 64}, {10, 1, 5}, {50, 200, 3}, {33, 1, 17}} {
			x := make([]float64, c.n*c.d)
			for i := range x {
				x[i] = values[(i+i/len(values)/7)%len(values)]
			}
			in := kernel.NewInputs(c.n, c.d, x)
			for _, f := range kernel.Families() {
				for _, tau := range []float64{1e-300, 1, 1e8, math.NaN()} {
					cov, theta := kernel.Single(f, c.d, false), []float64{1, tau}
					if tau != tau { // one of each size
						cov, theta = kernel.Single(f, c.d, true), []float64{1}
						for k := range c.d {
							theta = append(theta, []float64{1e-300, 1e8, 1}[k%3])
						}
					}
					o := newOperator(in, cov, parallel.NewBudget(1), isa)
					o.Set(theta, []float64{1})
					checkFinite(t, fmt.Sprintf("%v n=%d d=%d s=%d tau=%g", f, c.n, c.d, c.s, tau), o, c.s)
				}
			}
			for _, leaf := range []string{"wendland(1-%d:u)", "rq(1-%d:u;=1e-300)", "rq(1-%d:u;=1)", "rq(1-%d:u;=1e300)"} {
				for _, tau := range []float64{1e-300, 1, 1e8} {
					text := fmt.Sprintf("a*"+leaf, c.d)
					cov, err := kernel.Parse(text, c.d)
					if err != nil {
						t.Fatal(err)
					}
					o := newOperator(in, cov, parallel.NewBudget(1), isa)
					o.Set([]float64{1, tau}, []float64{1})
					checkFinite(t, fmt.Sprintf("%s n=%d s=%d tau=%g", text, c.n, c.s, tau), o, c.s)
				}
			}
		}
	})
}

// checkFinite checks products of K + 1 with columns of ones: K's diagonal is 1
// and its other elements are within [0,1].
func checkFinite(t *testing.T, name string, o *Operator, s int) {
	t.Helper()
	ctx := context.Background()
	n := o.Len()
	ones, group := zeros(n, s), make([]int, s)
	for _, v := range ones {
		for i := range v {
			v[i] = 1
		}
	}
	dst, single, cross := zeros(n, s), zeros(n, s), zeros(n, s)
	if err := o.Mul(ctx, dst, ones); err != nil {
		t.Fatal(err)
	}
	if err := o.MulSingle(ctx, single, ones); err != nil {
		t.Fatal(err)
	}
	if err := o.Cross(ctx, cross, o.Inputs(), ones); err != nil {
		t.Fatal(err)
	}
	forms, err := o.Forms(ctx, ones, ones, group, 1)
	if err != nil {
		t.Fatal(err)
	}
	for c := range dst {
		for i, y := range dst[c] {
			if !(y >= 2-1e-14 && y <= float64(n)+1+1e-12) || !(math.Abs(single[c][i]-y) <= 1e-6*y) || !(math.Abs(cross[c][i]+1-y) <= 1e-13*y) {
				t.Fatalf("%s: row %d is %v, in single precision %v, K alone %v", name, i, y, single[c][i], cross[c][i])
			}
			if y != dst[0][i] {
				t.Fatalf("%s: row %d is %v in column 0 and %v in column %d", name, i, dst[0][i], y, c)
			}
		}
	}
	for _, q := range forms[0] {
		if math.IsNaN(q) || math.IsInf(q, 0) {
			t.Fatalf("%s: forms %v", name, forms[0])
		}
	}
}

func TestMulStopsWithItsContext(t *testing.T) {
	p := newProblem(kernel.RBF, 5000, 2, 1, false)
	o := p.operator(2, tile.Portable)
	ctx, cancel := context.WithCancel(context.Background())
	var calls int
	m := o.engine.(*tiles).double
	commit := m.commit
	m.commit = func(i int) {
		if calls++; calls == 3 {
			cancel()
		}
		commit(i)
	}
	dst := zeros(5000, 1)
	if err := o.Mul(ctx, dst, p.v); err != context.Canceled {
		t.Fatalf("got %v", err)
	}
	if total := NewGrid(5000).Tasks(); calls > total/2 {
		t.Errorf("%d of %d tasks ran after the cancellation", calls, total)
	}
	m.commit = commit
	if err := o.Mul(context.Background(), dst, p.v); err != nil {
		t.Errorf("the next product failed: %v", err)
	}
	if _, err := o.Forms(ctx, p.u, p.v, []int{0}, 1); err != context.Canceled {
		t.Errorf("Forms: got %v", err)
	}
	if err := o.Cross(ctx, dst, p.in, p.v); err != context.Canceled {
		t.Errorf("Cross: got %v", err)
	}
	if _, err := o.CrossMatrix(ctx, p.in.Select([]int{1, 2})); err != context.Canceled {
		t.Errorf("CrossMatrix: got %v", err)
	}
	if _, err := o.CrossRows(ctx, p.in.Select([]int{1, 2}), []int{7}); err != context.Canceled {
		t.Errorf("CrossRows: got %v", err)
	}
}

func TestProductsDoNotAllocate(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector, which has nothing to find here")
	}
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		for _, c := range []*kernel.Covariance{kernel.Single(kernel.RBF, 2, false), parsed(t, sums[3]), parsed(t, lines)} {
			p := problemOf(c, 300, 2)
			o := p.operator(2, isa)
			dst := zeros(300, 2)
			for _, part := range []int64{0, 1, 2} { // of K in a cache
				if part > 0 {
					o.SetCache(CacheBytes(300, false)/part, CacheBytes(300, true)/part)
				}
				for _, m := range multiplies {
					mul := m.mul(o)
					if a := testing.AllocsPerRun(20, func() { mul(context.Background(), dst, p.v) }); a > 0.5 {
						t.Errorf("%v allocations a product in %s precision", a, m.name)
					}
				}
			}
			// Forms allocate their results alone.
			if a := testing.AllocsPerRun(20, func() { o.Forms(context.Background(), p.u, p.v, []int{0, 1}, 2) }); a > 3.5 {
				t.Errorf("%v allocations for two groups of forms", a)
			}
		}
	})
}

func TestCacheBytes(t *testing.T) {
	if got, want := CacheBytes(600, false), int64(6*256*256*8); got != want {
		t.Errorf("3 tiles of rows take %d bytes, want %d", got, want)
	}
	for _, n := range []int{5, 600} {
		o := New(kernel.NewInputs(n, 1, make([]float64, n)), kernel.Single(kernel.RBF, 1, false), parallel.NewBudget(1))
		o.Set([]float64{1, 1}, []float64{1})
		o.SetCache(2*CacheBytes(n, false), 0)
		dst, v := zeros(n, 1), zeros(n, 1)
		for range 3 {
			if err := o.Mul(context.Background(), dst, v); err != nil {
				t.Fatal(err)
			}
		}
		if got := int64(len(o.engine.(*tiles).double.cache.data)) * 8; got != CacheBytes(n, false) {
			t.Errorf("n=%d: the cache has %d bytes, want %d", n, got, CacheBytes(n, false))
		}
		if c := o.Counts(); c.Pairs != 3*int64(n)*int64(n) || c.Read != 2*int64(n)*int64(n) {
			t.Errorf("n=%d: counted %+v", n, c)
		}
	}
}

func TestGridCoversEveryPairOnce(t *testing.T) {
	for _, n := range []int{1, 256, 257, 1000, 1500, 4096, 5000, 64 * 256, 64*256 + 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1_000_000} {
		g := NewGrid(n)
		if g.Blocks > maxBlocks {
			t.Errorf("n=%d: %d blocks", n, g.Blocks)
		}
		pairs := 0
		for i := range g.Tasks() {
			pairs += g.pairs(g.Task(i))
		}
		if want := g.Tiles * (g.Tiles + 1) / 2; pairs != want {
			t.Errorf("n=%d: tasks of %d tile pairs, want %d", n, pairs, want)
		}
		rows := 0
		for b := range g.Blocks {
			lo, hi := g.BlockRows(b)
			if lo != rows || hi <= lo {
				t.Errorf("n=%d: block %d has rows [%d,%d) after %d", n, b, lo, hi, rows)
			}
			rows = hi
		}
		if rows != n {
			t.Errorf("n=%d: blocks cover %d rows", n, rows)
		}
		seen := map[Task]bool{}
		for i := range g.Tasks() {
			task := g.Task(i)
			if task.A > task.B || task.B >= g.Blocks || seen[task] {
				t.Fatalf("n=%d: task %d is %v", n, i, task)
			}
			seen[task] = true
		}
	}
}

// Units are the lines of an affine plane: any two points are on exactly one, and the tasks of
// a line are of its points alone. They are of one size, but for what tiles do not divide.
func TestUnitsAreLinesOfAnAffinePlane(t *testing.T) {
	for _, c := range []struct{ n, order int }{{1, 1}, {700, 1}, {1000, 2}, {3000, 2}, {16 * 256, 4}, {16_000, 4}, {1 << 16, 8}, {100_000, 8}} {
		g, q := NewGrid(c.n), c.order
		if units := q*q + q; g.Points() != q*q || q > 1 && g.Units() != units || q == 1 && g.Units() != 1 {
			t.Fatalf("n=%d: %d points, %d units of order %d", c.n, g.Points(), g.Units(), q)
		}
		on, rows := map[[2]int]int{}, 0
		point := make([]int, g.Blocks) // of each block
		for p := range g.Points() {
			lo, hi := g.PointRows(p)
			if lo != rows || hi <= lo {
				t.Fatalf("n=%d: point %d has rows [%d,%d) after %d", c.n, p, lo, hi, rows)
			}
			rows = hi
			for b := g.points[p]; b < g.points[p+1]; b++ {
				point[b] = p
			}
		}
		if rows != c.n {
			t.Errorf("n=%d: points of %d rows", c.n, rows)
		}
		least, most := math.Inf(1), 0.0
		for u := range g.Units() {
			line := g.Unit(u)
			if len(line) != q || !slices.IsSorted(line) {
				t.Fatalf("n=%d: unit %d has points %v", c.n, u, line)
			}
			for i, a := range line {
				for _, b := range line[:i] {
					on[[2]int{b, a}]++
				}
			}
			work := 0.0
			for i := g.first[u]; i < g.first[u+1]; i++ {
				task := g.Task(i)
				if !slices.Contains(line, point[task.A]) || !slices.Contains(line, point[task.B]) {
					t.Fatalf("n=%d: task %v is in unit %d of points %v", c.n, task, u, line)
				}
				work += float64(g.pairs(task))
			}
			least, most = min(least, work), max(most, work)
		}
		if len(on) != q*q*(q*q-1)/2 {
			t.Errorf("n=%d: %d pairs of points", c.n, len(on))
		}
		for pair, lines := range on {
			if lines != 1 {
				t.Errorf("n=%d: points %v are on %d lines", c.n, pair, lines)
			}
		}
		if c.n > 1<<14 && most > 1.35*least {
			t.Errorf("n=%d: units of %g to %g tile pairs", c.n, least, most)
		}
	}
}
