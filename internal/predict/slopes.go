package predict

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// slopes are the derivatives of the latent function in each input at some points, point by point.
type slopes struct {
	p      *Predictor
	points *kernel.Inputs
}

func (s slopes) len() int { return s.points.Len() * s.points.Dim() }

func (s slopes) at(ctx context.Context, psi []float64) (cross [][]float64, prior []float64, err error) {
	if err := s.p.Budget.Acquire(ctx); err != nil {
		return nil, nil, err
	}
	defer s.p.Budget.Release()
	in, d, f := s.p.Problem.Inputs, s.points.Dim(), s.p.Problem.Function(psi)
	cross, prior = solve.Columns(in.Len(), s.len()), make([]float64, s.len())
	s.p.Budget.NewLoop(func(_, i int) {
		x, each := s.points.Row(i), make([]float64, d)
		f.AddSlopeVariances(prior[i*d:(i+1)*d], x)
		for row := range in.Len() {
			clear(each)
			f.AddSlopes(each, x, in.Row(row))
			for k, v := range each {
				cross[i*d+k][row] = v
			}
		}
	}).Run(s.points.Len())
	return cross, prior, ctx.Err()
}

// Slopes returns the distributions of the derivatives of the latent function in each input at the given
// points, all those of a point and then those of the next, in the units of the standardised data. They are
// normal at a draw: f is, and differentiation is linear. The errors are those of Predict, and of a covariance
// whose functions have no derivatives.
func (p *Predictor) Slopes(ctx context.Context, points *kernel.Inputs, o Options) (*Moments, Stats, error) {
	p.checkPoints(points)
	if err := p.Problem.Covariance.Differentiable(); err != nil {
		return nil, Stats{}, err
	}
	d := points.Dim()
	o.Latent = true
	return p.distributions(ctx, points.Len()*d, d, o,
		func(lo, hi int) functionals { return slopes{p, points.Select(span(lo/d, hi/d))} },
		func(f *kernel.Function, i int) float64 {
			variances := make([]float64, d)
			f.AddSlopeVariances(variances, points.Row(i/d))
			return variances[i%d]
		})
}
