package precond

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func operator(n, d, cores int, f kernel.Family, ell, lambda float64) *cmvp.Operator {
	return operatorOf(kernel.Single(f, d, false), n, cores, lambda, 1.5, 1/(2*ell*ell))
}

// composite is an operator over three inputs whose covariance is a sum of a product
// and a single leaf.
func composite(t testing.TB, n, cores int) *cmvp.Operator {
	t.Helper()
	c, err := kernel.Parse("a*rbf(1-2:u)*matern32(3:v)+b*matern52(1:w[1],3:w[2])", 3)
	if err != nil {
		t.Fatal(err)
	}
	return operatorOf(c, n, cores, 0.1, 1.2, 0.4, 0.3, 0.5, 0.2, 0.6)
}

// withLines has a wide mean, and a factor that is no function of distance; onlyLines has nothing else.
func withLines(t testing.TB, n, cores int) *cmvp.Operator {
	t.Helper()
	c, err := kernel.Parse("a*rbf(1-2:u)*linear(0,3)+=100*linear(0,1,2)+b*matern32(1-3:v)", 3)
	if err != nil {
		t.Fatal(err)
	}
	return operatorOf(c, n, cores, 0.1, 1.2, 0.4, 0.3, 0.5)
}

func onlyLines(t testing.TB, n int) *cmvp.Operator {
	t.Helper()
	c, err := kernel.Parse("a*linear(1,3)+=100*linear(0)", 3)
	if err != nil {
		t.Fatal(err)
	}
	return operatorOf(c, n, 1, 0.1, 1.2)
}

func operatorOf(c *kernel.Covariance, n, cores int, lambda float64, theta ...float64) *cmvp.Operator {
	d := c.Dim()
	x := make([]float64, n*d)
	random.Normal(random.Key{Seed: 5}.Stream(random.Synthetic, 0), x)
	copy(x[d:2*d], x[:d]) // a repeated row
	op := cmvp.New(kernel.NewInputs(n, d, x), c, parallel.NewBudget(cores))
	noise := make([]float64, n)
	for i := range noise { // a general diagonal
		noise[i] = lambda * (1 + 0.5*math.Sin(float64(i)))
	}
	op.Set(theta, noise)
	return op
}

// identity returns the columns of I.
func identity(n int) [][]float64 {
	cols := solve.Columns(n, n)
	for i := range cols {
		cols[i][i] = 1
	}
	return cols
}

func toDense(cols [][]float64) *mat.Dense {
	m := mat.NewDense(len(cols[0]), len(cols), nil)
	for c := range cols {
		m.SetCol(c, cols[c])
	}
	return m
}

func apply(f func(dst, v [][]float64), n int) *mat.Dense {
	dst := solve.Columns(n, n)
	f(dst, identity(n))
	return toDense(dst)
}

func distance(a, b mat.Matrix) float64 {
	var d mat.Dense
	d.Sub(a, b)
	return mat.Norm(&d, math.Inf(1))
}

