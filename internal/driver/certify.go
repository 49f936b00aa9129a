package driver

import (
	"context"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// Constants of a certificate: kept draws of each exact chain, the iterations
// before them, and the least draws of the certified run.
const (
	certifyDraws  = 250
	certifyWarmup = 20
	certifyLeast  = 20
)

// CertifySpec returns the specification of the short exact run that certifies a
// run of s.
func CertifySpec(s *job.Spec) *job.Spec {
	c := *s
	c.Sampler.Method, c.Sampler.Certify = "exact", false
	c.Sampler.Draws, c.Sampler.Warmup = certifyDraws, job.Fixed(certifyWarmup)
	c.Stop.MaxDraws = certifyDraws
	return &c
}

// PrepareFrom prepares an exact run from the draws of another: its proposals
// have their mean and covariance, its chains start where those ended.
func (d *Driver) PrepareFrom(ctx context.Context, fast *chains.Run) (*chains.Prepared, error) {
	if n := fast.MinDraws(); n < certifyLeast {
		return nil, fmt.Errorf("%d draws of each chain are too few to be certified: at least %d", n, certifyLeast)
	}
	var draws [][][]float64
	prep := &chains.Prepared{}
	for _, c := range fast.Chains {
		draws = append(draws, c.Draws)
		prep.Starts = append(prep.Starts, c.Draws[len(c.Draws)-1])
	}
	guess := (&chains.Settings{C: fast.Prepared.Cov}).Metric()
	mean, cov := sgld.Pool(draws, guess, float64(guess.SymmetricDim()))
	prep.Psi, prep.Cov = mean, chains.Flat(cov)
	return prep, d.chooseRank(ctx, prep)
}
