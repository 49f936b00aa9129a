package posterior

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// Sparse is a sparse approximation of the log density of the data (package sparse) as a function of ψ. It is not
// safe for concurrent use.
type Sparse struct {
	problem *Problem
	budget  *parallel.Budget
	approx  *sparse.Approximation
	bound   *sparse.Variational     // nil but of SVGP
	rows    []likelihood.Likelihood // of SVGP: of each row, or one of all

	// The posterior that was last asked for, and where.
	psi  []float64
	last *sparse.Posterior
}

// NewSparse returns an approximation for a problem by inducing inputs. It panics unless the likelihood is Gaussian
// as it is, but for SVGP, under which its density must be smooth and log-concave in the latent value.
func NewSparse(p *Problem, kind sparse.Kind, z *kernel.Inputs, b *parallel.Budget) *Sparse {
	s := &Sparse{problem: p, budget: b}
	if kind != sparse.SVGP {
		if a := p.Likelihood.Augmentation(); a == nil || a.Width() > 0 {
			panic("posterior: a sparse approximation of targets that are not Gaussian")
		}
		s.approx = sparse.New(kind, p.Covariance, p.Inputs, z, b)
		return s
	}
	s.approx = sparse.New(sparse.SGPR, p.Covariance, p.Inputs, z, b)
	s.bound = sparse.NewVariational(s.approx)
	s.rows = p.likelihoods()
	return s
}

// likelihoods returns that of each row, or one of all.
func (p *Problem) likelihoods() []likelihood.Likelihood {
	if _, differ := p.Likelihood.(likelihood.ByRow); !differ {
		return []likelihood.Likelihood{p.Likelihood}
	}
	var rows []likelihood.Likelihood
	for i := range p.Y {
		rows = append(rows, likelihood.At(p.Likelihood, i))
	}
	return rows
}

// Inducing returns the inducing inputs, and SetInducing changes them.
func (s *Sparse) Inducing() *kernel.Inputs { return s.approx.Inducing() }

// Q returns the distribution of the inducing variables of SVGP as numbers, and SetQ makes it what Q has returned.
func (s *Sparse) Q() []float64 { return s.bound.State() }

// SetQ changes the distribution of the inducing variables of SVGP.
func (s *Sparse) SetQ(q []float64) {
	s.bound.SetState(q)
	s.last = nil
}

// SetInducing changes the inducing inputs.
func (s *Sparse) SetInducing(z *kernel.Inputs) {
	s.approx.SetInducing(z)
	s.last = nil
}

// Extra returns nil: x is ψ alone.
func (s *Sparse) Extra() []float64 { return nil }

// At returns the approximate log density of the data and its gradient in ψ, −∞ and nil where there is none. The only
// error is that of ctx.
func (s *Sparse) At(ctx context.Context, psi []float64) (float64, []float64, error) {
	value, grad, _, err := s.gradient(ctx, psi, false)
	return value, grad, err
}

// WithInducing is At with the gradient by the inducing inputs, point by point, too. The covariance must be
// kernel.Covariance.Differentiable.
func (s *Sparse) WithInducing(ctx context.Context, psi []float64) (value float64, grad, inducing []float64, err error) {
	return s.gradient(ctx, psi, true)
}

func (s *Sparse) gradient(ctx context.Context, psi []float64, inducing bool) (value float64, grad, byZ []float64, err error) {
	p := s.problem
	var v *sparse.Value
	if s.bound != nil {
		v, err = s.bound.Gradient(ctx, p.Function(psi), s.row(psi), inducing)
	} else {
		theta, noise := p.At(psi)
		v, err = s.approx.Gradient(ctx, p.Covariance.At(theta), noise, p.Targets(), inducing)
	}
	if errors.Is(err, sparse.ErrSingular) {
		return math.Inf(-1), nil, nil, nil
	}
	if err != nil {
		return 0, nil, nil, err
	}
	grad = v.Theta
	if s.bound != nil {
		grad = append(grad, make([]float64, p.Own())...)
	} else {
		for _, g := range p.noiseGradient(psi) {
			grad = append(grad, along(g, v.Noise))
		}
	}
	p.Params.Chain(psi, grad)
	if s.bound != nil {
		s.addOwn(grad, psi, v.Mean, v.Variance, s.row)
	}
	if !finite(grad) || !finite(v.Inducing) {
		return math.Inf(-1), nil, nil, nil
	}
	return v.LogDensity, grad, v.Inducing, nil
}

func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// row returns the rows of the variational bound at ψ, in closed form or by Gauss-Hermite quadrature: then score and weight are the
// derivatives of what it computes.
func (s *Sparse) row(psi []float64) sparse.Row {
	_, own := s.problem.Natural(psi)
	return func(i int, mean, variance float64) (value, score, weight float64) {
		if s.problem.Offset != nil {
			mean += s.problem.Offset[i]
		}
		return expectation(s.rows[min(i, len(s.rows)-1)], own, s.problem.Y[i], mean, variance)
	}
}

