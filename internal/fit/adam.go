package fit

import (
	"context"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Constants of Adam (Kingma and Ba 2015): the step, which goes to zero in equal parts over the iterations; the decay of the
// two moments, and the offset.
const (
	adamStep          = 0.05
	adamFirst         = 0.9
	adamSecond        = 0.999
	adamOffset        = 1e-8
	naturalLeast      = 0.1 // the share of a step of the natural gradient at the beginning, at least
	naturalMost       = 0.5 // at most, and at the first steps
	naturalFirstSteps = 2
	naturalLast       = 0.02 // what it goes to, as the steps of Adam go to zero: the noise of batches moves q the less
)

// Adam follows noisy gradients from a start, or from the state of the options. It returns x at the end and the trace. Its errors are that of ctx, and a gradient that
// is not finite.
func Adam(ctx context.Context, params param.List, noisy Noisy, start []float64, iterations int, o Options) (x []float64, trace []Step, err error) {
	s := o.state(start, noisy)
	err = follow(ctx, params, noisy, s, iterations, o, func(s *State, g []float64) {
		t, step := float64(s.Count+1), adamStep*(1-float64(s.Count)/float64(iterations))
		for i, v := range g {
			s.First[i] = adamFirst*s.First[i] + (1-adamFirst)*v
			s.Second[i] = adamSecond*s.Second[i] + (1-adamSecond)*v*v
			s.X[i] += step * s.First[i] / (1 - math.Pow(adamFirst, t)) / (math.Sqrt(s.Second[i]/(1-math.Pow(adamSecond, t))) + adamOffset)
		}
	})
	return s.X, s.Trace, err
}

// Batches estimates the gradient of SVGP's bound from some of the rows, drawn anew each iteration, and takes the distribution of the
// inducing variables a share of a step of the natural gradient farther each time (Hensman, Fusi and Lawrence 2013).
type Batches struct {
	problem *posterior.Problem
	bound   *posterior.Sparse
	rows    int
	move    bool
	seed    uint64
	steps   int
}

// NewBatches returns the gradients of an approximation, which has to be SVGP, from so many rows each, or all, for so many iterations. If move is set they are in the
// inducing inputs, too, which are the coordinates beyond ψ.
func NewBatches(p *posterior.Problem, a *posterior.Sparse, rows int, move bool, seed uint64, iterations int) *Batches {
	return &Batches{p, a, min(rows, len(p.Y)), move, seed, iterations}
}

// Extra returns the inducing inputs if they move.
func (b *Batches) Extra() []float64 {
	if !b.move {
		return nil
	}
	return points(b.bound.Inducing())
}

// Gradient is that of a Noisy. It is NaN where there is no density.
func (b *Batches) Gradient(ctx context.Context, x []float64, iter int) ([]float64, error) {
	n, p := len(b.problem.Y), len(b.problem.Params)
	// The first permutation of the stream that draws the inducing inputs is theirs; an index of its own is each iteration's.
	batch := random.Key{Seed: b.seed}.Stream(random.Inducing, 1+iter).Perm(n)[:b.rows]
	slices.Sort(batch)
	z := b.bound.Inducing()
	if b.move {
		d := z.Dim()
		z = kernel.NewInputs(z.Len(), d, slices.Clone(x[p:]))
	}
	share := max(naturalLeast, min(naturalMost, float64(b.rows)/float64(n)))
	if b.rows < n {
		share = max(naturalLast, share*(1-float64(iter)/float64(b.steps)))
	}
	if iter < naturalFirstSteps {
		share = naturalMost
	}
	grad, byZ, err := b.bound.Step(ctx, x[:p], z, batch, share, b.move)
	if err != nil {
		return nil, err
	}
	if grad == nil {
		return slices.Repeat([]float64{math.NaN()}, len(x)), nil
	}
	return slices.Concat(grad, byZ), nil
}

// State returns the distribution of the inducing variables, which each gradient moves, and SetState makes it what that has returned.
func (b *Batches) State() []float64 { return b.bound.Q() }

// SetState changes the distribution of the inducing variables.
func (b *Batches) SetState(q []float64) { b.bound.SetQ(q) }

// Stochastic fits SVGP by Adam from a start, in ψ, and if move is set in the inducing inputs, which the approximation then has, as Extra of
// the result has them. The curvature is that of the bound over all rows at the best distribution of the inducing variables.
func Stochastic(ctx context.Context, p *posterior.Problem, a *posterior.Sparse, rows int, move bool, seed uint64, start []float64, iterations int, o Options) (*Result, error) {
	x, trace, err := Adam(ctx, p.Params, NewBatches(p, a, rows, move, seed, iterations), start, iterations, o)
	if err != nil {
		return nil, err
	}
	if move {
		z := a.Inducing()
		a.SetInducing(kernel.NewInputs(z.Len(), z.Dim(), slices.Clone(x[len(p.Params):])))
	}
	r, err := Finish(ctx, p.Params, a, x[:len(p.Params)])
	if err != nil {
		return nil, err
	}
	r.Trace = trace
	if move {
		r.Extra = points(a.Inducing())
	}
	return r, nil
}
