package cholesky

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// covariance returns the covariance matrix of n points on a line, with noise.
func covariance(n int, noise float64) *mat.SymDense {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	x := make([]float64, n)
	for i := range x {
		x[i] = rnd.Float64() * float64(n) / 8
	}
	k := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i {
			k.SetSym(i, j, math.Exp(-(x[i]-x[j])*(x[i]-x[j])/2))
		}
		k.SetSym(i, i, 1+noise)
	}
	return k
}

// filled returns a Matrix with the elements of k, and rubbish where Fill is free to
// leave it.
func filled(t testing.TB, g grid, isa tile.ISA, k *mat.SymDense, b *parallel.Budget) *Matrix {
	m := newMatrix(g, isa)
	refill(t, m, k, b)
	return m
}

func refill(t testing.TB, m *Matrix, k *mat.SymDense, b *parallel.Budget) {
	err := m.Fill(ctx, b, func(p Strip, s []float64) {
		for e := range s {
			s[e] = math.NaN()
		}
		for j := p.JLo; j < p.JHi; j++ {
			for i := p.ILo; i < p.IHi; i++ {
				s[(j-p.JLo)*tile.Size+i-p.ILo] = k.At(i, j)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// elements reads a symmetric matrix back.
func elements(t *testing.T, m *Matrix, b *parallel.Budget) *mat.SymDense {
	out := mat.NewSymDense(m.n, nil)
	if err := m.Each(ctx, b, func(p Strip, s []float64) {
		for j := p.JLo; j < p.JHi; j++ {
			for i := max(p.ILo, j); i < p.IHi; i++ {
				out.SetSym(i, j, s[(j-p.JLo)*tile.Size+i-p.ILo])
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// grids are those of New, and of smaller blocks so that there are several of them.
func grids(n int) []grid {
	gs := []grid{newGrid(n)}
	for _, edge := range []int{32, 64} {
		if edge < gs[0].edge {
			gs = append(gs, grid{n: n, edge: edge, count: (n + edge - 1) / edge})
		}
	}
	return gs
}

// eachISA tests each instruction set; in short runs, under the race detector say, not the
// portable one, whose Go code it makes a hundred times slower.
func eachISA(t *testing.T, test func(t *testing.T, isa tile.ISA)) {
	isas := tile.Available()
	if testing.Short() && len(isas) > 1 {
		isas = isas[1:]
	}
	for _, isa := range isas {
		t.Run(isa.String(), func(t *testing.T) { test(t, isa) })
	}
}

// Determinant, solutions and inverse against gonum's.
func TestAgainstGonum(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		for _, n := range []int{1, 2, 7, 8, 9, 31, 64, 100, 129, 300, 517} {
			for _, g := range grids(n) {
				t.Run(fmt.Sprintf("n=%d/edge=%d", n, g.edge), func(t *testing.T) { testAgainstGonum(t, g, isa) })
			}
		}
	})
}

func testAgainstGonum(t *testing.T, g grid, isa tile.ISA) {
	b := parallel.NewBudget(3)
	k := covariance(g.n, 0.1)
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		t.Fatal("gonum finds the matrix singular")
	}
	m := filled(t, g, isa, k, b)
	if err := m.Factor(ctx, b); err != nil {
		t.Fatal(err)
	}
	// The condition number is below 100, so these are a few hundred roundings.
	tol := 1e-13 * math.Sqrt(float64(g.n))
	if got, want := m.LogDet(), chol.LogDet(); !(math.Abs(got-want) <= tol*float64(g.n)) {
		t.Errorf("log|K| is %v, want %v", got, want)
	}
	rnd := rand.New(rand.NewPCG(2, 2))
	var l mat.TriDense
	chol.LTo(&l)
	for _, s := range []int{0, 1, 9, 70} {
		rhs := mat.NewDense(g.n, s+1, nil)
		rhs.Apply(func(_, _ int, _ float64) float64 { return rnd.NormFloat64() }, rhs)
		for _, solve := range []struct {
			name string
			got  func(context.Context, *parallel.Budget, [][]float64) error
			a    mat.Matrix
		}{{"K", m.Solve, k}, {"L", m.SolveRoot, &l}, {"Lᵀ", m.SolveRootTrans, l.T()}} {
			x := make([][]float64, s)
			for c := range x {
				x[c] = mat.Col(nil, c, rhs)
			}
			if err := solve.got(ctx, b, x); err != nil {
				t.Fatal(err)
			}
			for c := range x {
				var back mat.VecDense
				back.MulVec(solve.a, mat.NewVecDense(g.n, x[c]))
				for i := range g.n {
					if e := math.Abs(back.AtVec(i) - rhs.At(i, c)); !(e <= 100*tol) {
						t.Fatalf("%s⁻¹, right-hand side %d of %d: residual %g in row %d", solve.name, c, s, e, i)
					}
				}
			}
		}
	}
	var inv mat.SymDense
	if err := chol.InverseTo(&inv); err != nil {
		t.Fatal(err)
	}
	if err := m.Invert(ctx, b); err != nil {
		t.Fatal(err)
	}
	got := elements(t, m, b)
	for i := range g.n {
		for j := range i + 1 {
			if e := math.Abs(got.At(i, j) - inv.At(i, j)); !(e <= 100*tol) {
				t.Fatalf("element (%d,%d) of the inverse is %v, want %v", i, j, got.At(i, j), inv.At(i, j))
			}
		}
	}
}

func TestEachGivesBackWhatFillTook(t *testing.T) {
	b := parallel.NewBudget(2)
	k := covariance(300, 0)
	m := filled(t, newGrid(300), tile.Available()[0], k, b)
	if got := elements(t, m, b); !mat.Equal(got, k) {
		t.Error("the elements differ")
	}
}

// The same bits at any number of threads; of the factor and the inverse with blocks of
// any size, too.
func TestBits(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		const n = 413
		k := covariance(n, 0.01)
		type result struct {
			logDet float64
			x      [][]float64
			inv    *mat.SymDense
		}
		run := func(g grid, cores int) result {
			b := parallel.NewBudget(cores)
			m := filled(t, g, isa, k, b)
			if err := m.Factor(ctx, b); err != nil {
				t.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(4, 4))
			r := result{x: make([][]float64, 11)}
			for _, v := range m.inv[:n] { // in one order whatever the blocks
				r.logDet -= 2 * math.Log(v)
			}
			for c := range r.x {
				r.x[c] = make([]float64, n)
				for i := range r.x[c] {
					r.x[c][i] = rnd.NormFloat64()
				}
			}
			if err := m.Solve(ctx, b, r.x); err != nil {
				t.Fatal(err)
			}
			if err := m.Invert(ctx, b); err != nil {
				t.Fatal(err)
			}
			r.inv = elements(t, m, b)
			return r
		}
		want := run(newGrid(n), 1)
		for _, g := range grids(n) {
			x := run(g, 1).x
			for _, cores := range []int{1, 2, 7} {
				got := run(g, cores)
				if got.logDet != want.logDet {
					t.Errorf("edge %d, %d cores: log|K| is %v, want %v", g.edge, cores, got.logDet, want.logDet)
				}
				for c := range got.x {
					for i, v := range got.x[c] {
						if v != x[c][i] {
							t.Fatalf("edge %d, %d cores: solution %d, row %d: %v, want %v", g.edge, cores, c, i, v, x[c][i])
						}
					}
				}
				if !mat.Equal(got.inv, want.inv) {
					t.Errorf("edge %d, %d cores: the inverses differ", g.edge, cores)
				}
			}
		}
	})
}

func TestNotPositive(t *testing.T) {
	b := parallel.NewBudget(2)
	for _, row := range []int{0, 5, 63, 64, 200, 299} {
		k := covariance(300, 0.1)
		k.SetSym(row, row, -1)
		m := filled(t, grid{n: 300, edge: 64, count: 5}, tile.Available()[0], k, b)
		var not *NotPositive
		if err := m.Factor(ctx, b); !errors.As(err, &not) || not.Row != row {
			t.Errorf("row %d: %v", row, err)
		}
	}
	k := covariance(300, 0.1)
	k.SetSym(150, 3, math.NaN())
	m := filled(t, newGrid(300), tile.Available()[0], k, b)
	if err := m.Factor(ctx, b); err == nil {
		t.Error("a matrix with a NaN has a factor")
	}
}

// A context that is done ends each step with its error.
func TestCancel(t *testing.T) {
	b := parallel.NewBudget(2)
	k := covariance(300, 0.1)
	done, cancel := context.WithCancel(ctx)
	cancel()
	m := filled(t, newGrid(300), tile.Available()[0], k, b)
	if err := m.Factor(done, b); err != context.Canceled {
		t.Errorf("Factor: %v", err)
	}
	if err := m.Fill(done, b, func(Strip, []float64) {}); err != context.Canceled {
		t.Errorf("Fill: %v", err)
	}
	m = filled(t, newGrid(300), tile.Available()[0], k, b)
	if err := m.Factor(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := m.Solve(done, b, [][]float64{make([]float64, 300)}); err != context.Canceled {
		t.Errorf("Solve: %v", err)
	}
	if err := m.Invert(done, b); err != context.Canceled {
		t.Errorf("Invert: %v", err)
	}

	// Not only before it begins.
	m = filled(t, grid{n: 2000, edge: 32, count: 63}, tile.Available()[0], covariance(2000, 0.1), b)
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := m.Factor(soon, b); err != context.DeadlineExceeded {
		t.Errorf("Factor: %v", err)
	}
}

func TestBytes(t *testing.T) {
	for _, n := range []int{1, 11, 300, 5000} {
		m := New(n)
		var want int64
		for _, b := range m.blocks {
			want += 8 * int64(len(b))
		}
		want += 8 * int64(len(m.inv))
		if got := Bytes(n); got != want {
			t.Errorf("n=%d: %d bytes, want %d", n, got, want)
		}
	}
}
