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
// the time that the chains have been at work; false if that cannot be told. The run
// may go on for longer, if it has not converged by then. active is the time that the run has
// been at work: the preparation does not count, as far as its cost tells, and the chains
// cannot have taken longer than all of their iterations one after the other.
func (r *Run) Remaining(active time.Duration) (time.Duration, bool) {
	if r.Phase != Warmup && r.Phase != Sampling {
		return 0, false
	}
	warmup, done := r.Plan.Warmup(), 0
	spent := 0.0
	for i := range r.Chains {
		spent += r.Chains[i].Cost.Seconds
		done += min(r.Chains[i].Warmup, warmup) + min(len(r.Chains[i].Draws), r.Plan.Draws)
	}
	all := len(r.Chains) * (warmup + r.Plan.Draws)
	if done == 0 || done >= all {
		return 0, false
	}
	work := active.Seconds()
	if n := len(r.Restarts); n > 0 {
		work -= r.Restarts[n-1].Elapsed
	} else if r.Prepared != nil {
		work -= r.Prepared.Cost.Seconds
	}
	if spent > 0 {
		work = min(work, spent)
	}
	return time.Duration(max(0, work) * float64(all-done) / float64(done) * float64(time.Second)), true
}
