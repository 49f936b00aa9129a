package sparse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

var ctx = context.Background()

// example is data, a covariance with its parameters, and noise.
type example struct {
	name  string
	cov   *kernel.Covariance
	theta []float64
	x     *kernel.Inputs
	noise []float64
	y     []float64
}

func parse(t testing.TB, text string, dim int) *kernel.Covariance {
	t.Helper()
	c, err := kernel.Parse(text, dim)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func inputs(r *rand.Rand, n, d int) *kernel.Inputs {
	x := make([]float64, n*d)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return kernel.NewInputs(n, d, x)
}

func examples(t testing.TB, n int) []example {
	r := rand.New(rand.NewPCG(1, 2))
	rows := inputs(r, n, 2)
	y, each := make([]float64, n), make([]float64, n)
	for i := range y {
		x := rows.Row(i)
		each[i] = 0.02 + 0.2*r.Float64()
		y[i] = math.Sin(2*x[0]) + 0.3*x[1] + math.Sqrt(each[i])*r.NormFloat64()
	}
	one := []float64{0.1}
	return []example{
		{"rbf", parse(t, "sigma*rbf(1-2:tau)", 2), []float64{1.3, 0.4}, rows, one, y},
		{"ard", parse(t, "sigma*rbf(1:tau[1],2:tau[2])", 2), []float64{1.3, 0.6, 0.1}, rows, each, y},
		{"matern and line", parse(t, "a*matern32(1-2:tau)+b*linear(2)", 2), []float64{0.9, 0.5, 0.2}, rows, one, y},
		{"product", parse(t, "a*matern52(1:u)*rbf(2:v)+=2*linear(1)", 2), []float64{1.1, 0.7, 0.3}, rows, each, y},
	}
}

// moved returns the first m rows, moved a little.
func moved(x *kernel.Inputs, m int) *kernel.Inputs {
	r := rand.New(rand.NewPCG(3, 4))
	var z []float64
	for i := range m {
		for _, v := range x.Row(i) {
			z = append(z, v+0.1*r.NormFloat64())
		}
	}
	return kernel.NewInputs(m, x.Dim(), z)
}

// matrix returns k(a,b), element by element.
func matrix(f *kernel.Function, a, b *kernel.Inputs) *mat.Dense {
	out := mat.NewDense(a.Len(), b.Len(), nil)
	for i := range a.Len() {
		for j := range b.Len() {
			out.Set(i, j, f.Value(a.Row(i), b.Row(j)))
		}
	}
	return out
}

// oracle is an approximation by n×n algebra: the covariance of the rows, Q + Λ, what is added to the log density,
// and Q against other points.
type oracle struct {
	sum   *mat.SymDense
	added float64
	q     func(a, b *kernel.Inputs) *mat.Dense
}

func newOracle(kind Kind, e example, z *kernel.Inputs) oracle {
	f := e.cov.At(e.theta)
	kuu := matrix(f, z, z)
	jitter := Jitter * mat.Trace(kuu) / float64(z.Len())
	for j := range z.Len() {
		kuu.Set(j, j, kuu.At(j, j)+jitter)
	}
	q := func(a, b *kernel.Inputs) *mat.Dense {
		var solved, out mat.Dense
		_ = solved.Solve(kuu, matrix(f, z, b))
		out.Mul(matrix(f, a, z), &solved)
		return &out
	}
	n := e.x.Len()
	o := oracle{mat.NewSymDense(n, nil), 0, q}
	own := q(e.x, e.x)
	for i := range n {
		for j := i; j < n; j++ {
			o.sum.SetSym(i, j, own.At(i, j))
		}
		rest, noise := f.Variance(e.x.Row(i))-own.At(i, i), element(e.noise, i)
		switch kind {
		case SGPR:
			o.added -= 0.5 * rest / noise
		case FITC:
			noise += rest
		}
		o.sum.SetSym(i, i, o.sum.At(i, i)+noise)
	}
	return o
}

func logDensity(k *mat.SymDense, y []float64) float64 {
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return math.NaN()
	}
	var a mat.VecDense
	yv := mat.NewVecDense(len(y), y)
	_ = chol.SolveVecTo(&a, yv)
	return -0.5 * (mat.Dot(yv, &a) + chol.LogDet() + float64(len(y))*math.Log(2*math.Pi))
}

// exact returns the log density that is approximated.
func exact(e example) float64 {
	f, n := e.cov.At(e.theta), e.x.Len()
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			k.SetSym(i, j, f.Value(e.x.Row(i), e.x.Row(j)))
		}
		k.SetSym(i, i, k.At(i, i)+element(e.noise, i))
	}
	return logDensity(k, e.y)
}

