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

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Evidence evaluates the density of the data at the parameters that its covariance is
// set to. It is not safe for concurrent use.
type Evidence struct {
	cov    *cmvp.Elements
	y      []float64
	budget *parallel.Budget
	matrix *cholesky.Matrix
}

// New returns the evidence of y under a covariance. It panics if the sizes disagree.
func New(cov *cmvp.Elements, y []float64, b *parallel.Budget) *Evidence {
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

// fill sets k to the elements of a strip, which are stored as columns of the lower
// triangle.
func (e *Evidence) fill(s cholesky.Strip, k []float64) {
	e.cov.Fill(s.Worker, k, s.JLo, s.ILo, s.IHi-s.ILo)
	if s.Diagonal() {
		for j := s.JLo; j < s.JHi; j++ {
			k[(j-s.JLo)*tile.Size+j-s.ILo] += e.cov.Noise(j)
		}
	}
}

// Value is log|K| and yᵀK⁻¹y, and, if they were asked for, their derivatives with
// respect to the covariance's parameters and to the noise variance of each row.
type Value struct {
	LogDet, Quad           float64
	LogDetGrad, QuadGrad   []float64
	LogDetNoise, QuadNoise []float64 // of n rows: (K⁻¹)_ii and −a_i²
	Solution               []float64 // a = K⁻¹y
}

// At evaluates at the covariance's parameters. The error is *cholesky.NotPositive where
// K is numerically singular, or that of ctx.
func (e *Evidence) At(ctx context.Context, gradients bool) (*Value, error) {
	v, err := e.factor(ctx)
	if err != nil {
		return nil, err
	}
	if !gradients {
		v.Solution = nil
		return v, nil
	}
	if err := e.invert(ctx, v); err != nil {
		return nil, err
	}
	return v, e.gradients(ctx, v)
}

// Inverse returns a = K⁻¹y and the diagonal of K⁻¹; the errors are those of At.
func (e *Evidence) Inverse(ctx context.Context) (a, diagonal []float64, err error) {
	v, err := e.factor(ctx)
	if err == nil {
		err = e.invert(ctx, v)
	}
	if err != nil {
		return nil, nil, err
	}
	diagonal = make([]float64, len(e.y))
	err = e.matrix.Each(ctx, e.budget, func(s cholesky.Strip, k []float64) {
		for j := s.JLo; s.Diagonal() && j < s.JHi; j++ {
			diagonal[j] = k[(j-s.JLo)*tile.Size+j-s.ILo]
		}
	})
	return v.Solution, diagonal, err
}

// factor leaves the factor of K in the matrix, and returns the values with L⁻¹y.
func (e *Evidence) factor(ctx context.Context) (*Value, error) {
	m, b := e.matrix, e.budget
	if err := m.Fill(ctx, b, e.fill); err != nil {
		return nil, err
	}
	if err := m.Factor(ctx, b); err != nil {
		return nil, err
	}
	a := append([]float64(nil), e.y...)
	if err := m.SolveRoot(ctx, b, [][]float64{a}); err != nil {
		return nil, err
	}
	return &Value{LogDet: m.LogDet(), Quad: floats.Dot(a, a), Solution: a}, nil
}

// invert leaves K⁻¹ in the matrix, and makes L⁻¹y of the values K⁻¹y.
func (e *Evidence) invert(ctx context.Context, v *Value) error {
	if err := e.matrix.SolveRootTrans(ctx, e.budget, [][]float64{v.Solution}); err != nil {
		return err
	}
	return e.matrix.Invert(ctx, e.budget)
}

// gradients fills the gradients from K⁻¹, which the matrix holds.
func (e *Evidence) gradients(ctx context.Context, v *Value) error {
	per, blocks := e.cov.SumsLen(), e.matrix.Blocks()
	sums := make([]float64, blocks*2*per) // by block, so that their order does not depend on workers
	spaces := make([][]float64, e.budget.MaxWorkers())
	v.LogDetNoise, v.QuadNoise = make([]float64, len(e.y)), make([]float64, len(e.y))
	err := e.matrix.Each(ctx, e.budget, func(s cholesky.Strip, k []float64) {
		if spaces[s.Worker] == nil {
			spaces[s.Worker] = make([]float64, 2*tile.Strip*tile.Size)
		}
		w := spaces[s.Worker]
		inv, outer := w[:tile.Strip*tile.Size], w[tile.Strip*tile.Size:]
		weights(s, inv, outer, k, v.Solution)
		at := sums[s.Block*2*per:][:2*per]
		e.cov.Sums(s.Worker, [][]float64{at[:per], at[per:]}, [][]float64{inv, outer}, s.JLo, s.ILo, s.IHi-s.ILo)
		if s.Diagonal() {
			for j := s.JLo; j < s.JHi; j++ {
				at := (j-s.JLo)*tile.Size + j - s.ILo
				v.LogDetNoise[j], v.QuadNoise[j] = inv[at], -outer[at]
			}
		}
	})
	logDet, quad := make([]float64, per), make([]float64, per)
	for t := range blocks {
		floats.Add(logDet, sums[t*2*per:][:per])
		floats.Sub(quad, sums[t*2*per+per:][:per])
	}
	v.LogDetGrad, v.QuadGrad = e.cov.Reduce(logDet), e.cov.Reduce(quad)
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
