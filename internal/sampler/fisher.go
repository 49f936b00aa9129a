package sampler

import (
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// fisher is Fisher-matched Langevin dynamics (sgld.Fisher). A step of 0.8 gives two
// effective draws for three gradients and takes the shape of the posterior mostly
// from the gradient; a step of 1 would be near a Laplace approximation.
type fisher struct{}

var fisherDynamics = dynamics{
	allows: sgld.AllowsFisher,
	kernel: func(c, s *mat.SymDense, step float64) (func(psi, g []float64, key random.Key), float64, error) {
		k, err := sgld.NewFisher(c, s, step)
		if err != nil {
			return nil, 0, err
		}
		return func(psi, g []float64, key random.Key) { k.Advance(psi, g, key.Stream(random.Noise, 0)) }, k.Budget, nil
	},
}

func (fisher) Name() string                    { return "fisher" }
func (fisher) Section() any                    { return nil }
func (fisher) Check(*Options) (string, string) { return "", "" }
func (fisher) Windows(o *Options) []int        { return windows(or(o.Warmup, matchedWarmup)) }
func (fisher) Statistics() []string            { return gradientStatistics }

func (fisher) Needs() Needs {
	return Needs{Subset: denseSubset, Gradients: true, Probes: "whitened", Noise: true, MaxStep: 1, Step: 0.8}
}

func (fisher) Adapt(r *chains.Run, s *chains.Settings, _ []float64) error {
	return fisherDynamics.adapt(r, s)
}

func (fisher) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	return fisherDynamics.start(env, t, k)
}

// denseSubset is the number of rows of the first, dense search for the mode.
const denseSubset = 512
