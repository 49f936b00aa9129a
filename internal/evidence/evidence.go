// Package evidence computes what the log density of Gaussian data y ~ N(0,K) consists
// of, log|K| and yᵀK⁻¹y, and their gradients, exactly, from a stored Cholesky factor:
// n²/2 numbers of memory, n³/6 multiply-adds for the values and three times as many
// with gradients.
//
// With a = K⁻¹y,
//
//	∂_i log|K|   = tr(K⁻¹∂_iK) = Σ_jk (K⁻¹)_jk (∂_iK)_jk
//	∂_i yᵀK⁻¹y   = −aᵀ(∂_iK)a
package evidence

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Covariance is K at some parameters, strip by strip. Its methods are called from
// several goroutines at once, which strips tell apart by their Worker.
type Covariance interface {
	Len() int       // n
	NumParams() int // p
	// Fill sets k to the elements of a strip, as cholesky.Matrix.Fill wants them.
	Fill(s cholesky.Strip, k []float64)
	// Forms adds Σ w_jk (∂_iK)_jk over a strip to sum[i], for every parameter i. w is
	// laid out as k, and zero beyond the strip.
	Forms(s cholesky.Strip, sum [][]float64, w [][]float64)
}

// Evidence evaluates the density of the data at the parameters that its covariance is
// set to. It is not safe for concurrent use.
type Evidence struct {
	cov    Covariance
	y      []float64
	budget *parallel.Budget
	matrix *cholesky.Matrix
}

// New returns the evidence of y under a covariance. It panics if the sizes disagree.
func New(cov Covariance, y []float64, b *parallel.Budget) *Evidence {
	if cov.Len() != len(y) {
		panic(fmt.Sprintf("evidence: a covariance of %d rows for %d targets", cov.Len(), len(y)))
	}
	return &Evidence{cov: cov, y: y, budget: b, matrix: cholesky.New(len(y))}
}

// Bytes returns the memory that n rows take.
func Bytes(n int, gradient bool) int64 {
	bytes := cholesky.Bytes(n) + 16*int64(n)
	if gradient {
		bytes += cholesky.InvertBytes(n)
	}
	return bytes
}

// Value is log|K| and yᵀK⁻¹y with their gradients, nil if they were not asked for.
type Value struct {
	LogDet, Quad         float64
	LogDetGrad, QuadGrad []float64
	Solution             []float64 // K⁻¹y, with the gradients
}

// At evaluates at the covariance's parameters. The error is *cholesky.NotPositive where
// K is numerically singular, or that of ctx.
func (e *Evidence) At(ctx context.Context, gradients bool) (*Value, error) {
	m, b := e.matrix, e.budget
	if err := m.Fill(ctx, b, e.cov.Fill); err != nil {
		return nil, err
	}
	if err := m.Factor(ctx, b); err != nil {
		return nil, err
	}
	a := append([]float64(nil), e.y...)
	if err := m.SolveRoot(ctx, b, [][]float64{a}); err != nil {
		return nil, err
	}
	v := &Value{LogDet: m.LogDet(), Quad: floats.Dot(a, a)}
	if !gradients {
		return v, nil
	}
	if err := m.SolveRootTrans(ctx, b, [][]float64{a}); err != nil {
		return nil, err
	}
	if err := m.Invert(ctx, b); err != nil {
		return nil, err
	}
	v.Solution = a
	return v, e.gradients(ctx, v)
}

// gradients fills the gradients from K⁻¹, which the matrix holds.
func (e *Evidence) gradients(ctx context.Context, v *Value) error {
	p, blocks := e.cov.NumParams(), e.matrix.Blocks()
	sums := make([]float64, blocks*2*p) // by block, so that their order does not depend on workers
	spaces := make([][]float64, e.budget.MaxWorkers())
	err := e.matrix.Each(ctx, e.budget, func(s cholesky.Strip, k []float64) {
		if spaces[s.Worker] == nil {
			spaces[s.Worker] = make([]float64, 2*tile.Strip*tile.Size)
		}
		w := spaces[s.Worker]
		inv, outer := w[:tile.Strip*tile.Size], w[tile.Strip*tile.Size:]
		weights(s, inv, outer, k, v.Solution)
		at := sums[s.Block*2*p:][:2*p]
		e.cov.Forms(s, [][]float64{at[:p], at[p:]}, [][]float64{inv, outer})
	})
	v.LogDetGrad, v.QuadGrad = make([]float64, p), make([]float64, p)
	for t := range blocks {
		floats.Add(v.LogDetGrad, sums[t*2*p:][:p])
		floats.Sub(v.QuadGrad, sums[t*2*p+p:][:p])
	}
	return err
}

// weights sets inv and outer to the elements of K⁻¹ and a·aᵀ in a strip, those below
// the diagonal block twice, since they stand for those above too.
func weights(s cholesky.Strip, inv, outer, k, a []float64) {
	f := 2.0
	if s.Diagonal() {
		f = 1
	}
	rows := s.IHi - s.ILo
	for c := range tile.Strip {
		col := inv[c*tile.Size:][:tile.Size]
		out := outer[c*tile.Size:][:tile.Size]
		if s.JLo+c >= s.JHi {
			clear(col)
			clear(out)
			continue
		}
		aj := f * a[s.JLo+c]
		for i, x := range k[c*tile.Size:][:rows] {
			col[i] = f * x
			out[i] = aj * a[s.ILo+i]
		}
		clear(col[rows:])
		clear(out[rows:])
	}
}
