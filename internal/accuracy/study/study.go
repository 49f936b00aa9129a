package study

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/accuracy"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// Config says how a run goes.
type Config struct {
	Gradients int     // from which L is learned
	Probes    int     // of a gradient
	Noise     float64 // standard deviation of one probe, in units of the posterior's own
	Fresh     int     // gradients that the model is verified by
	Draws     int     // of all chains
	Known     bool    // L is not learned but known: the error of the draws alone
}

// Default is a run in which the error of L and that of the draws are about as large.
var Default = Config{Gradients: 120, Probes: 8, Noise: 2, Fresh: 30, Draws: 2000}

// Result is an estimate with its error and the truth.
type Result struct {
	Name            string // such as "mean 1"
	Estimate, Truth float64
	Errors          accuracy.Errors
	estimate        accuracy.Estimate
}

// Z is the true error over the stated one.
func (r Result) Z() float64 { return (r.Estimate - r.Truth) / r.Errors.Total() }

// Run learns, draws and states errors once. Seeds make runs independent.
func Run(ctx context.Context, t *Target, c Config, seed uint64, b *parallel.Budget) ([]Result, error) {
	r := &run{Target: t, Config: c, budget: b, stream: func(kind, i int) *rand.Rand {
		return random.Key{Seed: seed, Chain: kind, Iter: i}.Stream(random.Start, 0)
	}}
	if c.Known {
		draws, err := r.draw(ctx, unknown)
		return r.compare(draws), err
	}
	model, inflate, err := r.learn(ctx)
	if err != nil {
		return nil, err
	}
	draws, err := r.draw(ctx, model.Value)
	if err != nil {
		return nil, err
	}
	results := r.compare(draws)
	var estimates []accuracy.Estimate
	for _, e := range results {
		estimates = append(estimates, e.estimate)
	}
	for q, e := range accuracy.Density(model, -0.5, draws, estimates) {
		results[q].Errors.Density = e * math.Sqrt(inflate)
	}
	return results, nil
}

type run struct {
	*Target
	Config
	budget *parallel.Budget
	stream func(kind, i int) *rand.Rand
}

// Kinds of streams.
const (
	designs = iota
	probes
	chainStreams
	rounds // and those that follow
)

// learn returns a model of L and the factor on its variances that fresh gradients ask for.
func (r *run) learn(ctx context.Context) (surrogate.Model, float64, error) {
	rough, err := mixture.New(r.rough)
	if err != nil {
		return nil, 0, err
	}
	mean, cov := rough.Moments()
	w, err := surrogate.NewWhitening(mean, cov)
	if err != nil {
		return nil, 0, err
	}
	var chol mat.Cholesky
	chol.Factorize(cov)
	var inv mat.SymDense
	if err := chol.InverseTo(&inv); err != nil {
		return nil, 0, err
	}
	var root mat.TriDense
	chol.Factorize(&inv)
	chol.LTo(&root) // of the noise of a gradient that is white in units of the posterior
	var obs []surrogate.Observation
	var spreads []surrogate.Spread
	for i := range r.Gradients + r.Fresh {
		x := make([]float64, len(mean))
		rough.Draw(r.stream(designs, i), x)
		grad := fd.Gradient(nil, unknown, x, &fd.Settings{Formula: fd.Central, Step: 1e-5})
		o, s := r.observe(x, grad, &root, r.stream(probes, i))
		obs, spreads = append(obs, o), append(spreads, s)
	}
	noise, err := surrogate.PoolNoise(w, spreads)
	if err != nil {
		return nil, 0, err
	}
	for i := range obs {
		obs[i].GradCov = noise[i]
	}
	model, _, err := surrogate.Choose(ctx, w, obs[:r.Gradients], r.budget)
	if err != nil {
		return nil, 0, err
	}
	check, err := surrogate.Verify(model, obs[r.Gradients:])
	return model, check.Inflate, err
}

