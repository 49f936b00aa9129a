package health

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// What makes a job diverging.
const (
	farPsi        = 30.0 // of log parameters: drivers give up at twice that
	farDeviations = 25.0 // posterior standard deviations from the mode, root mean square
	rhatDraws     = 100  // of each chain, before R-hat has to fall
	rhatBad       = 1.1
	rhatFall      = 0.8 // of R-hat − 1, while the draws double: chains that mix halve it
	steepShare    = 0.5 // of gradients too steep to follow
	unsolvedShare = 0.5 // of solves that stop early
	shareLeast    = 40  // gradients, before shares are looked at
)

// trend is R-hat at a number of draws of each chain, and at half of them.
type trend struct {
	draws       int
	whole, half float64
}

// costMark is what a job had cost, and what became of the gradients since the
// mark before.
type costMark struct {
	at              chains.Cost
	steep, unsolved float64 // shares
}

// farAway finds a chain that has left the posterior behind.
func (c *Checker) farAway(f *state.Follower) *state.Health {
	r := f.Run
	if r.Prepared == nil {
		return nil
	}
	sds := deviations(r.Prepared.Cov, r.Plan.Params())
	for i := range r.Chains {
		psi := r.Chains[i].State.Psi
		if len(psi) != len(sds) {
			continue
		}
		far := 0.0
		for k, x := range psi {
			if math.Abs(x) > farPsi {
				return diverging("psi", "chain %d runs off: %s is %.3g on the scale that is sampled; use a smaller sampler.step, method: auto or exact, or informative priors", i+1, r.Plan.Names[k], x)
			}
			z := (x - r.Prepared.Psi[k]) / sds[k]
			far += z * z
		}
		if far = math.Sqrt(far / float64(len(psi))); far > farDeviations && r.Phase == chains.Sampling {
			return diverging("far", "chain %d is %.0f standard deviations away from the mode: the posterior is far from normal; use a smaller sampler.step, method: auto or exact, or informative priors", i+1, far)
		}
	}
	return nil
}

// deviations returns the square roots of a p×p covariance's diagonal.
func deviations(cov []float64, p int) []float64 {
	out := make([]float64, p)
	for i := range out {
		out[i] = math.Sqrt(math.Max(cov[i*p+i], math.SmallestNonzeroFloat64))
	}
	return out
}

// wasteful finds gradients that are of no use, and solves that do not converge,
// among those since the last look.
func (c *Checker) wasteful(f *state.Follower) *state.Health {
	id, m, now := f.Job.ID, c.costs[f.Job.ID], f.Run.Cost()
	if f.Run.Phase != chains.Sampling {
		c.costs[id] = costMark{at: now}
		return nil
	}
	if d := now.Gradients - m.at.Gradients; d >= shareLeast {
		m.steep, m.unsolved = float64(now.Shortened-m.at.Shortened)/float64(d), 0
		if s := now.Solves - m.at.Solves; s > 0 {
			m.unsolved = float64(now.Unconverged-m.at.Unconverged) / float64(s)
		}
		m.at = now
		c.costs[id] = m
	}
	switch {
	case m.steep > steepShare:
		return diverging("steep", "%.0f %% of the last gradients were too steep to be followed: the chains are not where the posterior is; use a smaller sampler.step, method: auto or exact, or informative priors", 100*m.steep)
	case m.unsolved > unsolvedShare:
		return diverging("unsolved", "%.0f %% of the last solves stopped before their tolerance: raise solver.max_iterations, or take another preconditioner", 100*m.unsolved)
	}
	return nil
}

// notMixing finds chains that do not come to agree: R-hat does not fall while the
// draws double.
func (c *Checker) notMixing(f *state.Follower) *state.Health {
	n := f.Convergence.Draws
	if f.Run.Phase != chains.Sampling || n < rhatDraws || !(f.Convergence.RHat > max(rhatBad, f.Run.Plan.RHat)) {
		return nil
	}
	t := c.rhats[f.Job.ID]
	if n < t.draws || n >= t.draws+max(1, t.draws/10) { // a tenth more draws each time
		t = trend{draws: n, whole: f.Convergence.RHat, half: f.Run.Diagnose(n / 2).RHat}
		c.rhats[f.Job.ID] = t
	}
	if math.IsNaN(t.half) || t.whole-1 <= rhatFall*(t.half-1) || t.whole <= rhatBad {
		return nil
	}
	return diverging("rhat", "R-hat is not falling: %.2f at %d draws, %.2f at %d; the chains are in different places, or barely move: look at 'ulisse draws', start anew with another seed, or use method: exact", t.whole, t.draws, t.half, t.draws/2)
}
