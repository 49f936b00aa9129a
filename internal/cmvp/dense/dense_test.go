package dense

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func columns(rnd *rand.Rand, n, s int) [][]float64 {
	cols := make([][]float64, s)
	for c := range cols {
		cols[c] = make([]float64, n)
		for i := range cols[c] {
			cols[c][i] = rnd.NormFloat64()
		}
	}
	return cols
}

func random(rnd *rand.Rand, rows, cols int, isa tile.ISA) (*Matrix, *mat.Dense) {
	m, want := newMatrix(rows, cols, isa), mat.NewDense(rows, cols, nil)
	for j, col := range columns(rnd, rows, cols) {
		m.SetCol(j, col)
		want.SetCol(j, col)
	}
	return m, want
}

func dense(cols [][]float64) *mat.Dense {
	d := mat.NewDense(len(cols[0]), len(cols), nil)
	for j, col := range cols {
		d.SetCol(j, col)
	}
	return d
}

func checkClose(t *testing.T, what string, got, want mat.Matrix, tol float64) {
	t.Helper()
	if r, c := got.Dims(); true {
		if wr, wc := want.Dims(); r != wr || c != wc {
			t.Fatalf("%s is %d×%d, want %d×%d", what, r, c, wr, wc)
		}
		for i := range r {
			for j := range c {
				if e := math.Abs(got.At(i, j) - want.At(i, j)); !(e <= tol) {
					t.Fatalf("%s (%d,%d) is %v, want %v", what, i, j, got.At(i, j), want.At(i, j))
				}
			}
		}
	}
}

var ctx = context.Background()

func gram(t *testing.T, m *Matrix, b *parallel.Budget) *mat.SymDense {
	t.Helper()
	g, err := m.Gram(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var shapes = []struct{ rows, cols, s int }{
	{1, 1, 1}, {5, 9, 2}, {256, 8, 3}, {257, 17, 5}, {1000, 130, 17}, {9000, 33, 4},
}

// eachISA runs a test with every instruction set that the machine has.
func eachISA(t *testing.T, test func(t *testing.T, isa tile.ISA)) {
	for _, isa := range tile.Available() {
		t.Run(isa.String(), func(t *testing.T) { test(t, isa) })
	}
}

func TestProducts(t *testing.T) { eachISA(t, testProducts) }

func testProducts(t *testing.T, isa tile.ISA) {
	for _, sh := range shapes {
		t.Run(fmt.Sprintf("%dx%d/s=%d", sh.rows, sh.cols, sh.s), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, uint64(sh.rows)))
			b := parallel.NewBudget(2)
			m, a := random(rnd, sh.rows, sh.cols, isa)
			tol := 1e-14 * float64(sh.rows)
			var want mat.Dense

			v := columns(rnd, sh.rows, sh.s)
			got := columns(rnd, sh.cols, sh.s)
			m.MulTrans(ctx, got, v, b)
			want.Mul(a.T(), dense(v))
			checkClose(t, "MᵀV", dense(got), &want, tol)

			w, y := columns(rnd, sh.cols, sh.s), columns(rnd, sh.rows, sh.s)
			y0 := dense(y)
			m.MulAdd(ctx, y, w, b)
			want.Reset()
			want.Mul(a, dense(w))
			want.Add(&want, y0)
			checkClose(t, "Y+MW", dense(y), &want, tol)

			want.Reset()
			want.Mul(a.T(), a)
			checkClose(t, "MᵀM", gram(t, m, b), &want, tol)

			other, o := random(rnd, sh.rows, sh.s, isa)
			want.Reset()
			want.Mul(a.T(), o)
			ab, err := TransMul(ctx, m, other, b)
			if err != nil {
				t.Fatal(err)
			}
			checkClose(t, "AᵀB", ab, &want, tol)

			var aw mat.Dense
			aw.Mul(a, dense(w))
			m.MulRight(ctx, w, b)
			cols := columns(rnd, sh.rows, sh.s)
			for j := range cols {
				m.Col(cols[j], j)
			}
			checkClose(t, "MW in place", dense(cols), &aw, tol)
			want.Reset()
			want.Mul(aw.T(), &aw)
			checkClose(t, "(MW)ᵀMW", gram(t, m, b), &want, tol*float64(sh.cols)) // of what it keeps alone
		})
	}
}

