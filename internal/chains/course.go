package chains

import "math"

// Vitals are what a checkpoint tells of its gradients beside their cost.
type Vitals struct {
	Residual float64 `json:"residual,omitempty"` // the largest true relative one
	Noise    float64 `json:"noise,omitempty"`    // sum of the noise ratios that were measured
	Measured int     `json:"measured,omitempty"` // how many those are
}

// Add adds what one gradient gave; a noise of 0 was not measured.
func (v *Vitals) Add(residual, noise float64) {
	if residual > v.Residual {
		v.Residual = residual
	}
	if noise > 0 {
		v.Noise += noise
		v.Measured++
	}
}

func (v *Vitals) sane(iterations int) bool {
	return v.Residual >= 0 && v.Noise >= 0 && v.Residual <= maxCost && v.Noise <= maxCost && !math.IsNaN(v.Residual) &&
		v.Measured >= 0 && v.Measured <= iterations
}

// Mark sums up some checkpoints of a chain in a row.
type Mark struct {
	Iter        int     `json:"iter"`        // at the end of the last one
	Checkpoints int     `json:"checkpoints"` // how many
	Gradients   int     `json:"gradients"`   // or steps of a sampler without
	Solves      int     `json:"solves"`
	Iterations  int     `json:"iterations"`
	Unconverged int     `json:"unconverged,omitempty"`
	Seconds     float64 `json:"seconds"`
	Vitals
}

// maxMarks bounds the marks of a chain: when there are as many, they are joined
// two by two, so that a long history is kept in less detail.
const maxMarks = 256

// mark adds a checkpoint to a chain's course.
func (c *Chain) mark(k *Checkpoint) {
	m := Mark{Iter: k.State.Iter, Checkpoints: 1, Gradients: len(k.Draws), Solves: k.Cost.Solves, Iterations: k.Cost.Iterations,
		Unconverged: k.Cost.Unconverged, Seconds: k.Cost.Seconds, Vitals: k.Vitals}
	every := 1
	if len(c.Course) > 0 {
		every = c.Course[0].Checkpoints
	}
	if n := len(c.Course); n > 0 && c.Course[n-1].Checkpoints < every {
		c.Course[n-1].join(m)
		return
	}
	if len(c.Course) == maxMarks {
		half := make([]Mark, 0, maxMarks)
		for i := 0; i < maxMarks; i += 2 {
			a := c.Course[i]
			a.join(c.Course[i+1])
			half = append(half, a)
		}
		c.Course = half
	}
	c.Course = append(c.Course, m)
}

// WarmupSeconds returns the seconds that the warm-up took of Cost.Seconds: what the marks of its
// checkpoints say, and of a mark that reaches beyond it a share by iterations.
func (c *Chain) WarmupSeconds() (seconds float64) {
	from := 0
	for _, m := range c.Course {
		if m.Iter > from {
			seconds += m.Seconds * float64(min(m.Iter, max(c.Warmup, from))-from) / float64(m.Iter-from)
		}
		from = m.Iter
	}
	return seconds
}

// join adds the checkpoints that follow.
func (m *Mark) join(o Mark) {
	m.Iter = o.Iter
	m.Checkpoints += o.Checkpoints
	m.Gradients += o.Gradients
	m.Solves += o.Solves
	m.Iterations += o.Iterations
	m.Unconverged += o.Unconverged
	m.Seconds += o.Seconds
	m.Residual = max(m.Residual, o.Residual)
	m.Noise += o.Noise
	m.Measured += o.Measured
}

// Tuned is what the settings of a window were, without their matrices.
type Tuned struct {
	Window int     `json:"window"`
	Iter   int     `json:"iter"` // of the chains when it began
	Step   float64 `json:"step,omitempty"`
	Probes int     `json:"probes,omitempty"`
	Budget float64 `json:"noise_budget,omitempty"` // λ_min(Q) in units of C
	Early  bool    `json:"early,omitempty"`
}

// tuned notes the settings of a window.
func (r *Run) tuned(s *Settings) {
	iter := 0
	for _, c := range r.Chains {
		iter = max(iter, c.State.Iter)
	}
	r.Tuned = append(r.Tuned, Tuned{Window: s.Window, Iter: iter, Step: s.Step, Probes: s.Probes, Budget: s.Budget, Early: s.Early})
}
