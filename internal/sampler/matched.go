package sampler

import (
	"context"
	"errors"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// Constants of the methods whose step is matched to the noise of the gradient.
const (
	matchedWarmup = 50
	minProbes     = 4
	// MaxProbes is the largest number of probes of a gradient that warm-up chooses.
	MaxProbes = 64
	// spreadEvery is how often the gradient's noise is measured once the settings
	// are frozen, to show that it has not changed.
	spreadEvery = 10
)

// dynamics is what Langevin dynamics with a step matched to the noise differ by.
type dynamics struct {
	// allows returns the largest noise ratio that a step takes.
	allows func(step float64) float64
	// kernel returns the transition kernel of a metric, a noise and a step, and what
	// it leaves of the noise budget.
	kernel func(c, s *mat.SymDense, step float64) (advance func(psi, g []float64, key random.Key), budget float64, err error)
}

// adapt fills in the probes and the step, and whether solves stop early.
func (d *dynamics) adapt(r *chains.Run, s *chains.Settings) error {
	noise := measured(r)
	if r.Plan.Solver == "auto" {
		if err := d.chooseSolver(r, s, noise); err != nil {
			return err
		}
	}
	return d.tune(&r.Plan, s, noise)
}

// measured returns the mean covariances of the gradients of the last window, or
// those at the mode.
func measured(r *chains.Run) chains.Stats {
	var sum chains.Stats
	for _, c := range r.Chains {
		sum.Add(c.Stats)
	}
	if sum.Spreads == 0 {
		return chains.Stats{Spreads: 1, ProbeCov: r.Prepared.ProbeCov, SolverCov: r.Prepared.SolverCov}
	}
	for _, x := range [][]float64{sum.ProbeCov, sum.SolverCov} {
		for i := range x {
			x[i] /= float64(sum.Spreads)
		}
	}
	if len(sum.SolverCov) == 0 { // solves have not stopped early yet
		sum.SolverCov = r.Prepared.SolverCov
	}
	return sum
}

// tune fills in the probes and the step.
func (d *dynamics) tune(p *chains.Plan, s *chains.Settings, noise chains.Stats) error {
	if len(noise.ProbeCov) == 0 {
		return errors.New("the noise of the gradient was not measured")
	}
	s.ProbeCov = noise.ProbeCov
	if s.Early {
		s.SolverCov = noise.SolverCov
	}
	lo, hi := minProbes, p.MaxProbes
	if p.Probes > 0 {
		lo, hi = p.Probes, p.Probes
	}
	var err error
	s.Probes, s.Step, err = sgld.Tune(s.Metric(), chains.Symmetric(s.ProbeCov), chains.Symmetric(s.SolverCov), d.allows, p.Step, lo, hi)
	if err != nil {
		return err
	}
	_, s.Budget, err = d.kernel(s.Metric(), noiseOf(s), s.Step)
	return err
}

// noiseOf returns the covariance of a gradient under the settings.
func noiseOf(s *chains.Settings) *mat.SymDense {
	noise := chains.Symmetric(s.ProbeCov)
	noise.ScaleSym(1/float64(s.Probes), noise)
	if w := chains.Symmetric(s.SolverCov); w != nil {
		noise.AddSym(noise, w)
	}
	return noise
}

// elementCost is what an element of K costs to evaluate, in units of what it
// costs to multiply it with one right-hand side.
const elementCost = 8

// chooseSolver decides whether solves stop early where that is left open. The
// first window solves to the tolerance, the second stops early; from the third
// on the solves stop early if the step that is wanted can be afforded with the
// noise that this adds, and the work for a gradient, more probes included, is
// less: numbers of products and covariances decide, never a clock.
func (d *dynamics) chooseSolver(r *chains.Run, s *chains.Settings, noise chains.Stats) error {
	p := &r.Plan
	if len(p.Windows) < 3 || s.Window == 0 {
		return nil
	}
	mean := float64(noise.Products) / float64(max(1, noise.Spreads))
	s.Plain = r.Settings.Plain
	switch s.Window {
	case 1:
		s.Plain, s.Early = mean, true
		return nil
	case 2:
		work := func(early bool, products float64) (work, step float64, err error) {
			t := *s
			t.Early = early
			err = d.tune(p, &t, noise)
			return products * (elementCost + 1 + float64(t.Probes)), t.Step, err
		}
		plain, h, err := work(false, s.Plain)
		if err != nil {
			return err
		}
		early, hEarly, err := work(true, mean)
		if err != nil {
			return err
		}
		s.Early = hEarly >= h && early < plain && noise.SolverCov != nil
	default:
		s.Early = r.Settings.Early
	}
	return nil
}

// start returns the step of the dynamics. The gradient's noise is measured
// throughout warm-up, and now and then after it.
func (d *dynamics) start(env Env, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	metric := t.Settings.Metric()
	advance, budget, err := d.kernel(metric, noiseOf(&t.Settings), t.Settings.Step)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key random.Key) (Outcome, error) {
		g, err := env.Gradient(ctx, Request{Psi: k.State.Psi, Key: key, Probes: t.Settings.Probes,
			Spread: t.Warmup || key.Iter%spreadEvery == 0, Metric: metric, Budget: budget})
		if err != nil {
			return Outcome{}, err
		}
		if t.Warmup && g.ProbeCov != nil {
			k.Stats.Add(statsOf(g))
		}
		k.Cost.Shortened += shorten(g.Value, metric)
		advance(k.State.Psi, g.Value, key)
		return Outcome{}, nil
	}, nil
}

// statsOf returns the statistics of one gradient whose noise was measured.
func statsOf(g *Gradient) chains.Stats {
	s := chains.Stats{Spreads: 1, Products: g.Products, ProbeCov: chains.Flat(g.ProbeCov)}
	if g.SolverCov != nil {
		s.SolverCov = chains.Flat(g.SolverCov)
	}
	return s
}
