package main

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// maxDense is the number of rows up to which dense predictions are computed.
const maxDense = 5000

// against returns the largest differences, over rows and the first draws, from
// predictions by a Cholesky factor of the stored K: of means in units of the sd,
// and of sds relative to them.
func against(p *posterior.Problem, draws [][]float64, m *predict.Moments, points *kernel.Inputs) (mean, sd float64) {
	n, q := len(p.Y), points.Len()
	for t, psi := range draws {
		f := p.Function(psi)
		_, noise := p.At(psi)
		k := mat.NewSymDense(n, nil)
		for i := range n {
			for j := i; j < n; j++ {
				k.SetSym(i, j, f.Value(p.Inputs.Row(i), p.Inputs.Row(j)))
			}
			k.SetSym(i, i, k.At(i, i)+noise[0])
		}
		var chol mat.Cholesky
		if !chol.Factorize(k) {
			panic("K is singular")
		}
		b := mat.NewDense(n, q, nil)
		for i := range n {
			for c := range q {
				b.Set(i, c, f.Value(p.Inputs.Row(i), points.Row(c)))
			}
		}
		var x mat.Dense
		_ = chol.SolveTo(&x, b) // only warns of ill-conditioning
		y := mat.NewVecDense(n, p.Y)
		for c := range q {
			v := f.Variance(points.Row(c)) + noise[0] - mat.Dot(x.ColView(c), b.ColView(c))
			mean = max(mean, math.Abs(m.Mean[t][c]-mat.Dot(x.ColView(c), y))/math.Sqrt(v))
			sd = max(sd, math.Abs(math.Sqrt((m.Var[t][c]+noise[0])/v)-1))
		}
	}
	return mean, sd
}