func TestAlgebra(t *testing.T) {
	const n = 90
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			op := operator(n, 2, 2, kernel.RBF, 1.5, 0.05)
			p, err := Build(t.Context(), kind, op, 20, random.Key{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			want := 20
			if kind == "blockjacobi" {
				want = 0
			}
			if p.Rank() != want || p.Kind() != kind {
				t.Errorf("rank %d, kind %s", p.Rank(), p.Kind())
			}
			eye := toDense(identity(n))
			f := apply(p.MulRoot, n)
			var full, prod mat.Dense
			full.Mul(f, f.T()) // P
			prod.Mul(apply(p.Solve, n), &full)
			if e := distance(&prod, eye); e > 1e-9 {
				t.Errorf("P⁻¹FFᵀ − I = %g", e)
			}
			prod.Mul(apply(p.SolveRoot, n), f)
			if e := distance(&prod, eye); e > 1e-9 {
				t.Errorf("F⁻¹F − I = %g", e)
			}
			prod.Mul(apply(p.SolveRootTrans, n), f.T())
			if e := distance(&prod, eye); e > 1e-9 {
				t.Errorf("F⁻ᵀFᵀ − I = %g", e)
			}
			prod.Mul(apply(p.MulRootTrans, n), apply(p.SolveRootTrans, n))
			if e := distance(&prod, eye); e > 1e-9 {
				t.Errorf("FᵀF⁻ᵀ − I = %g", e)
			}
			if det, sign := mat.LogDet(&full); sign != 1 || math.Abs(det-p.LogDet()) > 1e-9*math.Abs(det) {
				t.Errorf("log|P| = %v, want %v", p.LogDet(), det)
			}
			// In place.
			v := solve.Columns(n, 2)
			random.Normal(random.Key{}.Stream(random.Calibration, 0), v[0])
			random.Normal(random.Key{}.Stream(random.Calibration, 1), v[1])
			for name, f := range map[string]func(dst, v [][]float64){"Solve": p.Solve, "MulRootTrans": p.MulRootTrans, "MulRoot": p.MulRoot, "SolveRoot": p.SolveRoot, "SolveRootTrans": p.SolveRootTrans} {
				want, inPlace := solve.Columns(n, 2), solve.Columns(n, 2)
				f(want, v)
				copyColumns(inPlace, v)
				f(inPlace, inPlace)
				if !floats.Equal(want[0], inPlace[0]) || !floats.Equal(want[1], inPlace[1]) {
					t.Errorf("%s in place differs", name)
				}
			}
		})
	}
}

// At full rank P is K, up to rounding; random features never are.
func TestFullRankIsExact(t *testing.T) {
	for _, op := range []*cmvp.Operator{operator(60, 3, 1, kernel.Matern32, 1, 0.1), composite(t, 60, 2), withLines(t, 60, 2), onlyLines(t, 60)} {
		testFullRank(t, op)
	}
}