// observe is the mean of probes of a gradient, and their spread.
func (r *run) observe(x, grad []float64, root *mat.TriDense, rnd *rand.Rand) (surrogate.Observation, surrogate.Spread) {
	p := len(x)
	o := surrogate.Observation{X: x, Grad: make([]float64, p)}
	s := surrogate.Spread{X: x, Probes: r.Probes, Cov: mat.NewSymDense(p, nil)}
	var each []*mat.VecDense
	for range r.Probes {
		z, e := mat.NewVecDense(p, nil), mat.NewVecDense(p, nil)
		for k := range p {
			z.SetVec(k, r.Noise*rnd.NormFloat64())
		}
		e.MulVec(root, z)
		each = append(each, e)
		floats.AddScaled(o.Grad, 1/float64(r.Probes), e.RawVector().Data)
	}
	for _, e := range each {
		floats.Sub(e.RawVector().Data, o.Grad)
		s.Cov.SymRankOne(s.Cov, 1/float64(r.Probes-1), e)
	}
	floats.Add(o.Grad, grad)
	return o, s
}

const numChains = 4

// draw returns the draws of independence chains on the density with L as the model has it.
func (r *run) draw(ctx context.Context, logDet func(x []float64) float64) ([][][]float64, error) {
	evaluate := func(_ context.Context, p *metropolis.Proposals) error {
		r.budget.NewLoop(func(_, i int) {
			if p.Target[i] = -(r.known(p.X[i]) + logDet(p.X[i])) / 2; math.IsInf(p.Target[i], 1) {
				p.Target[i] = math.Inf(-1) // L as the model has it runs off, far from the gradients
			}
		}).Run(len(p.X))
		return nil
	}
	rough, err := mixture.New(r.rough)
	if err != nil {
		return nil, err
	}
	a := metropolis.Adaptation{
		Evaluate: evaluate, First: 300, Rounds: 3,
		Defend: func(m *mixture.Mixture) (mixture.Distribution, error) { return m.Defend(0.1, 2) },
		Stream: func(round, kind, i int) *rand.Rand { return r.stream(rounds+2*round+kind, i) },
	}
	adapted, err := a.Run(ctx, rough, r.budget)
	if err != nil {
		return nil, err
	}
	list := metropolis.Propose(adapted.Proposal, r.Draws, func(i int) *rand.Rand { return r.stream(rounds+2*a.Rounds, i) })
	if err := evaluate(ctx, list); err != nil {
		return nil, err
	}
	draws := make([][][]float64, numChains)
	per := r.Draws / numChains
	for c := range draws {
		part := list.Slice(c*per, (c+1)*per)
		state, _ := metropolis.Scan(part.LogWeights(), r.stream(chainStreams, c))
		for _, at := range state {
			draws[c] = append(draws[c], part.X[max(at, 0)])
		}
	}
	return draws, nil
}

// compare returns the estimates with the errors of the draws, and truths.
func (r *run) compare(draws [][][]float64) []Result {
	var out []Result
	add := func(name string, e accuracy.Estimate, truth float64) {
		out = append(out, Result{Name: name, Estimate: e.Value, Truth: truth, estimate: e,
			Errors: accuracy.Errors{MonteCarlo: e.MonteCarlo()}})
	}
	column := func(of func(x []float64) float64) accuracy.Draws {
		d := accuracy.Draws{X: make([][]float64, len(draws))}
		for c := range draws {
			for _, x := range draws[c] {
				d.X[c] = append(d.X[c], of(x))
			}
		}
		return d
	}
	for i := range r.mean {
		d := column(func(x []float64) float64 { return x[i] })
		add(fmt.Sprintf("mean %d", i+1), d.Mean(), r.mean[i])
		add(fmt.Sprintf("sd %d", i+1), d.SD(), r.sd[i])
		for _, p := range []float64{0.05, 0.5, 0.95} {
			add(fmt.Sprintf("quantile %g of %d", p, i+1), d.Quantile(p), r.quantile(i, p))
		}
	}
	if r.second != nil {
		d := column(func(x []float64) float64 {
			if r.second(x) {
				return 1
			}
			return 0
		})
		add("mass of the second mode", d.Mean(), r.mass)
	}
	return out
}
