package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// modelNamed returns the model of a name: one of fitModels, or an approximation; no name of another is one.
func modelNamed(name string) fitModel {
	if slices.Contains(append(sparse.Kinds(), sparse.SVGP), sparse.Kind(name)) {
		return fitModel{fit: fitSparse, predict: predictSparse}
	}
	if name == job.RandomFeatures || name == job.DeepFeatures {
		return fitModel{fit: fitDeep, predict: predictDeep}
	}
	return fitModels[name]
}

// approximateModel returns the name of the model of a specification with an approximation of all rows.
func (f *fitFlags) approximateModel(spec *job.Spec) (string, error) {
	kind := spec.Model.Approximation.Kind
	switch {
	case kind == string(sparse.SGPMC):
		return "", badInput(errors.New("model.approximation: sgpmc is drawn from: give the specification to 'ulisse run', or use svgp for a point estimate"))
	case f.model != "":
		return "", fmt.Errorf("--model %s: the specification has model.approximation: %s, give one of the two", f.model, kind)
	case f.method != quasiNewton && spec.Model.Features():
		return "", fmt.Errorf("--method %s: %s is learnt by Adam, as model.approximation says: leave it out", f.method, kind)
	case f.method == adam && kind != string(sparse.SVGP):
		return "", fmt.Errorf("--method adam: it is for svgp, whose bound is a sum over rows, not for %s: leave it out", kind)
	case f.method == adagrad:
		return "", fmt.Errorf("--method %s: the gradients of %s are exact: leave it out", f.method, kind)
	}
	return kind, nil
}

// fitSparse fits by inducing inputs.
func fitSparse(ctx context.Context, f *fitFlags, j *runJob, p *posterior.Problem, starts [][]float64, o fit.Options) (*report.Fit, *fit.Result, error) {
	a, err := j.spec.Approximate(p, nil, j.budget)
	if err != nil {
		return nil, nil, badInput(err)
	}
	if f.method == adam {
		res, err := fit.Stochastic(ctx, p, a, f.batch, j.spec.Model.Approximation.Optimise, j.spec.Seed, starts[0], f.iterations, o)
		return &report.Fit{}, res, err
	}
	res, err := fit.Sparse(ctx, p, a, j.spec.Model.Approximation.Optimise, j.budget, j.spec.Seed, starts, o)
	return &report.Fit{}, res, err
}

// predictSparse has inducing inputs predict: those that the fit has moved, or those of the specification.
func predictSparse(_ context.Context, rec *report.Record, c *predict.Config) error {
	var z *kernel.Inputs
	if d := rec.Data.D(); len(rec.Fit.Extra) > 0 {
		if len(rec.Fit.Extra)%d != 0 {
			return fmt.Errorf("the fit has %d coordinates of inducing inputs, which have %d each", len(rec.Fit.Extra), d)
		}
		z = kernel.NewInputs(len(rec.Fit.Extra)/d, d, rec.Fit.Extra)
	}
	a, err := rec.Spec.Approximate(c.Problem, z, c.Budget)
	if err != nil {
		return badInput(err)
	}
	c.Approximation = a
	return nil
}
