package driver

import (
	"context"
	"math"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// conclude computes the coefficients of the mean at some draws, on this machine's cores. The caller has one of them.
func (d *Driver) conclude(ctx context.Context, w *chains.Conclusion) (*chains.Coefficients, error) {
	began := time.Now()
	p, err := predict.New(predict.FromSpec(d.Spec, d.Problem, w.At, d.Budget))
	if err != nil {
		return nil, err
	}
	d.Budget.Release() // to the predictor, which takes cores by itself
	m, stats, err := p.Coefficients(ctx, predict.Options{})
	_ = d.Budget.Acquire(context.WithoutCancel(ctx)) // the caller is to find it as it was
	if err != nil {
		return nil, err
	}
	k := &chains.Coefficients{Draws: w.Draws, Mean: m.Mean, SD: m.Var, Unconverged: stats.Unconverged + stats.MeansUnconverged}
	for _, row := range k.SD {
		for i, v := range row {
			row[i] = math.Sqrt(v)
		}
	}
	k.Cost = chains.Cost{Solves: stats.Solves + stats.Draws, Iterations: stats.Iterations, Unconverged: k.Unconverged, Seconds: time.Since(began).Seconds()}
	return k, nil
}
