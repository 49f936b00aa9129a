package predict

import (
	"context"
	"errors"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Terms returns the distributions of the terms f_t of the latent function f = Σ_t f_t at the given
// points: of each draw, point by point those of all terms of the covariance. Given the draw,
//
//	E f_t(x) = k_t(x,X)·K⁻¹y,  Var f_t(x) = k_t(x,x) − k_t(x,X)·K⁻¹·k_t(X,x)
//
// (Duvenaud 2014, section 2.4.5). The means of the terms add up to that of f; the variances do not,
// since what one term does not explain another may. Options.Latent is without effect: a term has no
// noise. The errors are those of Predict.
func (p *Predictor) Terms(ctx context.Context, points *kernel.Inputs, o Options) (*Moments, Stats, error) {
	p.checkPoints(points)
	return p.terms(ctx, points, p.parts(func(string) bool { return true }), o)
}

// Coefficients returns the distributions of the coefficients of the mean, in the order of its terms, in units of
// the standardised data: that of an input is its term where the input is 1. The errors are those of Predict.
func (p *Predictor) Coefficients(ctx context.Context, o Options) (*Moments, Stats, error) {
	parts := p.parts(job.OfMean)
	if len(parts) == 0 {
		return nil, Stats{}, errors.New("the model has no mean")
	}
	d := p.Problem.Inputs.Dim()
	return p.terms(ctx, kernel.NewInputs(1, d, slices.Repeat([]float64{1}, d)), parts, o)
}

func (p *Predictor) terms(ctx context.Context, points *kernel.Inputs, parts []summand, o Options) (*Moments, Stats, error) {
	o.Latent, o.Variance = true, Exact
	return p.distributions(ctx, points.Len()*len(parts), len(parts), o,
		func(lo, hi int) functionals {
			return terms{p, parts, points.Select(span(lo/len(parts), hi/len(parts)))}
		},
		func(f *kernel.Function, i int) float64 {
			return parts[i%len(parts)].at(f).Variance(points.Row(i / len(parts)))
		})
}

// summand is the covariance of one term, over the rows that were learnt from.
type summand struct {
	covariance *kernel.Covariance
	params     []int // their places in the whole
	operator   *cmvp.Operator
}

// parts returns the terms of some names.
func (p *Predictor) parts(of func(name string) bool) (out []summand) {
	for t := range p.Problem.Covariance.Terms() {
		if of(p.Problem.Covariance.TermName(t)) {
			c, at := p.Problem.Covariance.Part(t)
			out = append(out, summand{c, at, cmvp.New(p.Problem.Inputs, c, p.Budget)})
		}
	}
	return out
}

// at returns the term's covariance function in that of the whole.
func (t *summand) at(f *kernel.Function) *kernel.Function {
	theta := make([]float64, len(t.params))
	for i, at := range t.params {
		theta[i] = f.Theta()[at]
	}
	return t.covariance.At(theta)
}

// terms are the values of the terms at some points, those of a point side by side.
type terms struct {
	p      *Predictor
	parts  []summand
	points *kernel.Inputs
}

func (v terms) len() int { return v.points.Len() * len(v.parts) }

func (v terms) at(ctx context.Context, psi []float64) (cross [][]float64, prior []float64, err error) {
	if err := v.p.Budget.Acquire(ctx); err != nil {
		return nil, nil, err
	}
	defer v.p.Budget.Release()
	whole := v.p.Problem.Function(psi)
	_, noise := v.p.Problem.At(psi)
	cross, prior = make([][]float64, v.len()), make([]float64, v.len())
	for t := range v.parts {
		f := v.parts[t].at(whole)
		v.parts[t].operator.Set(f.Theta(), noise)
		rows, err := v.parts[t].operator.CrossMatrix(ctx, v.points)
		if err != nil {
			return nil, nil, err
		}
		for i, row := range rows {
			cross[i*len(v.parts)+t], prior[i*len(v.parts)+t] = row, f.Variance(v.points.Row(i))
		}
	}
	return cross, prior, nil
}
