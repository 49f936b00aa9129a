package fit

import (
	"context"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/optimize"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Sparse fits a sparse approximation of a problem. If its likelihood is Gaussian all starts are tried with the exact
// process on a random subset, where there are more rows than it has; from its distinct maxima the search goes on with the
// approximation. If move is set, the inducing inputs are moved together with ψ then (L-BFGS), and ψ is searched once more
// where they have come to: Extra of the result is these, point by point.
func Sparse(ctx context.Context, p *posterior.Problem, a *posterior.Sparse, move bool, b *parallel.Budget, seed uint64, starts [][]float64, o Options) (*Result, error) {
	o = o.filled()
	if n := len(p.Y); n > subsetRows && p.Likelihood.Augmentation().Width() == 0 {
		sub := p.Subset(mode.Subset(n, subsetRows, random.Key{Seed: seed}))
		r, err := Search(ctx, p.Params, NewStored(sub, b), starts, o)
		if err != nil {
			return nil, err
		}
		starts = distinct(r)
	}
	r, err := Search(ctx, p.Params, a, starts, o)
	if err != nil || !move {
		return r, err
	}
	m := &moving{ctx: ctx, p: p, a: a, opt: o}
	psi, err := m.climb(r.Psi)
	if err != nil {
		return nil, err
	}
	last, err := Search(ctx, p.Params, a, [][]float64{psi}, o)
	if err != nil {
		return nil, err
	}
	last.Searches = append(last.Searches, r.Searches...)
	last.Extra = points(a.Inducing())
	return last, nil
}

// points returns the elements of inputs, point by point.
func points(in *kernel.Inputs) []float64 {
	var x []float64
	for j := range in.Len() {
		x = append(x, in.Row(j)...)
	}
	return x
}

// moving is a climb in ψ and the inducing inputs together.
type moving struct {
	ctx   context.Context
	p     *posterior.Problem
	a     *posterior.Sparse
	opt   Options
	count int

	x     []float64 // where the following are known
	value float64
	grad  []float64
	err   error
}

// at evaluates minus the log density and its gradient at x = (ψ, Z), unless that is known.
func (m *moving) at(x []float64) {
	if m.x != nil && slices.Equal(m.x, x) || m.err != nil {
		return
	}
	m.x, m.value, m.grad = slices.Clone(x), math.Inf(1), slices.Repeat([]float64{math.NaN()}, len(x))
	psi := x[:len(m.p.Params)]
	m.count++
	if !m.p.Params.Usable(psi) {
		return
	}
	d := m.p.Inputs.Dim()
	z := x[len(psi):]
	m.a.SetInducing(kernel.NewInputs(len(z)/d, d, slices.Clone(z)))
	value, grad, byZ, err := m.a.WithInducing(m.ctx, psi)
	if m.err = err; err != nil || grad == nil {
		return
	}
	prior, slope := m.p.LogPrior(psi)
	floats.Add(grad, slope)
	m.value, m.grad = -value-prior, slices.Concat(grad, byZ)
	floats.Scale(-1, m.grad)
	m.opt.Tell(Step{Search: 1, Evaluation: m.count, Psi: slices.Clone(psi), Value: Number(-m.value), Slope: Number(floats.Norm(m.grad, math.Inf(1))), Seconds: time.Since(m.opt.Began).Seconds()})
}

// climb goes from ψ and the inducing inputs of the approximation, which it leaves where it ends, and returns ψ there.
func (m *moving) climb(psi []float64) ([]float64, error) {
	start := slices.Concat(psi, points(m.a.Inducing()))
	problem := optimize.Problem{
		Func: func(x []float64) float64 { m.at(x); return m.value },
		Grad: func(grad, x []float64) { m.at(x); copy(grad, m.grad) },
		Status: func() (optimize.Status, error) {
			if m.err != nil {
				return optimize.Failure, m.err
			}
			return optimize.NotTerminated, nil
		},
	}
	r, err := optimize.Minimize(problem, start, &optimize.Settings{GradientThreshold: movedEnough * math.Sqrt(float64(len(m.p.Y))), FuncEvaluations: m.opt.Evaluations}, &optimize.LBFGS{})
	if m.err != nil {
		return nil, m.err
	}
	x := start
	if err == nil || r != nil { // a line search that finds no way up has still found its best point
		x = r.X
	}
	d := m.p.Inputs.Dim()
	z := slices.Clone(x[len(psi):])
	m.a.SetInducing(kernel.NewInputs(len(z)/d, d, z))
	return x[:len(psi)], nil
}

// movedEnough is the largest slope, over √n, at which inducing inputs move no further.
const movedEnough = 1e-3
