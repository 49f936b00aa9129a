package fit

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Stored is the exact log marginal likelihood of Gaussian targets, by a stored factor of K.
type Stored struct {
	n        int
	evidence *posterior.Stored
}

// NewStored returns the objective of a problem whose likelihood is Gaussian. The memory of a factor is taken at once.
func NewStored(p *posterior.Problem, b *parallel.Budget) *Stored {
	return &Stored{len(p.Y), posterior.NewStored(p, b)}
}

// Extra returns nil.
func (*Stored) Extra() []float64 { return nil }

// At is that of an Objective.
func (s *Stored) At(ctx context.Context, x []float64) (float64, []float64, error) {
	v, err := s.evidence.At(ctx, x, true)
	if v == nil {
		return math.Inf(-1), nil, err
	}
	value, grad := sum(s.n, v)
	return value, grad, nil
}

// sum returns the log marginal likelihood that an evidence makes.
func sum(n int, v *posterior.Evidence) (value float64, grad []float64) {
	grad = make([]float64, len(v.QuadGrad))
	floats.AddScaled(grad, -0.5, v.LogDetGrad)
	floats.AddScaled(grad, -0.5, v.QuadGrad)
	return -0.5 * (v.LogDet + v.Quad + float64(n)*math.Log(2*math.Pi)), grad
}

// Constants of estimates by products alone.
const (
	probes          = 16   // of log|K|, the same at each ψ
	probedTolerance = 1e-4 // relative error of their solutions, far below their noise
	maxIterations   = 5000 // of a solve, as a run's
)

// Probed estimates the log marginal likelihood of Gaussian targets by products with K alone, with the same random
// numbers at each ψ, so that it is a smooth function: log|K| by Lanczos from whitened probes (posterior.Probed).
type Probed struct {
	problem *posterior.Problem
	op      *cmvp.Operator
	seed    uint64
	probed  *posterior.Probed
	// LogDetVar is the variance of log|K| where it was last estimated.
	LogDetVar float64
}

// NewProbed returns the objective of a problem whose likelihood is Gaussian; its preconditioner is built at ψ.
func NewProbed(ctx context.Context, p *posterior.Problem, b *parallel.Budget, seed uint64, psi []float64) (*Probed, error) {
	e := &Probed{problem: p, op: cmvp.New(p.Inputs, p.Covariance, b), seed: seed}
	return e, e.renew(ctx, psi)
}

// renew builds the preconditioner at ψ.
func (e *Probed) renew(ctx context.Context, psi []float64) error {
	n := len(e.problem.Y)
	e.op.Set(e.problem.At(psi))
	root, err := precond.Build(ctx, "rpcholesky", e.op, precond.AutoRank(n), random.Key{Seed: e.seed})
	if err != nil {
		return err
	}
	solver := solve.New(e.op, solve.Options{Tolerance: probedTolerance, Precond: root, Budget: e.op.Budget(), MaxIter: min(maxIterations, 10*n+100)})
	e.probed = posterior.NewProbed(e.problem, e.op, solver, root)
	return nil
}

// Extra returns nil.
func (*Probed) Extra() []float64 { return nil }

// At is that of an Objective.
func (e *Probed) At(ctx context.Context, x []float64) (float64, []float64, error) {
	v, err := e.probed.At(ctx, x, random.Key{Seed: e.seed}, probes)
	if v == nil {
		return math.Inf(-1), nil, err
	}
	e.LogDetVar = v.LogDetVar
	value, grad := sum(len(e.problem.Y), &v.Evidence)
	return value, grad, nil
}

// Rows of the subset on which all starts are tried, and how far, in log units, a search may go from where the
// preconditioner was built before that is built anew.
const (
	subsetRows = 1000
	reach      = 0.7
	renewals   = 10
)

// storedRows is up to how many rows a fit has a stored factor: its gradients take three times as long as values.
const storedRows = 16_000