func value(t testing.TB, kind Kind, e example, z *kernel.Inputs) float64 {
	t.Helper()
	v, err := New(kind, e.cov, e.x, z, parallel.NewBudget(1)).LogDensity(ctx, e.cov.At(e.theta), e.noise, e.y)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLogDensityIsThatOfDenseAlgebra(t *testing.T) {
	for _, e := range examples(t, 70) {
		z := moved(e.x, 13)
		for _, kind := range Kinds() {
			o := newOracle(kind, e, z)
			got, want := value(t, kind, e, z), logDensity(o.sum, e.y)+o.added
			if math.Abs(got-want) > 1e-6*math.Abs(want) {
				t.Errorf("%s, %s: %.10g, dense algebra %.10g", e.name, kind, got, want)
			}
		}
	}
}

// With inducing inputs at the rows nothing is left out; the jitter costs up to 1e-8 of the variance over the noise in
// each row.
func TestInducingInputsAtTheRowsAreExact(t *testing.T) {
	for _, e := range examples(t, 60) {
		for _, kind := range Kinds() {
			if got, want := value(t, kind, e, e.x), exact(e); math.Abs(got-want) > 1e-4 {
				t.Errorf("%s, %s: %.8g, exactly %.8g", e.name, kind, got, want)
			}
		}
	}
}

// Theorem 3 of Matthews (2016), and that a bound is one.
func TestBoundGrowsWithInducingInputs(t *testing.T) {
	for _, e := range examples(t, 60) {
		before := math.Inf(-1)
		for _, m := range []int{1, 2, 5, 9, 20, 33, 60} {
			rows := make([]int, m)
			for i := range rows {
				rows[i] = i
			}
			v := value(t, SGPR, e, e.x.Select(rows))
			if v < before-1e-6 || v > exact(e) {
				t.Errorf("%s: a bound of %g with %d inducing inputs, after %g; the log density is %g", e.name, v, m, before, exact(e))
			}
			before = v
		}
	}
}

func TestGradientIsThatOfDifferences(t *testing.T) {
	for _, e := range examples(t, 40) {
		z := moved(e.x, 11)
		for _, kind := range Kinds() {
			a := New(kind, e.cov, e.x, z, parallel.NewBudget(1))
			got, err := a.Gradient(ctx, e.cov.At(e.theta), e.noise, e.y, true)
			if err != nil {
				t.Fatal(err)
			}
			if v := value(t, kind, e, z); v != got.LogDensity {
				t.Errorf("%s, %s: the value is %v with a gradient, %v alone", e.name, kind, got.LogDensity, v)
			}
			check := func(what string, got, step float64, at func(h float64) float64) {
				t.Helper()
				want := (at(step) - at(-step)) / (2 * step)
				if math.Abs(got-want) > 2e-5*(1+math.Abs(want)) {
					t.Errorf("%s, %s: the derivative by %s is %.9g, differences %.9g", e.name, kind, what, got, want)
				}
			}
			for i, g := range got.Theta {
				check(e.cov.Params()[i].Name(), g, 1e-4, func(h float64) float64 {
					b := e
					b.theta = slices.Clone(e.theta)
					b.theta[i] *= math.Exp(h)
					return value(t, kind, b, z)
				})
			}
			for i, noise := range e.noise {
				g := got.Noise[i]
				if len(e.noise) == 1 {
					g = 0
					for _, x := range got.Noise {
						g += x
					}
				} else if i > 3 {
					break
				}
				check(fmt.Sprint("noise ", i), g, 1e-4*noise, func(h float64) float64 {
					b := e
					b.noise = slices.Clone(e.noise)
					b.noise[i] += h
					return value(t, kind, b, z)
				})
			}
			for i, g := range got.Inducing {
				check(fmt.Sprint("inducing input ", i), g, 1e-4, func(h float64) float64 {
					x := make([]float64, 0)
					for j := range z.Len() {
						x = append(x, z.Row(j)...)
					}
					x[i] += h
					return value(t, kind, e, kernel.NewInputs(z.Len(), z.Dim(), x))
				})
			}
		}
	}
}

// The predictions of SGPR and DTC are those of targets with the covariance Q + D, of FITC with Q + diag(K−Q) + D, at points
// whose own variances are exact.
func TestPosteriorIsThatOfDenseAlgebra(t *testing.T) {
	for _, e := range examples(t, 50) {
		z, points := moved(e.x, 9), inputs(rand.New(rand.NewPCG(5, 6)), 7, 2)
		f := e.cov.At(e.theta)
		for _, kind := range Kinds() {
			p, err := New(kind, e.cov, e.x, z, parallel.NewBudget(1)).Posterior(ctx, f, e.noise, e.y)
			if err != nil {
				t.Fatal(err)
			}
			o := newOracle(kind, e, z)
			cross := o.q(points, e.x)
			var solved, mean, less mat.Dense
			_ = solved.Solve(o.sum, cross.T())
			mean.Mul(solved.T(), mat.NewDense(len(e.y), 1, e.y))
			less.Mul(cross, &solved)
			for i := range points.Len() {
				k := matrix(f, z, points.Select([]int{i})).RawMatrix().Data
				x := make([]float64, len(k))
				p.Explained(x, k)
				prior := f.Variance(points.Row(i))
				got, want := prior-floats.Dot(k, x), prior-less.At(i, i)
				if m := floats.Dot(k, p.Gamma); math.Abs(m-mean.At(i, 0)) > 1e-6 || math.Abs(got-want) > 1e-6 {
					t.Errorf("%s, %s: mean and variance %.9g and %.9g, dense algebra %.9g and %.9g", e.name, kind, m, got, mean.At(i, 0), want)
				}
			}
		}
	}
}

// Several blocks, the last of them short; the determinant lemma in place of n×n algebra.
func TestBlocksOfRows(t *testing.T) {
	e := examples(t, blockRows+300)[1]
	z := moved(e.x, 5)
	f := e.cov.At(e.theta)
	kuu, kuf := matrix(f, z, z), matrix(f, z, e.x)
	var v, phi mat.Dense
	_ = v.Solve(kuu, kuf)
	n, m := e.x.Len(), z.Len()
	weighted := mat.DenseCopyOf(kuf)
	b := make([]float64, m)
	want := -0.5 * float64(n) * math.Log(2*math.Pi)
	for i := range n {
		l := e.noise[i] + f.Variance(e.x.Row(i)) - mat.Dot(kuf.ColView(i), v.ColView(i))
		want -= 0.5 * (math.Log(l) + e.y[i]*e.y[i]/l)
		for j := range m {
			weighted.Set(j, i, kuf.At(j, i)/l)
			b[j] += kuf.At(j, i) * e.y[i] / l
		}
	}
	phi.Mul(weighted, kuf.T())
	phi.Add(&phi, kuu)
	var a mat.VecDense
	_ = a.SolveVec(&phi, mat.NewVecDense(m, b))
	with, _ := mat.LogDet(&phi)
	without, _ := mat.LogDet(kuu)
	want += 0.5 * (mat.Dot(mat.NewVecDense(m, b), &a) + without - with)
	var first *Value
	for _, threads := range []int{1, 3} {
		got, err := New(FITC, e.cov, e.x, z, parallel.NewBudget(threads)).Gradient(ctx, f, e.noise, e.y, true)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.LogDensity-want) > 1e-5*math.Abs(want) {
			t.Errorf("%.10g, by the determinant lemma %.10g", got.LogDensity, want)
		}
		if first == nil {
			first = got
		}
		if !reflect.DeepEqual(got, first) {
			t.Error("other bits with other threads")
		}
	}
}

