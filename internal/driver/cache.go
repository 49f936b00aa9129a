package driver

import (
	"context"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// What plans count with where only a run can tell.
const (
	AssumedIterations = 40 // of a solve
	AssumedProbes     = 8  // if warm-up is to choose them
)

// autoCacheBytes is the memory in which a process may keep elements of K unless
// the specification says otherwise.
const autoCacheBytes = 1 << 30

// cacheProducts is the number of products of a gradient that a cache has to pay
// for itself with: few, as with a good preconditioner.
const cacheProducts = 10

// PlanCache decides by measurement whether the operators of a run should keep
// elements of K between the products of a gradient. The memory that the
// specification allows is shared by one operator for each chain and one for the
// search of the mode. It returns nil if there is nothing to decide: the cache
// is off, K is stored anyway, or pairs of rows are passed over. The only error is that of ctx.
func PlanCache(ctx context.Context, s *job.Spec, p *posterior.Problem, budget *parallel.Budget) (*cmvp.CachePlan, error) {
	bytes := s.Solver.Cache.Or(autoCacheBytes) / int64(CacheOperators(s))
	if _, order := p.Inputs.Arranged(); s.Needs().Dense || s.Needs().Inducing || bytes == 0 || order != nil {
		return nil, nil
	}
	f := p.Function(make([]float64, p.NumParams())) // the cost does not depend on θ
	plan, err := cmvp.PlanCache(ctx, p.Inputs, f, cmvp.CacheWork{
		Columns:  1 + s.Sampler.Probes.Or(AssumedProbes),
		Products: cacheProducts,
		Single:   s.Solver.Mixed(s.Solver.Method == "ulisse"),
		Bytes:    bytes,
	}, budget)
	return &plan, err
}

// Near returns the share of the pairs of rows that products evaluate at ψ; 0 where they evaluate all, since the inputs are not arranged.
func Near(p *posterior.Problem, psi []float64, budget *parallel.Budget) float64 {
	if _, order := p.Inputs.Arranged(); order == nil {
		return 0
	}
	op := cmvp.New(p.Inputs, p.Covariance, budget)
	op.Set(p.At(psi))
	n := float64(op.Len())
	return float64(op.Evaluated(cmvp.Double)) / (n * n)
}

// CacheOperators returns the number of operators that share a cache's memory.
func CacheOperators(s *job.Spec) int { return s.Sampler.Chains + 1 }
