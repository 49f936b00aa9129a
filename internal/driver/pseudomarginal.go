package driver

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/pseudomarginal"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// approximations are what sampler.Approximations names.
var approximations = map[string]func(*posterior.Problem, *parallel.Budget) (pseudomarginal.Approximation, error){
	"ep":      pseudomarginal.EP,
	"laplace": pseudomarginal.Laplace,
}

// newEstimator returns the estimator of the marginal likelihood that the specification asks for.
func (d *Driver) newEstimator() (*pseudomarginal.Estimator, error) {
	s := d.Spec.SamplerOptions().Section.(*sampler.PseudoMarginal)
	q, err := approximations[s.Approximation](d.Problem, d.Budget)
	if err != nil {
		return nil, fmt.Errorf("sampler.pseudo-marginal.approximation: %w", err)
	}
	return pseudomarginal.New(d.Problem, q, s.Samples, d.Budget), nil
}

func (e *env) Estimate(ctx context.Context, psi []float64, r *rand.Rand) (float64, error) {
	c := e.chain
	prior, _ := c.d.Problem.LogPrior(psi)
	if math.IsNaN(prior) || math.IsInf(prior, 0) {
		return math.Inf(-1), nil
	}
	v, err := c.estimator.LogLikelihood(ctx, psi, r)
	return prior + v, err
}
