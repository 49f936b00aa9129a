package job

import (
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Plan returns the schedule of a run on the given number of rows, for a model with
// the named parameters and one latent function.
func (s *Spec) Plan(names []string, rows int) chains.Plan { return s.PlanOf(names, rows, 1) }

// PlanOf is Plan for a model with some latent functions.
func (s *Spec) PlanOf(names []string, rows, functions int) chains.Plan {
	m, err := sampler.ByName(s.Sampler.Method)
	if err != nil {
		panic(err) // the specification was checked
	}
	o, needs := s.SamplerOptions(), s.Needs()
	p := chains.Plan{
		Method: s.Sampler.Method, Names: names, Chains: s.Sampler.Chains, Checkpoint: s.Sampler.Checkpoint,
		Windows: m.Windows(o), Draws: s.Sampler.Draws, MaxDraws: s.Stop.MaxDraws, RHat: s.Stop.RHat, ESS: s.Stop.ESS, Error: s.Stop.Error,
		MaxTime: time.Duration(s.Stop.MaxTime), Seed: s.Seed,
		Step: s.Sampler.Step.Or(needs.Step), Probes: s.Sampler.Probes.Or(0), MaxProbes: sampler.MaxProbes, Solver: s.Solver.Method,
		Provisional: needs.Search != sampler.OnSubset && !needs.Augments && !needs.Inducing && rows <= sampler.ProvisionalRows, Latent: latent.Size(needs.Latent, s.LatentLength(rows, functions)),
		Mean: s.hasMean() && !needs.Inducing && functions == 1, // the others say nothing of coefficients
	}
	if needs.Staged {
		p.Staged, p.Lanes = true, sampler.MaxLanes
	}
	if s.Sampler.Certify {
		c := s.Certificate().PlanOf(names, rows, functions)
		c.Provisional, c.Mean = false, false
		p.Certificate = &c
	}
	return p
}

// LatentLength returns the length of a chain's latent vectors on some rows: as many as there are for each latent function, or as the
// inducing inputs may be that stand for them.
func (s *Spec) LatentLength(rows, functions int) int {
	if s.Needs().Inducing {
		return min(rows, s.Model.Approximation.Inducing.Or(defaultInducing))
	}
	return functions * rows
}

// Kept draws of each chain of a certificate, and the iterations before them.
const (
	certifyDraws  = 250
	certifyWarmup = 20
)

// Certificate returns the specification of the short exact run that certifies a
// run of s.
func (s *Spec) Certificate() *Spec {
	c := *s
	c.Sampler.Method, c.Sampler.Certify = sampler.Certifier, false
	c.Sampler.Draws, c.Sampler.Warmup, c.Sampler.Step = certifyDraws, Fixed(certifyWarmup), Auto[float64]{}
	c.Stop.MaxDraws = certifyDraws
	return &c
}
