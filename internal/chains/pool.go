package chains

import (
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Pool returns the mean of the draws of all chains and their covariance shrunk
// towards a prior guess that counts as much as the given number of draws.
// Draws come as chains[c][t][i]. Chains are pooled around one common mean: at
// the end of a window all should be in the same place, and if they are not,
// the metric had better be wide.
func Pool(chains [][][]float64, guess *mat.SymDense, weight float64) (mean []float64, cov *mat.SymDense) {
	p := guess.SymmetricDim()
	var rows []float64
	for _, draws := range chains {
		for _, d := range draws {
			rows = append(rows, d...)
		}
	}
	n := len(rows) / p
	x := mat.NewDense(n, p, rows)
	mean = make([]float64, p)
	for i := range mean {
		mean[i] = stat.Mean(mat.Col(nil, i, x), nil)
	}
	var sample mat.SymDense
	stat.CovarianceMatrix(&sample, x, nil)
	cov = mat.NewSymDense(p, nil)
	w := weight / (weight + float64(n))
	for i := range p {
		for j := i; j < p; j++ {
			cov.SetSym(i, j, w*guess.At(i, j)+(1-w)*sample.At(i, j))
		}
	}
	return mean, cov
}

// Symmetric returns a p×p matrix from its elements, nil from none.
func Symmetric(x []float64) *mat.SymDense {
	if len(x) == 0 {
		return nil
	}
	p := 1
	for p*p < len(x) {
		p++
	}
	return mat.NewSymDense(p, slices.Clone(x))
}

// Flat returns the elements of a symmetric matrix, all p×p of them.
func Flat(a *mat.SymDense) []float64 {
	p := a.SymmetricDim()
	x := make([]float64, 0, p*p)
	for i := range p {
		for j := range p {
			x = append(x, a.At(i, j))
		}
	}
	return x
}
