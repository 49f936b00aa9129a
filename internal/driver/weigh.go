package driver

import (
	"context"
	"math"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// weigh evaluates the log densities of a provisional answer, with a stored K.
func (d *Driver) weigh(ctx context.Context, w *chains.Weighing) (*chains.Provisional, error) {
	began := time.Now()
	draws, _, err := sampler.Provisional(d.Plan, w.From)
	if err != nil {
		return nil, err
	}
	dense := posterior.NewDense(d.Problem, d.Budget)
	p := &chains.Provisional{}
	for _, psi := range draws {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.LogDensities = append(p.LogDensities, max(dense.LogDensity(psi), -math.MaxFloat64))
	}
	p.Cost = chains.Cost{Densities: len(draws), Seconds: time.Since(began).Seconds()}
	return p, nil
}
