package predict

import (
	"context"
	"errors"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Latent predicts the latent function without K: an approximation of the Gaussian process, such as one with inducing
// points.
type Latent interface {
	// Latent returns the means and the variances of the latent function at points, which are standardised as the
	// training data are, at a draw; of several latent functions those of each at all points, one after the other.
	Latent(ctx context.Context, psi []float64, points *kernel.Inputs) (mean, variance []float64, err error)
}

// errApproximate is the error of what only the exact Gaussian process tells.
var errApproximate = errors.New("the approximation predicts rows one by one, each for itself: for anything else use the exact model")

// approximate predicts points by an approximation.
func (p *Predictor) approximate(ctx context.Context, points *kernel.Inputs, o Options) (*Moments, Stats, error) {
	if err := o.Check(); err != nil {
		return nil, Stats{}, err
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	functions := p.Problem.Functions()
	out, stats := p.moments(points.Len()*functions, o.Noise), Stats{Draws: len(p.Draws), Rows: points.Len()}
	for t, psi := range p.Draws {
		o.Progress(Progress{RowsStage, points.Len() * t, points.Len() * len(p.Draws)})
		mean, variance, err := p.Approximation.Latent(ctx, psi, points)
		if err != nil {
			return nil, stats, err
		}
		if len(mean) != len(out.Mean[t]) || len(variance) != len(out.Mean[t]) {
			panic(fmt.Sprintf("predict: an approximation predicts %d means and %d variances of %d points", len(mean), len(variance), points.Len()))
		}
		copy(out.Mean[t], mean)
		copy(out.Var[t], variance)
	}
	prior := func(f *kernel.Function, i int) float64 { return f.Variance(points.Row(i)) }
	if functions > 1 {
		prior = func(f *kernel.Function, i int) float64 {
			return p.Problem.Part(i / points.Len()).Function(f.Theta()).Variance(points.Row(i % points.Len()))
		}
	}
	if err := p.usable(out, prior, &stats); err != nil {
		return nil, stats, err
	}
	o.Progress(Progress{RowsStage, points.Len() * len(p.Draws), points.Len() * len(p.Draws)})
	return out, stats, nil
}
