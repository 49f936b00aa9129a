package chains

import "time"

// Warmup returns the iterations of a chain's warm-up, as far as they are known
// beforehand.
func (p *Plan) Warmup() int {
	n := 0
	for _, w := range p.Windows {
		n += w
	}
	return n
}

// Remaining returns the time until the draws asked for are there, at the pace of
// the time that the run has been at work; false if that cannot be told. The run
// may go on for longer, if it has not converged by then.
func (r *Run) Remaining(active time.Duration) (time.Duration, bool) {
	if r.Phase != Warmup && r.Phase != Sampling {
		return 0, false
	}
	warmup, done := r.Plan.Warmup(), 0
	for i := range r.Chains {
		done += min(r.Chains[i].Warmup, warmup) + min(len(r.Chains[i].Draws), r.Plan.Draws)
	}
	all := len(r.Chains) * (warmup + r.Plan.Draws)
	if done == 0 || done >= all {
		return 0, false
	}
	return time.Duration(float64(active) * float64(all-done) / float64(done)), true
}
