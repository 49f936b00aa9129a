package posterior

import (
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// matrixRows is how many rows of a stored matrix are a task.
const matrixRows = 16

// Matrix sets k, n×n, to K_f at ψ: the covariance of the latent function at the rows, without noise.
func (p *Problem) Matrix(k *mat.SymDense, psi []float64, b *parallel.Budget) {
	f, n, raw := p.Function(psi), len(p.Y), k.RawSymmetric()
	b.Chunks(n, matrixRows, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			xi, row := p.Inputs.Row(i), raw.Data[i*raw.Stride:]
			for j := i; j < n; j++ {
				row[j] = f.Value(xi, p.Inputs.Row(j))
			}
		}
	})
}

// MatrixGradient returns the gradient of Σ_ij w(i,j)·(K_f)_ij in ψ, w being symmetric and held fixed. The derivatives in
// the likelihood's own parameters are 0.
func (p *Problem) MatrixGradient(psi []float64, w func(i, j int) float64, b *parallel.Budget) []float64 {
	f, n := p.Function(psi), len(p.Y)
	parts := make([][]float64, (n+matrixRows-1)/matrixRows)
	b.Chunks(n, matrixRows, func(c, lo, hi int) {
		g := make([]float64, len(psi))
		for i := lo; i < hi; i++ {
			xi := p.Inputs.Row(i)
			f.AddGradient(g, w(i, i), xi, xi)
			for j := i + 1; j < n; j++ {
				f.AddGradient(g, 2*w(i, j), xi, p.Inputs.Row(j))
			}
		}
		parts[c] = g
	})
	grad := make([]float64, len(psi))
	for _, g := range parts {
		floats.Add(grad, g)
	}
	p.Params.Chain(psi, grad)
	return grad
}
