package export

import (
	"context"
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/evidence"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// densityBytes bounds the memory of the factor that log densities are computed with.
const densityBytes = 2 << 30

// LogDensities returns the log density of each draw of each chain, log p(y|ψ) + log p(ψ), of the
// standardised data and of ψ, the log parameters, with all constants: what Stan calls lp__. It is computed
// exactly, whatever the sampler knows of it, from a stored factor of K for each draw; −∞ where K is
// singular to rounding. progress, if not nil, is told.
func LogDensities(ctx context.Context, src *Source, budget *parallel.Budget, progress func(predict.Progress)) ([][]float64, error) {
	rec, n := src.Record, src.Data.N()
	if need := evidence.Bytes(n, false); need > densityBytes {
		return nil, fmt.Errorf("the log density of %d rows takes a stored matrix of %.1f GB: it is computed where that is at most %.1f GB", n, float64(need)/1e9, float64(densityBytes)/1e9)
	}
	problem, err := rec.Spec.Problem(src.Data)
	if err != nil {
		return nil, err
	}
	if a := problem.Likelihood.Augmentation(); a == nil || a.Width() > 0 {
		return nil, fmt.Errorf("the log density of the parameters is computed under Gaussian noise alone: under the %s likelihood it is an integral over the latent function", problem.Likelihood.Name())
	}
	stored, done, total := posterior.NewStored(problem, budget), 0, 0
	for _, ch := range rec.Run.Chains {
		total += len(ch.Draws)
	}
	var out [][]float64
	for _, ch := range rec.Run.Chains {
		lp := make([]float64, len(ch.Draws))
		for t, psi := range ch.Draws {
			e, err := stored.At(ctx, psi, false)
			if err != nil {
				return nil, err
			}
			lp[t] = math.Inf(-1)
			if e != nil {
				prior, _ := problem.LogPrior(psi)
				lp[t] = prior - 0.5*e.LogDet - 0.5*e.Quad - 0.5*float64(n)*math.Log(2*math.Pi)
			}
			if done++; progress != nil {
				progress(predict.Progress{Stage: predict.RowsStage, Done: done, Total: total})
			}
		}
		out = append(out, lp)
	}
	return out, nil
}
