package precond

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// What is factorised and inverted in its own place, and packed, is to the last bit what gonum's Cholesky and Trsv make of squares; and
// so is the leading block.
func TestFactorsInPlace(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, m := range []int{1, 2, 7, 64, 65, 130, 201} {
		x := mat.NewDense(m+3, m, nil)
		x.Apply(func(int, int, float64) float64 { return rnd.NormFloat64() }, x)
		stride := m + 5 // as of a Gram matrix, whose rows are padded
		raw := blas64.Symmetric{Uplo: blas.Upper, N: m, Stride: stride, Data: make([]float64, m*stride)}
		var gram mat.SymDense
		gram.SetRawSymmetric(raw)
		gram.SymOuterK(1, x.T())
		for i := range m {
			gram.SetSym(i, i, 1+gram.At(i, i))
		}
		var chol mat.Cholesky
		if !chol.Factorize(&gram) {
			t.Fatal("singular")
		}
		var l mat.TriDense
		chol.LTo(&l)
		u, ok := lapack64.Potrf(gram.RawSymmetric())
		if !ok {
			t.Fatal("singular in place")
		}
		p := &LowRank{}
		p.setFactor(lowerOf(u), u)
		checkFactor(t, p, &chol, &l)
		if m > 2 {
			c, first := p.c.first(m-2), l.SliceTri(0, m-2).(*mat.TriDense)
			q := &LowRank{}
			q.setFactor(c, c.trans())
			var leading mat.Cholesky
			leading.SetFromU(first.TTri())
			checkFactor(t, q, &leading, first)
		}
	}
}

func checkFactor(t *testing.T, p *LowRank, chol *mat.Cholesky, l *mat.TriDense) {
	t.Helper()
	var inverse mat.SymDense
	if err := chol.InverseTo(&inverse); err != nil {
		t.Fatal(err)
	}
	m, _ := l.Dims()
	col, v := make([]float64, m), make([]float64, m)
	for j := range m {
		v[j] = float64(j%7) - 2.5
		p.inv.Col(col, j)
		for i := range m {
			if col[i] != inverse.At(i, j) || i >= j && p.c.row(i)[j] != l.At(i, j) {
				t.Fatalf("order %d: (%d,%d) is %v and %v, want %v and %v", m, i, j, col[i], p.c.row(max(i, j))[min(i, j)], inverse.At(i, j), l.At(i, j))
			}
		}
	}
	for _, delta := range []float64{0, 1} {
		shifted := mat.NewTriDense(m, mat.Lower, nil)
		shifted.Copy(l)
		for i := range m {
			shifted.SetTri(i, i, delta+l.At(i, i))
		}
		for _, trans := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			got, want := slices.Clone(v), slices.Clone(v)
			blas64.Trsv(trans, shifted.RawTriangular(), blas64.Vector{N: m, Data: want, Inc: 1})
			if trans == blas.Trans {
				p.c.solveTrans(got, delta)
			} else {
				p.c.solve(got, delta)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("order %d, %v·I + C, %c: %v, want %v", m, delta, trans, got, want)
			}
		}
	}
}
