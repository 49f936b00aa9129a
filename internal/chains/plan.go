package chains

import (
	"slices"
	"time"
)

// Plan is what of a job's specification the schedule depends on.
type Plan struct {
	Method     string   `json:"method"` // of package sampler
	Names      []string `json:"names"`  // of the parameters
	Chains     int      `json:"chains"`
	Windows    []int    `json:"windows"` // iterations of each warm-up window
	Checkpoint int      `json:"checkpoint"`
	Draws      int      `json:"draws"`     // of each chain, before the run may end as converged
	MaxDraws   int      `json:"max_draws"` // of each chain
	RHat       float64  `json:"rhat"`
	ESS        float64  `json:"ess"`
	// Error is that of a mean that may remain, in posterior sds, and of an sd,
	// relative: 0 for any.
	Error     float64       `json:"error,omitempty"`
	MaxTime   time.Duration `json:"max_time"` // 0: no limit
	Seed      uint64        `json:"seed"`
	Step      float64       `json:"step"`   // that the sampler is to take; 0 if it has none
	Probes    int           `json:"probes"` // fixed number; 0 means tuned
	MaxProbes int           `json:"max_probes"`
	Solver    string        `json:"solver"`
	// Provisional says that draws of the Laplace approximation are weighed while
	// the chains warm up.
	Provisional bool `json:"provisional,omitempty"`
	// Staged says that the sampler asks for stages, and Lanes on how many drivers one
	// is spread at most.
	Staged bool `json:"staged,omitempty"`
	Lanes  int  `json:"lanes,omitempty"`
	// Latent is the size of the latent vectors that the state of a chain names, in
	// bytes (latent.Size); 0 for none.
	Latent int64 `json:"latent,omitempty"`
	// Mean says that the model has a mean, of whose coefficients the draws are to tell.
	Mean bool `json:"mean,omitempty"`
	// Certificate is the plan of the run that certifies; nil for none.
	Certificate *Plan `json:"certificate,omitempty"`
}

// Params returns the number of parameters p.
func (p *Plan) Params() int { return len(p.Names) }

// Latents reports whether states of the run, or of the one that certifies it, name latent
// vectors.
func (p *Plan) Latents() bool {
	return p.Latent > 0 || p.Certificate != nil && p.Certificate.Latent > 0
}

// certifies reports whether p can be the plan of a run that certifies one of q.
func (p *Plan) certifies(q *Plan) bool {
	return p.Chains == q.Chains && slices.Equal(p.Names, q.Names) && p.Checkpoint > 0 && p.Draws > 0 && p.MaxDraws >= p.Draws &&
		p.Certificate == nil && !p.Provisional && !p.Mean
}
