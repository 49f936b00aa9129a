package sampler

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Stager is a Method whose runs are staged (chains.Stage): they have no windows, no
// settings and no steps.
type Stager interface {
	// Conduct returns the next event of a run, a Stage or a Drawn: a function of the
	// posterior and of the other arguments alone.
	Conduct(ctx context.Context, env Evaluator, o *Options, p *chains.Plan, c *chains.Conducting) (*chains.Event, error)
	// Evaluate computes an item of a stage: a function of the posterior and of the other
	// arguments alone, on any driver.
	Evaluate(ctx context.Context, env Evaluator, o *Options, p *chains.Plan, e *chains.Evaluation) ([]float64, error)
	// Course returns what a run is expected to consist of.
	Course(m Model, o *Options, p *chains.Plan) *Course
}

// Evaluator is what the stages of a run are computed with.
type Evaluator interface {
	Model() Model
	Budget() *parallel.Budget
	// LogPrior returns the log prior density of ψ, Jacobian included, and its gradient.
	LogPrior(psi []float64) (value float64, grad []float64)
	// Factor evaluates by a stored factor of K, exactly. It returns nil where K is
	// numerically singular.
	Factor(ctx context.Context, psi []float64, gradients bool) (*Evidence, error)
	// Subset evaluates so many random rows, which are the run's, by a stored factor, as Factor does all.
	Subset(ctx context.Context, psi []float64, rows int) (*Evidence, error)
	// Solves evaluates by solves and probes, which are the key's. P is the preconditioner
	// at the ψ given. It returns nil where K is numerically singular.
	Solves(ctx context.Context, psi, p []float64, key random.Key, probes int) (*Evidence, error)
	// Quadratic returns yᵀK⁻¹y, which is not less, and what it is more by at most:
	// tolerance, unless the value has come to enough. basis are points whose solutions the
	// search for K⁻¹y begins with.
	Quadratic(ctx context.Context, psi, p []float64, basis [][]float64, tolerance, enough float64) (value, bound float64, err error)
	// Cost returns what was done since the last call.
	Cost() chains.Cost
}

// Model is what a sampler needs to know of the posterior.
type Model struct {
	Rows, Inputs int
	Params       param.List
	// Offset says that a part of K is known, of the noise or a term of fixed variance, so that K is not in
	// proportion to its variances.
	Offset bool
}

// Evidence is what the density of the data consists of, at a ψ.
type Evidence struct {
	LogDet, Quad         float64 // log|K| and yᵀK⁻¹y; LogDet is NaN if it was not estimated
	LogDetGrad, QuadGrad []float64
	LogDetVar            float64   // variance of the estimate of LogDet
	GradCov              []float64 // p×p, of one probe's share in LogDetGrad, as seen; nil if that is exact
	Probes               int
}