// expectation returns that of log p(y|f) under a normal f, with score and weight as of a sparse.Row.
func expectation(l likelihood.Likelihood, own []float64, y, mean, variance float64) (value, score, weight float64) {
	if c, ok := l.(likelihood.ClosedForm); ok {
		return c.Expectation(own, y, mean, variance)
	}
	sd := math.Sqrt(variance)
	for k, x := range hermite.nodes {
		v, slope, _ := l.LogDensity(own, y, mean+sd*x)
		value += hermite.weights[k] * v
		score += hermite.weights[k] * slope
		weight -= hermite.weights[k] * slope * x
	}
	if sd > 0 {
		weight /= sd
	} else {
		_, _, weight = l.LogDensity(own, y, mean)
	}
	return value, score, weight
}

// addOwn adds the derivatives of the bound by the likelihood's own parameters, on the scale of ψ: differences of the rows'
// expectations, since q stays where it is best.
func (s *Sparse) addOwn(grad, psi, mean, variance []float64, rowAt func(psi []float64) sparse.Row) {
	const step = 1e-4
	x := slices.Clone(psi)
	for q := len(psi) - s.problem.Own(); q < len(psi); q++ {
		for _, h := range []float64{step, -step} {
			x[q] = psi[q] + h
			row := rowAt(x)
			parts := make([]float64, (len(mean)+255)/256)
			s.budget.Chunks(len(mean), 256, func(c, lo, hi int) {
				for i := lo; i < hi; i++ {
					e, _, _ := row(i, mean[i], variance[i])
					parts[c] += e
				}
			})
			grad[q] += floats.Sum(parts) / (2 * h)
		}
		x[q] = psi[q]
	}
}

// Step returns an estimate of the gradient of SVGP's bound in ψ, and if asked for by the inducing inputs z, at the distribution q of the
// inducing variables that it keeps, from a batch of rows, each of which counts for as many as there are to a row of the batch. Then it takes q a
// share of a step of the natural gradient farther. It does not change the inducing inputs of other methods. The gradient is nil where there is no
// density; the only error is that of ctx.
func (s *Sparse) Step(ctx context.Context, psi []float64, z *kernel.Inputs, batch []int, share float64, inducing bool) (grad, byZ []float64, err error) {
	p, scale := s.problem, float64(len(s.problem.Y))/float64(len(batch))
	rowAt := func(psi []float64) sparse.Row {
		row := s.row(psi)
		return func(i int, mean, variance float64) (value, score, weight float64) {
			value, score, weight = row(batch[i], mean, variance)
			return scale * value, scale * score, scale * weight
		}
	}
	a := sparse.New(sparse.SGPR, p.Covariance, p.Inputs.Select(batch), z, s.budget)
	v, err := s.bound.Step(ctx, a, p.Function(psi), rowAt(psi), share, inducing)
	if errors.Is(err, sparse.ErrSingular) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	grad = append(v.Theta, make([]float64, p.Own())...)
	p.Params.Chain(psi, grad)
	s.addOwn(grad, psi, v.Mean, v.Variance, rowAt)
	if !finite(grad) || !finite(v.Inducing) {
		return nil, nil, nil
	}
	return grad, v.Inducing, nil
}

// posterior returns the distribution of the latent function at ψ. The error is sparse.ErrSingular or that of ctx.
func (s *Sparse) posterior(ctx context.Context, psi []float64) (q *sparse.Posterior, err error) {
	if s.last != nil && slices.Equal(s.psi, psi) {
		return s.last, nil
	}
	if s.bound != nil {
		s.bound.Reset() // so that it does not depend on what was asked for before
		q, err = s.bound.Posterior(ctx, s.problem.Function(psi), s.row(psi))
	} else {
		theta, noise := s.problem.At(psi)
		q, err = s.approx.Posterior(ctx, s.problem.Covariance.At(theta), noise, s.problem.Targets())
	}
	if err != nil {
		return nil, err
	}
	s.psi, s.last = slices.Clone(psi), q
	return q, nil
}

// Latent returns the means and variances of the latent function at points, at ψ. The error is sparse.ErrSingular or
// that of ctx.
func (s *Sparse) Latent(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance []float64, err error) {
	q, err := s.posterior(ctx, psi)
	if err != nil {
		return nil, nil, err
	}
	f, z := s.problem.Function(psi), s.Inducing()
	mean, variance = make([]float64, points.Len()), make([]float64, points.Len())
	s.budget.Chunks(points.Len(), 64, func(_, lo, hi int) {
		k, x := make([]float64, z.Len()), make([]float64, z.Len())
		for i := lo; i < hi; i++ {
			for j := range k {
				k[j] = f.Value(points.Row(i), z.Row(j))
			}
			q.Explained(x, k)
			mean[i], variance[i] = floats.Dot(k, q.Gamma), f.Variance(points.Row(i))-floats.Dot(k, x)
		}
	})
	return mean, variance, nil
}
