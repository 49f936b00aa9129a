package predict

import (
	"context"
	"errors"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Latent predicts the latent function without K: an approximation of the Gaussian process, such as one with inducing
// points.
type Latent interface {
	// Latent returns the means and the variances of the latent function at points, which are standardised as the
	// training data are, at a draw.
	Latent(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance []float64, err error)
}

// Functions predicts the latent functions, of which there may be several, without K.
type Functions interface {
	// At returns the means and the variances of the functions at points at a draw of ψ, given each of some draws of what they depend on, such as the functions at
	// the training rows: those of each function at all points, one after the other.
	At(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance [][]float64, err error)
}

// Together are Functions that are known at several points together.
type Together interface {
	Functions
	// Joint calls do for each of some sets of points with the means that At has there, and the covariance of each function, which is the
	// same for all draws of the functions at the training rows.
	Joint(ctx context.Context, psi []float64, sets []*kernel.Inputs, do func(set int, mean [][]float64, covariance []*mat.SymDense) error) error
}

// one is a Latent as Functions.
type one struct{ Latent }

func (l one) At(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance [][]float64, err error) {
	m, v, err := l.Latent.Latent(ctx, psi, points)
	return [][]float64{m}, [][]float64{v}, err
}

// drawn returns what predicts in place of solves with K, nil where they do.
func (p *Predictor) drawn() Functions {
	switch {
	case p.Functions != nil:
		return p.Functions
	case p.Approximation != nil:
		return one{p.Approximation}
	}
	return nil
}

// errSeveral is the error of what one latent function tells, and not several.
var errSeveral = errors.New("of several latent functions there are predictions, the functions themselves (latent), paths and effects: gradients, terms, a joint covariance and the coefficients of a mean are told of one")

// errTerms is that of the effects of a term.
var errTerms = errors.New("of several latent functions effects are of all that makes the target: what one term adds is not told")

// without returns the error of what is not to be had without solves with K, nil where there are some.
func (p *Predictor) without() error {
	switch {
	case p.telling() != nil:
		return errSeveral
	case p.drawn() != nil:
		return errApproximate
	}
	return nil
}

// errApproximate is the error of what only the exact Gaussian process tells.
var errApproximate = errors.New("the approximation predicts rows one by one, each for itself: for anything else use the exact model")

// approximate predicts points without K.
func (p *Predictor) approximate(ctx context.Context, points *kernel.Inputs, o Options) (*Moments, Stats, error) {
	if err := o.Check(); err != nil {
		return nil, Stats{}, err
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	out, stats := &Moments{likelihood: p.likelihood(o.Noise)}, Stats{Draws: len(p.Draws), Rows: points.Len()}
	for t, psi := range p.Draws {
		o.Progress(Progress{RowsStage, points.Len() * t, points.Len() * len(p.Draws)})
		mean, variance, err := p.drawn().At(ctx, psi, points)
		if err != nil {
			return nil, stats, err
		}
		theta, own := p.Problem.Natural(psi)
		out.each = len(mean)
		for k := range mean {
			if n := points.Len() * p.Problem.Functions(); len(mean[k]) != n || len(variance[k]) != n {
				panic(fmt.Sprintf("predict: %d means and %d variances of %d points came of an approximation", len(mean[k]), len(variance[k]), points.Len()))
			}
			if err := usable(psi, mean[k], variance[k], p.priors(theta, points), &stats); err != nil {
				return nil, stats, err
			}
			out.Mean, out.Var, out.own = append(out.Mean, mean[k]), append(out.Var, variance[k]), append(out.own, own)
		}
	}
	o.Progress(Progress{RowsStage, points.Len() * len(p.Draws), points.Len() * len(p.Draws)})
	return out, stats, nil
}

// priors returns the variance of each latent function at each point before anything is learnt.
func (p *Predictor) priors(theta []float64, points *kernel.Inputs) func(i int) float64 {
	var f []*kernel.Function
	for c := range p.Problem.Functions() {
		f = append(f, p.Problem.Part(c).Function(theta))
	}
	return func(i int) float64 { return f[i/points.Len()].Variance(points.Row(i % points.Len())) }
}
