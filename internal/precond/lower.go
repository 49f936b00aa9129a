package precond

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// lower is a lower triangular matrix C, row by row: i+1 numbers of row i. It takes half the memory of a square.
type lower []float64

// lowerOf returns Uᵀ of an upper triangular U.
func lowerOf(u blas64.Triangular) lower {
	c := make(lower, u.N*(u.N+1)/2)
	for i := range u.N {
		for j, x := range u.Data[i*u.Stride+i:][:u.N-i] {
			c.row(i + j)[i] = x
		}
	}
	return c
}

func (c lower) row(i int) []float64 { return c[i*(i+1)/2:][:i+1] }

// first returns the leading block of order m, which shares the elements.
func (c lower) first(m int) lower { return c[:m*(m+1)/2] }

// order returns the number of rows.
func (c lower) order() (m int) {
	for m*(m+1)/2 < len(c) {
		m++
	}
	return m
}

// trans returns Cᵀ as a square.
func (c lower) trans() blas64.Triangular {
	m := c.order()
	u := blas64.Triangular{Uplo: blas.Upper, Diag: blas.NonUnit, N: m, Stride: m, Data: make([]float64, m*m)}
	for i := range m {
		for j, x := range c.row(i) {
			u.Data[j*m+i] = x
		}
	}
	return u
}

// solve sets x to (δ·I + C)⁻¹x. Sums are in the order of gonum's Trsv of a square.
func (c lower) solve(x []float64, delta float64) {
	for i := range x {
		var sum float64
		row := c.row(i)
		for j, v := range row[:i] {
			sum += x[j] * v
		}
		x[i] -= sum
		x[i] /= delta + row[i]
	}
}

// solveTrans sets x to (δ·I + Cᵀ)⁻¹x.
func (c lower) solveTrans(x []float64, delta float64) {
	for i := len(x) - 1; i >= 0; i-- {
		row := c.row(i)
		x[i] /= delta + row[i]
		xi := x[i]
		for j, v := range row[:i] {
			x[j] -= v * xi
		}
	}
}
