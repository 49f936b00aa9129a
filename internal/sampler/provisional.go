package sampler

import (
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// ProvisionalRows is the largest number of rows for which a provisional answer is
// corrected by weights: each of its draws takes a dense density.
const ProvisionalRows = 1000

// Laplace returns draws of the normal distribution at the mode.
func Laplace(p *chains.Plan, prep *chains.Prepared, draws int) ([][]float64, error) {
	kern, err := sgld.NewMetropolis(nil, chains.Symmetric(prep.Cov), prep.Psi, false)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, draws)
	for i := range out {
		out[i] = kern.Normal(random.Key{Seed: p.Seed, Iter: i}.Stream(random.Provisional, 0))
	}
	return out, nil
}

// Provisional returns the draws of a Student t at the mode that a provisional
// answer weighs, with the log densities, up to a constant, that they were drawn
// with.
func Provisional(p *chains.Plan, prep *chains.Prepared) (draws [][]float64, logQ []float64, err error) {
	kern, err := sgld.NewMetropolis(nil, chains.Symmetric(prep.Cov), prep.Psi, false)
	if err != nil {
		return nil, nil, err
	}
	for i := range chains.ProvisionalDraws {
		psi := kern.Propose(random.Key{Seed: p.Seed, Iter: i}.Stream(random.Provisional, 1))
		draws, logQ = append(draws, psi), append(logQ, kern.LogProposal(psi))
	}
	return draws, logQ, nil
}
