package cli

import (
	"context"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// fitDeep learns a network of random features, from the first start.
func fitDeep(ctx context.Context, f *fitFlags, j *runJob, p *posterior.Problem, starts [][]float64, o fit.Options) (*report.Fit, *fit.Result, error) {
	d, learn, err := j.spec.Network(p, j.budget)
	if err != nil {
		return nil, nil, badInput(err)
	}
	if len(f.workers) > 0 {
		g, err := f.group(d)
		if err != nil {
			return nil, nil, err
		}
		defer g.Close()
	}
	res, err := fit.Deep(ctx, d, starts[0], learn, o)
	return &report.Fit{Method: adam}, res, err
}

// predictDeep has the network that was learnt predict.
func predictDeep(_ context.Context, rec *report.Record, c *predict.Config) error {
	d, _, err := rec.Spec.Network(c.Problem, c.Budget)
	if err != nil {
		return badInput(err)
	}
	learnt, err := d.Learnt(rec.Fit.Extra)
	if err != nil {
		return fmt.Errorf("fit.json: %w", err)
	}
	c.Functions = learnt
	return nil
}
