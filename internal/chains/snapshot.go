package chains

import "slices"

// Snapshot returns the run as it is. It shares with r what Apply never changes in
// place, the draws above all, so that one may be read while events are applied to
// the other.
func (r *Run) Snapshot() *Run {
	if r == nil {
		return nil
	}
	s := *r
	s.Tuned, s.Stages, s.Restarts = slices.Clip(r.Tuned), slices.Clone(r.Stages), slices.Clip(r.Restarts)
	for i := range s.Stages {
		if s.Stages[i].Left > 0 { // else no result comes any more
			s.Stages[i].Results = slices.Clone(s.Stages[i].Results)
		}
	}
	s.Chains = slices.Clone(r.Chains)
	for i := range s.Chains {
		c := &s.Chains[i]
		c.Draws, c.Beyond = slices.Clip(c.Draws), slices.Clip(c.Beyond)
		c.Windows = slices.Clone(c.Windows)
		for w := range c.Windows {
			c.Windows[w] = slices.Clip(c.Windows[w])
		}
		c.Stats.ProbeCov, c.Stats.SolverCov = slices.Clone(c.Stats.ProbeCov), slices.Clone(c.Stats.SolverCov)
		c.Course = slices.Clone(c.Course)
	}
	s.Certificate = r.Certificate.Snapshot()
	return &s
}
