package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Constants of ADAGRAD as published (Cutajar et al. 2016, section 5), with a relative residual of 1e-5, which is
// ‖r‖² < 1e-10·n for probes of independent signs.
const (
	adagradStep      = 1.0
	adagradOffset    = 1e-6
	adagradProbes    = 4
	adagradTolerance = 1e-5
)

// Adagrad follows noisy gradients from a start: with h the sum of their squares, each element moves by
// g/(√h + 1e-6). It returns x at the end and the trace. Its errors are that of ctx, and a gradient that is not finite.
func Adagrad(ctx context.Context, params param.List, noisy Noisy, start []float64, iterations int, o Options) (x []float64, trace []Step, err error) {
	s := o.state(start, noisy)
	err = follow(ctx, params, noisy, s, iterations, o, func(s *State, g []float64) {
		for i, v := range g {
			s.Second[i] += v * v
			s.X[i] += adagradStep * v / (math.Sqrt(s.Second[i]) + adagradOffset)
		}
	})
	return s.X, s.Trace, err
}

// follow follows noisy gradients from a state until it counts so many, by a rule that moves the state given the gradient there.
func follow(ctx context.Context, params param.List, noisy Noisy, s *State, iterations int, o Options, move func(s *State, g []float64)) error {
	o = o.filled()
	for s.Count < iterations {
		g, err := noisy.Gradient(ctx, s.X, s.Count)
		if err != nil {
			return errors.Join(err, o.interrupted(ctx, s, noisy))
		}
		psi := s.X[:len(params)]
		_, prior := params.LogPrior(psi)
		g = slices.Clone(g)
		floats.Add(g[:len(params)], prior)
		for _, v := range g {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("the gradient of iteration %d at log parameters %.4g is not finite", s.Count+1, psi)
			}
		}
		move(s, g)
		s.Count++
		step := Step{Search: 1, Evaluation: s.Count, Psi: slices.Clone(psi), Value: Number(math.NaN()),
			Slope: Number(floats.Norm(g, math.Inf(1))), Seconds: time.Since(o.Began).Seconds()}
		s.Trace = append(s.Trace, step)
		o.Tell(step)
		if o.Keeper != nil && o.Keeper.Due() {
			if err := o.keep(s, noisy); err != nil {
				return err
			}
		}
	}
	return nil
}

// Finish returns the estimate at the end x = (ψ, extra) of noisy gradients, with the curvature of an objective there. It counts as
// converged within one standard error of the optimum.
func Finish(ctx context.Context, params param.List, obj Objective, x []float64) (*Result, error) {
	guess := mat.NewSymDense(len(params), nil)
	for i := range params {
		guess.SetSym(i, i, 10)
	}
	return (&search{params: params, obj: obj, opt: Options{}.filled()}).finish(ctx, x, guess, noisyNear)
}

// Solves estimates gradients for Gaussian targets by linear solves: Hutchinson's, four probes of independent signs drawn
// anew each iteration, and conjugate gradients with a Nyström preconditioner of rank 4√n on rows drawn anew.
type Solves struct {
	problem *posterior.Problem // without priors
	op      *cmvp.Operator
	seed    uint64
	kind    string
	// Cost is what was solved so far.
	Cost solve.Report
}

// NewSolves returns the gradients of a problem whose likelihood is Gaussian. kind is the preconditioner's, nystrom as
// published, or none.
func NewSolves(p *posterior.Problem, b *parallel.Budget, seed uint64, kind string) *Solves {
	return &Solves{problem: Likelihood(p), op: cmvp.New(p.Inputs, p.Covariance, b), seed: seed, kind: kind}
}

// Likelihood returns the problem with priors that are flat.
func Likelihood(p *posterior.Problem) *posterior.Problem {
	flat := *p
	flat.Params = slices.Clone(p.Params)
	for i := range flat.Params {
		flat.Params[i].Prior = flat.Params[i].Prior.Flat()
	}
	return &flat
}

// Extra returns nil.
func (*Solves) Extra() []float64 { return nil }

// Gradient is that of a Noisy.
func (s *Solves) Gradient(ctx context.Context, x []float64, iter int) ([]float64, error) {
	p, key := s.problem, random.Key{Seed: s.seed, Iter: iter}
	n := len(p.Y)
	opt := solve.Options{Tolerance: adagradTolerance, Mixed: true, Budget: s.op.Budget(), MaxIter: min(maxIterations, 10*n+100)}
	if s.kind != "none" {
		s.op.Set(p.At(x))
		pre, err := precond.Build(ctx, s.kind, s.op, precond.AutoRank(n), key)
		if err != nil {
			return nil, err
		}
		opt.Precond = pre
	}
	e := posterior.NewEstimator(posterior.EstimatorConfig{Problem: p, Operator: s.op, Solver: solve.New(s.op, opt), Probes: posterior.Rademacher})
	g, err := e.Gradient(ctx, x, key, adagradProbes, false)
	if err != nil {
		return nil, err
	}
	s.Cost.Add(g.Report)
	return g.Value, nil
}