func TestElementsAndFirstColumns(t *testing.T) { eachISA(t, testElementsAndFirstColumns) }

func testElementsAndFirstColumns(t *testing.T, isa tile.ISA) {
	rnd := rand.New(rand.NewPCG(2, 2))
	m, a := random(rnd, 600, 20, isa)
	row, col := make([]float64, 20), make([]float64, 600)
	for i := range 600 {
		m.Row(row, i)
		for j, x := range row {
			if x != a.At(i, j) {
				t.Fatalf("(%d,%d) is %v, want %v", i, j, x, a.At(i, j))
			}
		}
	}
	first := m.First(11)
	first.Col(col, 10)
	for i, x := range col {
		if x != a.At(i, 10) {
			t.Fatalf("(%d,10) is %v, want %v", i, x, a.At(i, 10))
		}
	}
	b := parallel.NewBudget(1)
	a11 := a.Slice(0, 600, 0, 11)
	v, got := columns(rnd, 600, 1), columns(rnd, 11, 1)
	first.MulTrans(ctx, got, v, b)
	var want mat.Dense
	want.Mul(a11.T(), dense(v))
	checkClose(t, "MᵀV", dense(got), &want, 1e-12)
	y := columns(rnd, 600, 1)
	clear(y[0])
	first.MulAdd(ctx, y, got, b)
	want.Reset()
	want.Mul(a11, dense(got))
	checkClose(t, "MW", dense(y), &want, 1e-11)
	want.Reset()
	want.Mul(a11.T(), a11)
	checkClose(t, "MᵀM", gram(t, first, b), &want, 1e-12)
}

// The same bits at any number of threads, and for a column alone or among
// others.
func TestBitsDoNotDependOnThreadsOrColumns(t *testing.T) { eachISA(t, testBits) }

func testBits(t *testing.T, isa tile.ISA) {
	rnd := rand.New(rand.NewPCG(3, 3))
	m, _ := random(rnd, 12_000, 70, isa)
	v, w := columns(rnd, 12_000, 7), columns(rnd, 70, 7)
	type results struct {
		vt, y [][]float64
		gram  *mat.SymDense
	}
	run := func(cores int, v, w [][]float64) results {
		b := parallel.NewBudget(cores)
		r := results{columns(rnd, 70, len(v)), nil, gram(t, m, b)}
		for range w {
			r.y = append(r.y, make([]float64, 12_000))
		}
		m.MulTrans(ctx, r.vt, v, b)
		m.MulAdd(ctx, r.y, w, b)
		return r
	}
	equal := func(what string, got, want []float64) {
		t.Helper()
		for i, x := range got {
			if x != want[i] {
				t.Fatalf("%s: element %d is %v, want %v", what, i, x, want[i])
			}
		}
	}
	want := run(1, v, w)
	for _, cores := range []int{2, 5} {
		got := run(cores, v, w)
		for c := range v {
			equal("MᵀV", got.vt[c], want.vt[c])
			equal("MW", got.y[c], want.y[c])
		}
		equal("MᵀM", got.gram.RawSymmetric().Data, want.gram.RawSymmetric().Data)
	}
	for c := range v {
		got := run(2, v[c:c+1], w[c:c+1])
		equal("MᵀV", got.vt[0], want.vt[c])
		equal("MW", got.y[0], want.y[c])
	}
}

// What chunks make adds up to the products of the whole, to the last bit: from its own elements, and
// from a copy of them.
func TestChunksAddUp(t *testing.T) { eachISA(t, testChunksAddUp) }

