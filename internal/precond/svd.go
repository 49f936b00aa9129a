package precond

import (
	"context"
	"errors"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/random"
)

const (
	oversample = 10    // columns of the sketch beyond the rank
	sketchCols = 32    // columns of a product
	sketchEps  = 1e-13 // eigenvalues below it, relative to the largest, are rounding
	sketchCond = 1e-11 // 1 / the largest condition number of what a Cholesky factor whitens
)

// truncatedSVD is P = D + AΛAᵀ with the leading eigenpairs of K_f from a random
// sketch: Q spans K_f·Ω, and K_f ≈ Y(QᵀY)⁻¹Yᵀ with Y = K_f·Q (Halko, Martinsson
// and Tropp 2011, algorithm 5.5; Cutajar et al. 2016, section 3.2). It costs two
// products with K of rank + 10 columns.
func truncatedSVD(op *cmvp.Operator, rank int, key random.Key) (parts, error) {
	size := min(op.Len(), rank+oversample)
	y, err := latent(op, size, func(c int, v []float64) { random.Normal(key.Stream(random.Pivot, c), v) })
	if err != nil {
		return parts{}, err
	}
	q, err := orthonormal(op, y)
	if err != nil {
		return parts{}, err
	}
	_, size = q.Dims()
	if y, err = latent(op, size, func(c int, v []float64) { q.Col(v, c) }); err != nil {
		return parts{}, err
	}
	qy := dense.TransMul(q, y, op.Budget())
	q = nil // as large as L: its memory is wanted
	core := mat.NewSymDense(size, nil)
	for i := range size {
		for j := i; j < size; j++ {
			core.SetSym(i, j, (qy.At(i, j)+qy.At(j, i))/2)
		}
	}
	root, _, err := whitener(core)
	if err != nil {
		return parts{}, err
	}
	y.MulRight(root, op.Budget()) // K_f ≈ YYᵀ
	_, vectors, _, err := inverseRoot(y.Gram(op.Budget()), rank)
	if err != nil {
		return parts{}, err
	}
	return parts{newDiagonal(op.Noise(), op.Budget()), times(op, y, vectors)}, nil
}

// latent returns K_f·V, a few of V's columns at a time.
func latent(op *cmvp.Operator, cols int, v func(c int, dst []float64)) (*dense.Matrix, error) {
	out := dense.New(op.Len(), cols)
	in, product := columns(op.Len(), min(cols, sketchCols)), columns(op.Len(), min(cols, sketchCols))
	for lo := 0; lo < cols; lo += sketchCols {
		k := min(sketchCols, cols-lo)
		for c := range k {
			v(lo+c, in[c])
		}
		if err := op.Mul(context.Background(), product[:k], in[:k]); err != nil {
			return nil, err
		}
		for c, x := range product[:k] {
			for i, d := range op.Noise() {
				x[i] -= d * in[c][i]
			}
			out.SetCol(lo+c, x)
		}
	}
	return out, nil
}

// orthonormal returns a basis of the span of y, as far as it is not rounding,
// and overwrites y. YᵀY holds the squares of Y's singular values, so that half
// of the digits are lost in it: what it cannot tell is projected and looked at
// again.
func orthonormal(op *cmvp.Operator, y *dense.Matrix) (*dense.Matrix, error) {
	w, rest, err := whitener(y.Gram(op.Budget()))
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		y.MulRight(w, op.Budget())
		return y, nil
	}
	q, left := times(op, y, w), times(op, y, rest)
	qm, coef := toMatrix(q, op.Budget()), columns(len(q), len(left))
	qm.MulTrans(coef, left, op.Budget())
	for _, c := range coef {
		floats.Scale(-1, c)
	}
	qm.MulAdd(left, coef, op.Budget())
	m := toMatrix(left, op.Budget())
	if w, _, err = whitener(m.Gram(op.Budget())); err != nil {
		return nil, err
	}
	return toMatrix(append(q, times(op, m, w)...), op.Budget()), nil
}

// whitener returns the columns of W with WᵀaW = I: the inverse of a's Cholesky
// factor, which costs a tenth of eigenpairs, or if rounding would tell in it the
// scaled eigenvectors, and those that are only rounding as the rest.
func whitener(a *mat.SymDense) (w, rest [][]float64, err error) {
	var chol mat.Cholesky
	if chol.Factorize(a) && chol.Cond()*sketchCond < 1 {
		var u, inverse mat.TriDense
		chol.UTo(&u)
		if err := inverse.InverseTri(&u); err == nil {
			for i := range a.SymmetricDim() {
				w = append(w, mat.Col(nil, i, &inverse))
			}
			return w, nil, nil
		}
	}
	w, _, rest, err = inverseRoot(a, a.SymmetricDim())
	return w, rest, err
}

// inverseRoot returns the columns of V·S^{-1/2} and of V for the largest most
// eigenpairs of a = VSVᵀ that are not rounding, and the rest of V.
func inverseRoot(a *mat.SymDense, most int) (root, vectors, rest [][]float64, err error) {
	var eig mat.EigenSym
	if !eig.Factorize(a, true) {
		return nil, nil, nil, errors.New("the eigenvalues of the sketch did not converge")
	}
	s := eig.Values(nil)
	var v mat.Dense
	eig.VectorsTo(&v)
	for i := len(s) - 1; i >= 0; i-- {
		col := mat.Col(nil, i, &v)
		if len(root) == most || !(s[i] > sketchEps*s[len(s)-1]) {
			rest = append(rest, col)
			continue
		}
		scaled := make([]float64, len(col))
		floats.ScaleTo(scaled, 1/math.Sqrt(s[i]), col)
		root, vectors = append(root, scaled), append(vectors, col)
	}
	return root, vectors, rest, nil
}

// times returns the columns of M·w.
func times(op *cmvp.Operator, m *dense.Matrix, w [][]float64) [][]float64 {
	out := columns(op.Len(), len(w))
	m.MulAdd(out, w, op.Budget())
	return out
}