func TestInduce(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const n, m = 600, 6
	x, centre := make([]float64, 0, 3*n), make([]int, n) // six heaps in two levels; a level says which of two rows of heaps
	for i := range n {
		c := r.IntN(m)
		centre[i] = c
		x = append(x, float64(c%3)+0.02*r.NormFloat64(), 5*float64(c/3)+0.05*r.NormFloat64(), float64(c/3))
	}
	rows, levels, b := kernel.NewInputs(n, 3, x), []bool{false, false, true}, parallel.NewBudget(2)
	z := Induce(KMeans, rows, m, levels, random.Key{Seed: 3}, b)
	found := map[int]bool{}
	for j := range z.Len() {
		p := z.Row(j)
		c := int(math.Round(p[0])) + 3*int(math.Round(p[1]/5))
		found[c] = true
		if math.Abs(p[0]-float64(c%3)) > 0.02 || math.Abs(p[1]-5*float64(c/3)) > 0.05 || p[2] != float64(c/3) {
			t.Errorf("a centre at %v", p)
		}
	}
	if len(found) != m {
		t.Errorf("%d of %d heaps have a centre", len(found), m)
	}
	again := Induce(KMeans, rows, m, levels, random.Key{Seed: 3}, parallel.NewBudget(1))
	if !reflect.DeepEqual(again, z) {
		t.Error("other centres with another number of threads")
	}
	some := Induce(Rows, rows, m, levels, random.Key{Seed: 3}, b)
	for j := range some.Len() {
		if !slices.ContainsFunc(span(n), func(i int) bool { return slices.Equal(rows.Row(i), some.Row(j)) }) {
			t.Errorf("%v is no row", some.Row(j))
		}
	}
	twice := rows.Select([]int{4, 9, 4, 9, 9})
	for _, place := range Places() {
		if z := Induce(place, twice, 4, levels, random.Key{}, b); z.Len() != 2 {
			t.Errorf("%s: %d inducing inputs of two rows that differ", place, z.Len())
		}
	}
}

func span(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestErrors(t *testing.T) {
	e := examples(t, 30)[0]
	a := New(SGPR, e.cov, e.x, e.x, parallel.NewBudget(1))
	if _, err := a.LogDensity(ctx, e.cov.At([]float64{math.NaN(), 1}), e.noise, e.y); !errors.Is(err, ErrSingular) {
		t.Errorf("a variance that is no number: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := a.Gradient(done, e.cov.At(e.theta), e.noise, e.y, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
}
