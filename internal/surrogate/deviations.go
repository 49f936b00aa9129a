package surrogate

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// Deviations returns draws of the polynomial's error.
func (p *Polynomial) Deviations(points [][]float64, draws int, stream func(index int) *rand.Rand) [][]float64 {
	centre := make([]float64, p.size())
	p.features(centre, make([]float64, p.white.Dim()))
	rows := make([][]float64, len(points)) // post^{-1/2}·f(x)
	for i, x := range points {
		rows[i] = make([]float64, p.size())
		p.features(rows[i], p.white.Apply(x))
		if !p.constant {
			floats.Sub(rows[i], centre)
		}
	}
	if err := p.post.SolveRoot(context.Background(), p.budget, rows); err != nil {
		panic(err)
	}
	out := make([][]float64, draws)
	z := make([]float64, p.size())
	for s := range out {
		random.Normal(stream(s), z)
		out[s] = make([]float64, len(points))
		for i, r := range rows {
			out[s][i] = floats.Dot(r, z)
		}
	}
	return out
}

// Deviations returns draws of the process's error.
func (p *Process) Deviations(points [][]float64, draws int, stream func(index int) *rand.Rand) [][]float64 {
	cov := p.jointCov(points)
	root := positiveRoot(cov)
	out := make([][]float64, draws)
	z := mat.NewVecDense(len(points), nil)
	for s := range out {
		random.Normal(stream(s), z.RawVector().Data)
		var v mat.VecDense
		v.MulVec(root, z)
		out[s] = v.RawVector().Data
	}
	return out
}

// jointCov returns the posterior covariance of the function at points, less that at the
// centre if no value was observed.
func (p *Process) jointCov(points [][]float64) *mat.SymDense {
	n := len(points)
	z := make([][]float64, n)
	rows, means := make([][]float64, n), make([][]float64, n)
	for i, x := range points {
		z[i] = p.white.Apply(x)
		rows[i], means[i] = make([]float64, len(p.rows)), make([]float64, p.size())
		p.crossValue(z[i], func(r int, cov float64) { rows[i][r] = cov })
		p.features(means[i], z[i])
	}
	prior := func(a, b []float64) float64 {
		g, _, _ := p.shape.derivatives(squared(a, b), p.length)
		return p.scale * p.scale * g
	}
	centre := make([]float64, p.white.Dim())
	if !p.constant {
		cross, f := make([]float64, len(p.rows)), make([]float64, p.size())
		p.crossValue(centre, func(r int, cov float64) { cross[r] = cov })
		p.features(f, centre)
		for i := range rows {
			floats.Sub(rows[i], cross)
			floats.Sub(means[i], f)
		}
	}
	cov := p.posterior(rows, means)
	out := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			k := prior(z[i], z[j])
			if !p.constant {
				k += prior(centre, centre) - prior(z[i], centre) - prior(centre, z[j])
			}
			out.SetSym(i, j, k+cov.At(i, j))
		}
	}
	return out
}

// positiveRoot returns a root of a covariance that rounding may have left slightly
// indefinite.
func positiveRoot(cov *mat.SymDense) *mat.Dense {
	var eig mat.EigenSym
	if !eig.Factorize(cov, true) {
		panic("surrogate: a covariance that is not finite")
	}
	var q mat.Dense
	eig.VectorsTo(&q)
	for j, v := range eig.Values(nil) {
		s := 0.0
		if v > 0 {
			s = math.Sqrt(v)
		}
		for i := range cov.SymmetricDim() {
			q.Set(i, j, q.At(i, j)*s)
		}
	}
	return &q
}
