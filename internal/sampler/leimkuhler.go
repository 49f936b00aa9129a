package sampler

import (
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// leimkuhler is Leimkuhler and Matthews's dynamics (sgld.Leimkuhler). A step of 1
// moves by half of C·g, and gives one effective draw for four gradients.
type leimkuhler struct{}

var leimkuhlerDynamics = dynamics{
	allows: sgld.AllowsLeimkuhler,
	kernel: func(c, s *mat.SymDense, step float64) (func(psi, g []float64, key random.Key), float64, error) {
		k, err := sgld.NewLeimkuhler(c, s, step)
		if err != nil {
			return nil, 0, err
		}
		return func(psi, g []float64, key random.Key) {
			before := key
			before.Iter--
			k.Advance(psi, g, before.Stream(random.Noise, 0), key.Stream(random.Noise, 0))
		}, k.Budget, nil
	},
}

func (leimkuhler) Name() string                    { return "leimkuhler-matthews" }
func (leimkuhler) Section() any                    { return nil }
func (leimkuhler) Check(*Options) (string, string) { return "", "" }
func (leimkuhler) Windows(o *Options) []int        { return windows(or(o.Warmup, matchedWarmup)) }
func (leimkuhler) Statistics() []string            { return gradientStatistics }

func (leimkuhler) Needs() Needs {
	return Needs{Subset: denseSubset, Gradients: true, Probes: "whitened", Noise: true, MaxStep: 2, Step: 1}
}

func (leimkuhler) Adapt(r *chains.Run, s *chains.Settings, _ []float64) error {
	return leimkuhlerDynamics.adapt(r, s)
}

func (leimkuhler) Start(env Env, _ *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	return leimkuhlerDynamics.start(env, t, k)
}