func testChunksAddUp(t *testing.T, isa tile.ISA) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for _, sh := range shapes {
		whole, _ := random(rnd, sh.rows, sh.cols+9, isa)
		m := whole.First(sh.cols)
		v, w := columns(rnd, sh.rows, sh.s), columns(rnd, sh.cols, sh.s)
		wantT, wantY := columns(rnd, sh.cols, sh.s), columns(rnd, sh.rows, sh.s)
		gotT, gotY := make([][]float64, sh.s), make([][]float64, sh.s)
		for c := range gotT {
			gotT[c], gotY[c] = make([]float64, sh.cols), slices.Clone(wantY[c])
		}
		b := parallel.NewBudget(2)
		m.MulTrans(ctx, wantT, v, b)
		m.MulAdd(ctx, wantY, w, b)
		wantG, gotG := gram(t, m, b), mat.NewSymDense(sh.cols, nil)
		sums := make([][]float64, GramBlocks(sh.cols))
		for p := range sums {
			sums[p] = make([]float64, GramSize(sh.cols, p))
		}
		next := 0
		for i := range Chunks(sh.rows) {
			lo, hi := ChunkRows(sh.rows, i)
			if lo != next || hi <= lo {
				t.Fatalf("%v: chunk %d is [%d,%d) after %d", sh, i, lo, hi, next)
			}
			next = hi
			chunk := m.Chunk(i)
			if i%2 == 1 {
				from := chunk.Stored()
				chunk = newMatrix(hi-lo, sh.cols, isa)
				for t, x := range chunk.Stored() {
					copy(x, from[t])
				}
			}
			rows := make([][]float64, sh.s)
			for c := range v {
				rows[c] = v[c][lo:hi]
			}
			for p := range sums {
				if err := chunk.AddGram(ctx, sums[p], p, b); err != nil {
					t.Fatal(err)
				}
			}
			sums, y := make([]float64, sh.s*sh.cols), make([]float64, sh.s*(hi-lo))
			chunk.SumTrans(ctx, sums, rows, b)
			chunk.Mul(ctx, y, w, b)
			for c := range v {
				floats.Add(gotT[c], sums[c*sh.cols:][:sh.cols])
				floats.Add(gotY[c][lo:hi], y[c*(hi-lo):][:hi-lo])
			}
		}
		for p := range sums {
			SetGram(gotG, p, sums[p])
		}
		for i := range sh.cols {
			for j := i; j < sh.cols; j++ {
				if gotG.At(i, j) != wantG.At(i, j) {
					t.Fatalf("%v: (%d,%d) of MᵀM is %v, want %v", sh, i, j, gotG.At(i, j), wantG.At(i, j))
				}
			}
		}
		if next != sh.rows {
			t.Fatalf("%v: chunks end at row %d", sh, next)
		}
		for c := range v {
			if !slices.Equal(gotT[c], wantT[c]) || !slices.Equal(gotY[c], wantY[c]) {
				t.Errorf("%v: column %d has other bits", sh, c)
			}
		}
	}
}

// A context that is done ends every product.
func TestProductsStopWithTheirContext(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	b := parallel.NewBudget(2)
	m, _ := random(rnd, 600, 20, tile.Portable)
	v, w := columns(rnd, 600, 2), columns(rnd, 20, 2)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, gram := m.Gram(done, b)
	_, product := TransMul(done, m, m, b)
	for name, err := range map[string]error{"MulTrans": m.MulTrans(done, w, v, b), "MulAdd": m.MulAdd(done, v, w, b),
		"MulRight": m.MulRight(done, w, b), "SumTrans": m.SumTrans(done, make([]float64, 40), v, b), "Mul": m.Mul(done, make([]float64, 1200), w, b), "Gram": gram, "TransMul": product} {
		if err != context.Canceled {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
