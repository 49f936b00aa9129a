package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/accuracy"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Whole is a run of the sampler auto, as of a specification, on a constructed posterior.
type Whole struct {
	Rows            int    // that the posterior is said to be of: they decide how it is sampled
	Density         string // as auto.density of a specification
	Draws, MaxDraws int    // of each of four chains
	RHat, ESS       float64
	Error           float64 // 0 for any
}

// DefaultWhole are the defaults of specifications, on so few rows that the density is exact.
var DefaultWhole = Whole{Rows: 100, Density: "auto", Draws: 500, MaxDraws: 5000, RHat: 1.01, ESS: 400, Error: 0.05}

// Run samples a target once and compares. Seeds make runs independent.
func (w Whole) Run(ctx context.Context, t *Target, seed uint64, b *parallel.Budget) (*chains.Run, []Result, error) {
	m, err := sampler.ByName("auto")
	if err != nil {
		return nil, nil, err
	}
	auto, ok := m.(sampler.Stager)
	if !ok {
		return nil, nil, errors.New("study: the sampler auto has no stages")
	}
	section := m.Section().(*sampler.Auto)
	section.Density = w.Density
	o := &sampler.Options{Chains: numChains, Draws: w.Draws, Section: section}
	plan := chains.Plan{Method: m.Name(), Chains: numChains, Draws: w.Draws, MaxDraws: w.MaxDraws, Checkpoint: 60, RHat: w.RHat, ESS: w.ESS,
		Error: w.Error, Seed: seed, Staged: true, Lanes: sampler.MaxLanes}
	for i := range t.mean {
		plan.Names = append(plan.Names, fmt.Sprint(i+1))
	}
	env := &evaluator{Target: t, rows: w.Rows, budget: b}
	identity := make([]float64, len(t.mean)*len(t.mean))
	for i := range t.mean {
		identity[i*len(t.mean)+i] = 1
	}
	r := chains.New(plan)
	if err := r.Apply(chains.Event{Prepared: &chains.Prepared{Psi: t.mean, Cov: identity, Starts: slices.Repeat([][]float64{t.mean}, numChains)}}); err != nil {
		return nil, nil, err
	}
	var judge chains.Judge
	var dispatch chains.Dispatcher
	for r.Phase != chains.Done {
		var e *chains.Event
		if work, ok := r.Work(0); ok && work.Conduct != nil {
			e, err = auto.Conduct(ctx, env, o, &r.Plan, work.Conduct)
		} else if work, ok := dispatch.Next(r, 1, time.Time{}); ok {
			var numbers []float64
			if numbers, err = auto.Evaluate(ctx, env, o, &r.Plan, work.Evaluate); err == nil {
				e, err = work.Evaluate.Event(numbers, env.Cost())
			}
		} else {
			err = errors.New("study: a run that waits for nothing")
		}
		if err == nil {
			err = r.Apply(*e)
		}
		if err != nil {
			return nil, nil, err
		}
		if stop := judge.Decide(r, 0); stop != nil {
			if err := r.Apply(*stop); err != nil {
				return nil, nil, err
			}
		}
	}
	return r, t.held(r), nil
}

// held compares means and standard deviations, and the errors that the run states, with the truth.
func (t *Target) held(r *chains.Run) []Result {
	var out []Result
	for i := range t.mean {
		x := r.Column(i, r.MinDraws())
		mean, sd := stat.MeanStdDev(slices.Concat(x...), nil)
		e := r.Errors(x)
		out = append(out,
			Result{Name: fmt.Sprintf("mean %d", i+1), Estimate: mean, Truth: t.mean[i], Errors: accuracy.Errors{MonteCarlo: e.Mean * sd}},
			Result{Name: fmt.Sprintf("sd %d", i+1), Estimate: sd, Truth: t.sd[i], Errors: accuracy.Errors{MonteCarlo: e.SD * sd}})
	}
	return out
}

// evaluator takes a target for the posterior of some rows: the prior is wide, log|K| is unknown
// up to a constant, and yᵀK⁻¹y makes up for both.
type evaluator struct {
	*Target
	rows   int
	budget *parallel.Budget
	cost   chains.Cost
}

const (
	priorSD = 8
	// level is added to yᵀK⁻¹y, and taken from log|K|, so that the first is positive wherever proposals are.
	level = 1e4
)

func (e *evaluator) Model() sampler.Model {
	m := sampler.Model{Rows: e.rows, Inputs: 1}
	for i := range e.mean {
		m.Params = append(m.Params, param.Param{Symbol: fmt.Sprint(i + 1), Role: param.Rate})
	}
	return m
}

func (e *evaluator) Budget() *parallel.Budget { return e.budget }

func (e *evaluator) LogPrior(psi []float64) (float64, []float64) {
	var v float64
	grad := make([]float64, len(psi))
	for i, x := range psi {
		v -= x * x / (2 * priorSD * priorSD)
		grad[i] = -x / (priorSD * priorSD)
	}
	return v, grad
}

func (e *evaluator) logDet(psi []float64) float64 { return unknown(psi) - level }

func (e *evaluator) quad(psi []float64) float64 {
	prior, _ := e.LogPrior(psi)
	return 2*(prior-e.logDensity(psi)) - e.logDet(psi)
}

func (e *evaluator) Factor(_ context.Context, psi []float64, gradients bool) (*sampler.Evidence, error) {
	e.cost.Densities++
	v := &sampler.Evidence{LogDet: e.logDet(psi), Quad: e.quad(psi)}
	if math.IsInf(v.Quad, 0) || math.IsNaN(v.Quad) {
		return nil, nil
	}
	if gradients {
		central := &fd.Settings{Formula: fd.Central, Step: 1e-5}
		v.LogDetGrad, v.QuadGrad = fd.Gradient(nil, e.logDet, psi, central), fd.Gradient(nil, e.quad, psi, central)
	}
	return v, nil
}

// Subset has the posterior of a share of the data: what they say, in proportion.
func (e *evaluator) Subset(ctx context.Context, psi []float64, rows int) (*sampler.Evidence, error) {
	v, err := e.Factor(ctx, psi, true)
	if v == nil {
		return nil, err
	}
	share := float64(rows) / float64(e.rows)
	v.LogDet, v.Quad = share*v.LogDet, share*v.Quad
	floats.Scale(share, v.LogDetGrad)
	floats.Scale(share, v.QuadGrad)
	return v, nil
}

func (e *evaluator) Solves(ctx context.Context, psi, _ []float64, _ random.Key, _ int) (*sampler.Evidence, error) {
	return e.Factor(ctx, psi, true)
}

func (e *evaluator) Quadratic(_ context.Context, psi, _ []float64, _ [][]float64, _, _ float64) (value, bound float64, err error) {
	e.cost.Products++
	return min(e.quad(psi), math.MaxFloat64), 0, nil
}

func (e *evaluator) Cost() chains.Cost {
	c := e.cost
	e.cost = chains.Cost{}
	return c
}
