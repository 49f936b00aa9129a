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
	n := op.Len()
	q := columns(n, min(n, rank+oversample))
	for c := range q {
		random.Normal(key.Stream(random.Pivot, c), q[c])
	}
	y, err := latent(op, q)
	if err != nil {
		return parts{}, err
	}
	if q, err = orthonormal(op, y); err != nil {
		return parts{}, err
	}
	if y, err = latent(op, q); err != nil {
		return parts{}, err
	}
	ym := toMatrix(y, op.Budget())
	qy := dense.TransMul(toMatrix(q, op.Budget()), ym, op.Budget())
	core := mat.NewSymDense(len(q), nil)
	for i := range len(q) {
		for j := i; j < len(q); j++ {
			core.SetSym(i, j, (qy.At(i, j)+qy.At(j, i))/2)
		}
	}
	root, _, err := whitener(core)
	if err != nil {
		return parts{}, err
	}
	l := times(op, ym, root) // K_f ≈ LLᵀ
	lm := toMatrix(l, op.Budget())
	_, vectors, _, err := inverseRoot(lm.Gram(op.Budget()), rank)
	if err != nil {
		return parts{}, err
	}
	return parts{newDiagonal(op.Noise(), op.Budget()), times(op, lm, vectors)}, nil
}

// latent returns K_f·v, a few columns at a time.
func latent(op *cmvp.Operator, v [][]float64) ([][]float64, error) {
	out := columns(op.Len(), len(v))
	for lo := 0; lo < len(v); lo += sketchCols {
		hi := min(lo+sketchCols, len(v))
		if err := op.Mul(context.Background(), out[lo:hi], v[lo:hi]); err != nil {
			return nil, err
		}
	}
	for c, x := range out {
		for i, d := range op.Noise() {
			x[i] -= d * v[c][i]
		}
	}
	return out, nil
}

// orthonormal returns a basis of the span of y, as far as it is not rounding.
// YᵀY holds the squares of Y's singular values, so that half of the digits are
// lost in it: what it cannot tell is projected and looked at again.
func orthonormal(op *cmvp.Operator, y [][]float64) ([][]float64, error) {
	var q [][]float64
	for range 2 {
		m := toMatrix(y, op.Budget())
		root, rest, err := whitener(m.Gram(op.Budget()))
		if err != nil {
			return nil, err
		}
		q = append(q, times(op, m, root)...)
		if len(rest) == 0 {
			break
		}
		y = times(op, m, rest)
		qm, w := toMatrix(q, op.Budget()), columns(len(q), len(y))
		qm.MulTrans(w, y, op.Budget())
		for _, c := range w {
			floats.Scale(-1, c)
		}
		qm.MulAdd(y, w, op.Budget())
	}
	return q, nil
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