// Exact fits the exact Gaussian process to a problem whose likelihood is Gaussian, as Staged does: with all rows by a
// stored factor, or where that takes too much memory by products alone.
func Exact(ctx context.Context, p *posterior.Problem, b *parallel.Budget, seed uint64, starts [][]float64, o Options) (*Result, error) {
	stored := func(p *posterior.Problem) (Objective, error) { return NewStored(p, b), nil }
	if len(p.Y) <= storedRows {
		return Staged(ctx, p, seed, starts, stored, o)
	}
	o = o.filled()
	starts, err := onSubset(ctx, p, seed, starts, stored, o)
	if err != nil {
		return nil, err
	}
	return byProducts(ctx, p, b, seed, starts[0], o)
}

// Staged searches an objective of a problem. All starts are tried on a random subset, if there are more rows than it has;
// from the distinct ends there the search goes on with all rows.
func Staged(ctx context.Context, p *posterior.Problem, seed uint64, starts [][]float64, of func(*posterior.Problem) (Objective, error), o Options) (*Result, error) {
	o = o.filled()
	starts, err := onSubset(ctx, p, seed, starts, of, o)
	if err != nil {
		return nil, err
	}
	obj, err := of(p)
	if err != nil {
		return nil, err
	}
	return Search(ctx, p.Params, obj, starts, o)
}

// onSubset returns the distinct ends of searches on a subset, the best first, or the starts where all rows are few.
func onSubset(ctx context.Context, p *posterior.Problem, seed uint64, starts [][]float64, of func(*posterior.Problem) (Objective, error), o Options) ([][]float64, error) {
	n := len(p.Y)
	if n <= subsetRows {
		return starts, nil
	}
	obj, err := of(p.Subset(mode.Subset(n, subsetRows, random.Key{Seed: seed})))
	if err != nil {
		return nil, err
	}
	r, err := Search(ctx, p.Params, obj, starts, o)
	if err != nil {
		return nil, err
	}
	return distinct(r), nil
}

// byProducts searches by products alone, with the preconditioner built anew where the search has gone far from where it
// was built.
func byProducts(ctx context.Context, p *posterior.Problem, b *parallel.Budget, seed uint64, at []float64, o Options) (*Result, error) {
	obj, err := NewProbed(ctx, p, b, seed, at)
	if err != nil {
		return nil, err
	}
	for round := 1; ; round++ {
		r, err := Search(ctx, p.Params, obj, [][]float64{at}, o)
		if err != nil {
			return nil, err
		}
		r.ValueError = math.Sqrt(obj.LogDetVar) / 2
		if round == renewals || floats.Distance(r.Psi, at, math.Inf(1)) < reach {
			return r, nil
		}
		at = r.Psi
		if err := obj.renew(ctx, at); err != nil {
			return nil, err
		}
	}
}

// Evaluator returns what evaluates a problem whose likelihood is Gaussian near ψ: by a stored factor, or where that takes
// too much memory by products alone.
func Evaluator(ctx context.Context, p *posterior.Problem, b *parallel.Budget, seed uint64, psi []float64) (Objective, error) {
	if len(p.Y) <= storedRows {
		return NewStored(p, b), nil
	}
	return NewProbed(ctx, p, b, seed, psi)
}

// apart is how far from each other ends of searches are, in standard errors, that are different maxima.
const apart = 1

// distinct returns the ends of searches that are not one another's.
func distinct(r *Result) [][]float64 {
	var out [][]float64
	for _, e := range r.Searches {
		same := false
		for _, other := range out {
			d2 := 0.0
			for i := range other {
				sd := 0.1 // where the curvature is not known, in log units
				if r.Cov != nil {
					sd = math.Sqrt(r.Cov.At(i, i))
				}
				d2 = max(d2, math.Abs(e.Psi[i]-other[i])/sd)
			}
			same = same || d2 < apart
		}
		if !same {
			out = append(out, e.Psi)
		}
	}
	return out
}