// A wide mean takes no iterations: its columns are in every preconditioner, whatever its rank.
func TestMeansTakeNoIterations(t *testing.T) {
	const n = 400
	with, err := kernel.Parse("=1e4*linear(0,1,2)+a*rbf(1-2:u)", 2)
	if err != nil {
		t.Fatal(err)
	}
	without, err := kernel.Parse("a*rbf(1-2:u)", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds() {
		its := map[*kernel.Covariance]float64{}
		for _, c := range []*kernel.Covariance{with, without} {
			op := operatorOf(c, n, 2, 0.01, 1, 2)
			p, err := Build(t.Context(), kind, op, 20, random.Key{Seed: 2})
			if err != nil {
				t.Fatal(err)
			}
			its[c] = iterationsWith(t, op, p, 1e-6)
		}
		if its[with] > its[without]+2 {
			t.Errorf("%s: %g iterations with a mean, %g without", kind, its[with], its[without])
		}
	}
}

func testFullRank(t *testing.T, op *cmvp.Operator) {
	n := op.Len()
	for _, kind := range Kinds() {
		if kind == "fourier" {
			continue
		}
		p, err := Build(t.Context(), kind, op, n, random.Key{Seed: 2})
		if err != nil {
			t.Fatal(err)
		}
		k := solve.Columns(n, n)
		if err := op.Mul(context.Background(), k, identity(n)); err != nil {
			t.Fatal(err)
		}
		f := apply(p.MulRoot, n)
		var full mat.Dense
		full.Mul(f, f.T())
		if e := distance(&full, toDense(k)); e > 1e-6 {
			t.Errorf("%s of %v: P − K = %g", kind, op.Function().Covariance(), e)
		}
	}
}

// A preconditioner earns its keep at long length-scales (Cutajar et al. 2016):
// CG needs at most half of the iterations. Block Jacobi does not: it is there to
// be compared with.
func TestFewerIterations(t *testing.T) {
	const n = 600
	op := operator(n, 2, 2, kernel.RBF, 1, 1e-3)
	plain := iterationsWith(t, op, nil, 1e-6)
	for _, kind := range Kinds() {
		if kind == "blockjacobi" {
			continue
		}
		p, err := Build(t.Context(), kind, op, AutoRank(n), random.Key{Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		if it := iterationsWith(t, op, p, 1e-6); it > plain/2 {
			t.Errorf("%s: %v iterations, %v without", kind, it, plain)
		}
	}
}

// Eigenvalues far below the largest count where the noise is small: the sketch
// keeps them, so that svd is as good as pivoted Cholesky there.
func TestSmallEigenvalues(t *testing.T) {
	const n, rank = 300, 40
	op := operator(n, 2, 2, kernel.RBF, 10, 1e-6)
	its := map[string]float64{}
	for _, kind := range []string{"svd", "cholesky"} {
		p, err := Build(t.Context(), kind, op, rank, random.Key{Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		its[kind] = iterationsWith(t, op, p, 1e-5)
	}
	if its["svd"] > its["cholesky"]+2 {
		t.Errorf("iterations %v", its)
	}
}

// iterationsWith returns the iterations of a solve with a preconditioner.
func iterationsWith(t *testing.T, op *cmvp.Operator, p solve.Preconditioner, tol float64) float64 {
	t.Helper()
	n := op.Len()
	b := solve.Columns(n, 2)
	for c := range b {
		random.Normal(random.Key{Seed: 3}.Stream(random.Calibration, c), b[c])
	}
	rep, err := solve.New(op, solve.Options{Tolerance: tol, Precond: p}).Solve(context.Background(), solve.Columns(n, 2), b)
	if err != nil || rep.Unconverged > 0 {
		t.Fatal(rep, err)
	}
	return rep.MeanIterations()
}

func TestBitsDoNotDependOnThreads(t *testing.T) {
	const n = 3000
	for _, kind := range Kinds() {
		var want [][]float64
		for _, cores := range []int{1, 4} {
			op := operator(n, 2, cores, kernel.RBF, 1, 0.1)
			p, err := Build(t.Context(), kind, op, 30, random.Key{Seed: 6})
			if err != nil {
				t.Fatal(err)
			}
			got := solve.Columns(n, 3)
			for c := range got {
				random.Normal(random.Key{}.Stream(random.Calibration, c), got[c])
			}
			p.Solve(got, got)
			p.SolveRootTrans(got, got)
			if want == nil {
				want = got
			}
			for c := range got {
				if !floats.Equal(got[c], want[c]) {
					t.Errorf("%s: column %d depends on the number of cores", kind, c)
				}
			}
		}
	}
}

func TestAutoRank(t *testing.T) {
	for n, want := range map[int]int{10: 5, 1030: 129, 22784: 604, 1_000_000: 134} {
		if r := AutoRank(n); r != want {
			t.Errorf("n=%d: rank %d, want %d", n, r, want)
		}
	}
	if _, err := Build(t.Context(), "nystrm", operator(10, 1, 1, kernel.RBF, 1, 1), 2, random.Key{}); err == nil || fmt.Sprint(err) != `unknown preconditioner "nystrm": use one of blockjacobi, cholesky, fitc, fourier, nystrom, pitc, rpcholesky, svd` {
		t.Errorf("got %v", err)
	}
}

// On the pivots of a pivoted Cholesky factor, the preconditioner on fixed rows
// is that factor's, and FᵀF⁻ᵀ is the identity.
func TestFixedRows(t *testing.T) {
	testFixedRows(t, operator(90, 3, 2, kernel.RBF, 1, 0.1))
	testFixedRows(t, withLines(t, 90, 2))
}

func testFixedRows(t *testing.T, op *cmvp.Operator) {
	const n, rank = 90, 20
	key := random.Key{Seed: 5}
	rows, err := Pivots(t.Context(), op, rank, key)
	if err != nil || len(rows) != rank {
		t.Fatal(rows, err)
	}
	want, err := Build(t.Context(), "rpcholesky", op, rank, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := OnRows(t.Context(), op, rows)
	if err != nil {
		t.Fatal(err)
	}
	if e := distance(apply(got.Solve, n), apply(want.Solve, n)); e > 1e-9 {
		t.Errorf("the inverses differ by %v", e)
	}
	both := apply(func(dst, v [][]float64) { got.SolveRootTrans(dst, v); got.MulRootTrans(dst, dst) }, n)
	if e := distance(both, apply(copyColumns, n)); e > 1e-10 {
		t.Errorf("FᵀF⁻ᵀ is off the identity by %v", e)
	}
	if all, err := Pivots(t.Context(), operator(4, 1, 1, kernel.RBF, 1e6, 0.1), 4, key); err != nil || len(all) >= 4 {
		t.Errorf("%d pivots of a matrix of rank one (%v)", len(all), err)
	}
}

// The first columns are the preconditioner of a lower rank.
func TestFirstColumns(t *testing.T) {
	testFirstColumns(t, operator(300, 3, 2, kernel.RBF, 1, 0.1))
	testFirstColumns(t, withLines(t, 300, 2))
}

func testFirstColumns(t *testing.T, op *cmvp.Operator) {
	const n = 300
	for _, kind := range Kinds() {
		if !Nested(kind) || kind == "svd" { // its sketch grows with the rank
			continue
		}
		big, err := Build(t.Context(), kind, op, 150, random.Key{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		want, err := Build(t.Context(), kind, op, 40, random.Key{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		got := big.First(40)
		if e := distance(apply(got.Solve, n), apply(want.Solve, n)); e > 1e-9 || math.Abs(got.LogDet()-want.LogDet()) > 1e-9*math.Abs(want.LogDet()) {
			t.Errorf("%s: the inverses differ by %v, log determinants %v and %v", kind, e, got.LogDet(), want.LogDet())
		}
	}
}

// Of a preconditioner on some rows P = D + LLᵀ, and K_f − LLᵀ is positive semi-definite and nothing on those rows.
func TestFactorOfRows(t *testing.T) {
	const n = 40
	op := operator(n, 2, 1, kernel.RBF, 0.7, 0.3)
	rows := []int{3, 11, 20, 37}
	p, err := OnRows(t.Context(), op, rows)
	if err != nil {
		t.Fatal(err)
	}
	l, back, whole, k := solve.Columns(n, p.Rank()), solve.Columns(p.Rank(), n), solve.Columns(n, n), solve.Columns(n, n)
	p.MulFactor(l, identity(p.Rank()))
	p.MulFactorTrans(back, identity(n))
	p.MulRootTrans(whole, identity(n))
	p.MulRoot(whole, whole)
	if err := op.Mul(t.Context(), k, identity(n)); err != nil {
		t.Fatal(err)
	}
	left := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range n {
			low := 0.0
			for c := range l {
				low += l[c][i] * l[c][j]
			}
			for c := range l {
				if math.Abs(back[i][c]-l[c][i]) > 1e-12 {
					t.Fatalf("Lᵀ is %v at %d, %d, want %v", back[i][c], c, i, l[c][i])
				}
			}
			noise := 0.0
			if i == j {
				noise = op.Noise()[i]
			}
			if math.Abs(whole[j][i]-low-noise) > 1e-10 {
				t.Fatalf("P is %v at %d, %d, and D + LLᵀ %v", whole[j][i], i, j, low+noise)
			}
			if rest := k[j][i] - low - noise; slices.Contains(rows, i) && math.Abs(rest) > 1e-9 {
				t.Errorf("%v is left at %d, %d", rest, i, j)
			} else if i <= j {
				left.SetSym(i, j, rest)
			}
		}
	}
	var eig mat.EigenSym
	if !eig.Factorize(left, false) || eig.Values(nil)[0] < -1e-9 {
		t.Errorf("what is left has the eigenvalue %v", eig.Values(nil)[0])
	}
}
