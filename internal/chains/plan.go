package chains

import (
	"errors"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Plan is what of a job's specification the schedule depends on.
type Plan struct {
	Method     string        `json:"method"`
	Names      []string      `json:"names"` // of the parameters
	Chains     int           `json:"chains"`
	Windows    []int         `json:"windows"` // iterations of each warm-up window
	Checkpoint int           `json:"checkpoint"`
	Draws      int           `json:"draws"`     // of each chain, before the run may end as converged
	MaxDraws   int           `json:"max_draws"` // of each chain
	RHat       float64       `json:"rhat"`
	ESS        float64       `json:"ess"`
	MaxTime    time.Duration `json:"max_time"` // 0: no limit
	Seed       uint64        `json:"seed"`
	Step       float64       `json:"step"`   // wanted h (fisher) or ε (leimkuhler-matthews)
	Probes     int           `json:"probes"` // fixed number; 0 means tuned
	MaxProbes  int           `json:"max_probes"`
	Solver     string        `json:"solver"`
}

// Defaults of the plan. A step of 0.8 gives two effective draws for three
// gradients and takes the shape of the posterior mostly from the gradient;
// h = 1 would be near a Laplace approximation. A step ε = 1 of Leimkuhler and
// Matthews moves by half of C·g as well, one effective draw for four gradients.
const (
	DefaultStep    = 0.8
	DefaultEpsilon = 1.0
	minProbes      = 4
	maxProbes      = 64
	fisherWarmup   = 50
	denseWarmup    = 1000
)

// NewPlan returns the plan of a specification for a model with the named
// parameters.
func NewPlan(s *job.Spec, names []string) Plan {
	p := Plan{
		Method: s.Sampler.Method, Names: names, Chains: s.Sampler.Chains, Checkpoint: s.Sampler.Checkpoint,
		Draws: s.Sampler.Draws, MaxDraws: s.Stop.MaxDraws, RHat: s.Stop.RHat, ESS: s.Stop.ESS,
		MaxTime: time.Duration(s.Stop.MaxTime), Seed: s.Seed,
		Step: s.Sampler.Step.Or(defaultStep(s.Sampler.Method)), Probes: s.Sampler.Probes.Or(0), MaxProbes: maxProbes, Solver: s.Solver.Method,
	}
	switch p.Method {
	case "fisher", "leimkuhler-matthews", "exact":
		p.Windows = windows(s.Sampler.Warmup.Or(fisherWarmup))
	case "cholesky":
		p.Windows = windows(s.Sampler.Warmup.Or(denseWarmup))
	}
	return p
}

func defaultStep(method string) float64 {
	if method == "leimkuhler-matthews" {
		return DefaultEpsilon
	}
	return DefaultStep
}

// windows cuts the warm-up into three windows, the first short: it begins at
// dispersed points and only serves to leave them.
func windows(total int) []int {
	if total < 10 {
		return []int{total}
	}
	first, second := total/10, 3*total/10
	return []int{first, second, total - first - second}
}

// Matched reports whether the sampler's step is matched to the noise of the
// gradient, which then is measured.
func (p *Plan) Matched() bool { return p.Method == "fisher" || p.Method == "leimkuhler-matthews" }

// Params returns the number of parameters p.
func (p *Plan) Params() int { return len(p.Names) }

// startSpread is how many posterior standard deviations the starting points
// scatter: more than one, so that R-hat can see chains that do not mix. SGLD as
// published starts from N(mode, M).
func (p *Plan) startSpread() float64 {
	if p.Method == "sgld" {
		return 1
	}
	return 2
}

// Starts returns the starting points of the chains, scattered around the mode
// with the posterior covariance there.
func (p *Plan) Starts(mode []float64, cov *mat.SymDense) ([][]float64, error) {
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		return nil, errors.New("the covariance at the mode is not positive definite")
	}
	var l mat.TriDense
	chol.LTo(&l)
	starts := make([][]float64, p.Chains)
	for c := range starts {
		z := mat.NewVecDense(p.Params(), nil)
		random.Normal(random.Key{Seed: p.Seed, Chain: c + 1}.Stream(random.Start, 0), z.RawVector().Data)
		z.MulVec(&l, z)
		starts[c] = make([]float64, p.Params())
		floats.AddScaledTo(starts[c], mode, p.startSpread(), z.RawVector().Data)
	}
	return starts, nil
}
