package precond

import (
	"context"
	"errors"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
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
func truncatedSVD(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error) {
	size := min(k.Len(), rank+oversample)
	y, err := latent(ctx, k, size, func(c int, v []float64) { random.Normal(key.Stream(random.Pivot, c), v) })
	if err != nil {
		return parts{}, err
	}
	q, err := orthonormal(ctx, k, y)
	if err != nil {
		return parts{}, err
	}
	_, size = q.Dims()
	if y, err = latent(ctx, k, size, func(c int, v []float64) { q.Col(v, c) }); err != nil {
		return parts{}, err
	}
	qy, err := dense.TransMul(ctx, q, y, k.Budget())
	if err != nil {
		return parts{}, err
	}
	q = nil // as large as L: its memory is wanted
	core := mat.NewSymDense(size, nil)
	for i := range size {
		for j := i; j < size; j++ {
			core.SetSym(i, j, (qy.At(i, j)+qy.At(j, i))/2)
		}
	}
	root, _, err := whitener(ctx, core)
	if err != nil {
		return parts{}, err
	}
	if err = y.MulRight(ctx, root, k.Budget()); err != nil { // K_f ≈ YYᵀ
		return parts{}, err
	}
	gram, err := y.Gram(ctx, k.Budget())
	if err != nil {
		return parts{}, err
	}
	leading, err := within(ctx, func() (eigenpairs, error) { return inverseRoot(gram, rank) })
	if err != nil {
		return parts{}, err
	}
	cols, err := times(ctx, k, y, leading.vectors)
	return parts{base: newDiagonal(k.Noise(), k.Budget()), cols: cols}, err
}

// latent returns K_f·V, a few of V's columns at a time.
func latent(ctx context.Context, k Covariance, cols int, v func(c int, dst []float64)) (*dense.Matrix, error) {
	out := dense.New(k.Len(), cols)
	in, product := solve.Columns(k.Len(), min(cols, sketchCols)), solve.Columns(k.Len(), min(cols, sketchCols))
	for lo := 0; lo < cols; lo += sketchCols {
		some := min(sketchCols, cols-lo)
		for c := range some {
			v(lo+c, in[c])
		}
		if err := k.Mul(ctx, product[:some], in[:some]); err != nil {
			return nil, err
		}
		for c, x := range product[:some] {
			for i, d := range k.Noise() {
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
func orthonormal(ctx context.Context, k Covariance, y *dense.Matrix) (*dense.Matrix, error) {
	gram, err := y.Gram(ctx, k.Budget())
	if err != nil {
		return nil, err
	}
	w, rest, err := whitener(ctx, gram)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return y, y.MulRight(ctx, w, k.Budget())
	}
	q, err := times(ctx, k, y, w)
	if err != nil {
		return nil, err
	}
	left, err := times(ctx, k, y, rest)
	if err != nil {
		return nil, err
	}
	more, err := remainder(ctx, k, q, left)
	if err != nil {
		return nil, err
	}
	return toMatrix(append(q, more...), k.Budget()), nil
}

// remainder returns a basis of what is left of some columns beside the span of q,
// as far as it is not rounding. It overwrites them.
func remainder(ctx context.Context, k Covariance, q, left [][]float64) ([][]float64, error) {
	qm, coef := toMatrix(q, k.Budget()), solve.Columns(len(q), len(left))
	if err := qm.MulTrans(ctx, coef, left, k.Budget()); err != nil {
		return nil, err
	}
	for _, c := range coef {
		floats.Scale(-1, c)
	}
	if err := qm.MulAdd(ctx, left, coef, k.Budget()); err != nil {
		return nil, err
	}
	m := toMatrix(left, k.Budget())
	gram, err := m.Gram(ctx, k.Budget())
	if err != nil {
		return nil, err
	}
	w, _, err := whitener(ctx, gram)
	if err != nil {
		return nil, err
	}
	return times(ctx, k, m, w)
}

// whitener returns the columns of W with WᵀaW = I: the inverse of a's Cholesky
// factor, which costs a tenth of eigenpairs, or if rounding would tell in it the
// scaled eigenvectors, and those that are only rounding as the rest.
func whitener(ctx context.Context, a *mat.SymDense) (w, rest [][]float64, err error) {
	e, err := within(ctx, func() (eigenpairs, error) {
		if w := inverseFactor(a); w != nil {
			return eigenpairs{root: w}, nil
		}
		return inverseRoot(a, a.SymmetricDim())
	})
	return e.root, e.rest, err
}

// inverseFactor returns the columns of the inverse of a's Cholesky factor U, nil if
// rounding would tell in it.
func inverseFactor(a *mat.SymDense) (w [][]float64) {
	var chol mat.Cholesky
	if !chol.Factorize(a) || !(chol.Cond()*sketchCond < 1) {
		return nil
	}
	var u, inverse mat.TriDense
	chol.UTo(&u)
	if inverse.InverseTri(&u) != nil {
		return nil
	}
	for i := range a.SymmetricDim() {
		w = append(w, mat.Col(nil, i, &inverse))
	}
	return w
}

// eigenpairs are the largest of a matrix VSVᵀ: the columns of V·S^{-1/2} and of V,
// and the rest of V.
type eigenpairs struct{ root, vectors, rest [][]float64 }

// inverseRoot returns eigenpairs, most at most, of those that are not rounding.
func inverseRoot(a *mat.SymDense, most int) (eigenpairs, error) {
	var eig mat.EigenSym
	if !eig.Factorize(a, true) {
		return eigenpairs{}, errors.New("the eigenvalues of the sketch did not converge")
	}
	s := eig.Values(nil)
	var v mat.Dense
	eig.VectorsTo(&v)
	var e eigenpairs
	for i := len(s) - 1; i >= 0; i-- {
		col := mat.Col(nil, i, &v)
		if len(e.root) == most || !(s[i] > sketchEps*s[len(s)-1]) {
			e.rest = append(e.rest, col)
			continue
		}
		scaled := make([]float64, len(col))
		floats.ScaleTo(scaled, 1/math.Sqrt(s[i]), col)
		e.root, e.vectors = append(e.root, scaled), append(e.vectors, col)
	}
	return e, nil
}

// times returns the columns of M·w.
func times(ctx context.Context, k Covariance, m *dense.Matrix, w [][]float64) ([][]float64, error) {
	out := solve.Columns(k.Len(), len(w))
	return out, m.MulAdd(ctx, out, w, k.Budget())
}
