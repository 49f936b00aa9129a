package sampler

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/accuracy"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// Constants of learning.
const (
	// around is how far below the highest an evaluation's log density may be to be learnt
	// from, for each parameter: farther out the functions are of another shape.
	around      = 12
	maxRounds   = 8   // of learning
	growth      = 1.5 // from round to round
	widen       = 1.3 // points of learning are spread so much wider than the posterior
	firstSample = 400 // proposals to the surrogate in the first round of fitting to it
	sampleRound = 4
	components  = 6
	// priorShare is the share of proposals from the prior, which bound the weights, at least;
	// of few rows, whose posteriors have tails like the prior's, it is priorRows over the rows,
	// mostPrior at most.
	priorShare = 0.02
	priorRows  = 6
	mostPrior  = 0.2
)

// density is the log density as it was learnt: log|K| and unit·log yᵀK⁻¹y as functions of ψ.
type density struct {
	logDet, logQuad surrogate.Model
	unit            float64
	guard           *surrogate.Guard
	highest         float64
}

// learn fits the functions to the evaluations that are near enough.
func (k *conductor) learn(ctx context.Context, records []record) (*density, error) {
	records = slices.Concat(records, k.values)
	b := &density{highest: math.Inf(-1)}
	values := make([]float64, len(records))
	for i := range records {
		v, _ := records[i].density(k.env)
		if math.IsNaN(v) { // an estimate without a value: by the distance from the peaks
			v = k.laplace(records[i].psi)
		}
		values[i] = v
		b.highest = max(b.highest, v)
	}
	var near []record
	for i, r := range records {
		if values[i] > b.highest-around*float64(k.plan.Params()) {
			near = append(near, r)
		}
	}
	usual := usualVariance(near)
	for i, r := range near {
		if r.Probes > 0 {
			e := *r.Evidence
			e.LogDetVar = max(e.LogDetVar, usual)
			near[i].Evidence = &e
		}
	}
	var err error
	if b.logDet, b.guard, err = k.fit(ctx, k.reduce, near, logDetOf); err != nil {
		return nil, err
	}
	b.unit = k.unit(near)
	_, scale := reductions(k.model, b.unit)
	b.logQuad, _, err = k.fit(ctx, scale, near, func(r *record) (value, variance float64, grad, cov []float64, probes int) {
		return logQuadOf(r, b.unit)
	})
	return b, err
}

// unit returns the unit that log yᵀK⁻¹y is learnt in: where evaluations are exact, that in which an error is one of the log density of
// as much. In a unit of 1 the least error that a fit allows for (surrogate.Observation) would be one of yᵀK⁻¹y/2 thousandths: of 10,000 rows more
// than the valley between two modes is deep.
func (k *conductor) unit(records []record) float64 {
	if k.once || !k.costs.factor {
		return 1
	}
	best, unit := math.Inf(-1), 1.0
	for i := range records {
		if v, _ := records[i].density(k.env); v > best {
			best, unit = v, records[i].Quad/2
		}
	}
	return unit
}

// laplace returns the log density at ψ by the nearest peak's normal approximation.
func (k *conductor) laplace(psi []float64) float64 {
	best := math.Inf(-1)
	for _, p := range k.peaks {
		d := p.Distance(psi)
		best = max(best, p.Value-d*d/2)
	}
	return best
}

// logDetOf returns log|K| as it was estimated, with the noise of its value.
func logDetOf(r *record) (value, variance float64, grad, cov []float64, probes int) {
	return r.LogDet, r.LogDetVar, r.LogDetGrad, r.GradCov, r.Probes
}

// logQuadOf returns unit·log yᵀK⁻¹y.
func logQuadOf(r *record, unit float64) (value, variance float64, grad, cov []float64, probes int) {
	value = unit * math.Log(r.Quad)
	if r.QuadGrad == nil {
		return value, 0, nil, nil, 0
	}
	grad = slices.Clone(r.QuadGrad)
	for i := range grad {
		grad[i] *= unit / r.Quad
	}
	return value, 0, grad, nil, 0
}

// fit fits a function of the reduced parameters, and returns it as one of ψ.
func (k *conductor) fit(ctx context.Context, reduce *surrogate.Reduction, records []record,
	of func(*record) (value, variance float64, grad, cov []float64, probes int)) (surrogate.Model, *surrogate.Guard, error) {
	main := k.peaks[0]
	white, err := surrogate.NewWhitening(reduce.Point(main.X), reduce.Push(main.cov))
	if err != nil {
		return nil, nil, err
	}
	var obs []surrogate.Observation
	var spreads []surrogate.Spread
	var points [][]float64
	for i := range records {
		value, variance, grad, cov, probes := of(&records[i])
		if math.IsNaN(value) && grad == nil {
			continue
		}
		x := reduce.Point(records[i].psi)
		points = append(points, x)
		o := surrogate.Observation{X: x}
		if grad != nil {
			o.Grad = reduce.Gradient(grad)
		}
		if !math.IsNaN(value) {
			o.Value, o.ValueVar, o.HasValue = reduce.Value(records[i].psi, value), variance, true
		}
		if probes > 0 {
			spreads = append(spreads, surrogate.Spread{X: x, Cov: reduce.Covariance(chains.Symmetric(cov)), Probes: probes})
		}
		obs = append(obs, o)
	}
	if len(spreads) == len(obs) {
		noise, err := surrogate.PoolNoise(white, spreads)
		if err != nil {
			return nil, nil, err
		}
		for i := range obs {
			obs[i].GradCov = noise[i]
		}
	}
	m, _, err := surrogate.Choose(ctx, white, obs, k.env.Budget())
	if err != nil {
		return nil, nil, err
	}
	if !k.short {
		if spread, err := surrogate.Scatter(points); err == nil {
			white = spread
		}
	}
	return reduce.Lift(m), surrogate.NewGuard(white, points), nil
}

// usualVariance returns the mean variance of log|K| by probes. That of one estimate, of a few
// probes, is known to a factor only: where they happen to agree it would count too much.
func usualVariance(records []record) float64 {
	var sum, count float64
	for _, r := range records {
		if r.Evidence != nil && r.Probes > 0 {
			sum, count = sum+r.LogDetVar, count+1
		}
	}
	return sum / max(1, count)
}

// logDensity returns the learnt log density at ψ. Where nothing is known it
// is taken to be low.
func (k *conductor) logDensity(b *density, psi []float64) float64 {
	prior, _ := k.env.LogPrior(psi)
	v := prior - (b.logDet.Value(psi)+math.Exp(b.logQuad.Value(psi)/b.unit))/2
	if at := k.reduce.Point(psi); !k.short {
		v -= b.guard.Mild(at)
	} else {
		v -= b.guard.Penalty(at)
	}
	if math.IsNaN(v) || v > b.highest+float64(10+2*k.plan.Params()) { // the functions run off
		return math.Inf(-1)
	}
	return v
}

// sample draws from the learnt density: a mixture that is near it, and weighted draws.
func (k *conductor) sample(ctx context.Context, b *density, stage int) (*metropolis.Adapted, error) {
	first, err := k.first()
	if err != nil {
		return nil, err
	}
	wide, err := first.Defend(0.1, 2)
	if err != nil {
		return nil, err
	}
	a := metropolis.Adaptation{First: firstSample, Rounds: sampleRound, Most: components, Modes: first,
		Evaluate: func(ctx context.Context, p *metropolis.Proposals) error {
			k.env.Budget().NewLoop(func(_, i int) { p.Target[i] = k.logDensity(b, p.X[i]) }).Run(len(p.X))
			return ctx.Err()
		},
		Defend: func(m *mixture.Mixture) (mixture.Distribution, error) { return m.Defend(0.1, 2) },
		Stream: func(round, kind, i int) *rand.Rand {
			return random.Key{Seed: k.plan.Seed, Chain: stage<<4 | round<<1 | kind, Iter: i}.Stream(random.Learnt, 0)
		}}
	return a.Run(ctx, wide, k.env.Budget())
}

// shortfall returns the largest error, of a mean in sds and of an sd, relative, that not
// knowing the determinant leaves in the sample.
func (k *conductor) shortfall(b *density, a *metropolis.Adapted) float64 {
	if k.costs.exact {
		return 0
	}
	var estimates []accuracy.Estimate
	var sds []float64
	for i := range k.plan.Params() {
		x := make([]float64, len(a.Weighted.X))
		for t, psi := range a.Weighted.X {
			x[t] = psi[i]
		}
		d := accuracy.Draws{X: [][]float64{x}, Weights: a.Weighted.W}
		sd := d.SD()
		estimates = append(estimates, d.Mean(), sd)
		sds = append(sds, sd.Value, sd.Value)
	}
	worst := 0.0
	for i, e := range accuracy.Density(b.logDet, -0.5, [][][]float64{a.Weighted.X}, estimates) {
		worst = max(worst, e/sds[i])
	}
	return worst
}

// learning returns a round of learning, of points where the learnt posterior is.
func (k *conductor) learning(from mixture.Distribution) *chains.Event {
	round := k.count[learnStage]
	n := int(float64(k.costs.wanted) * math.Pow(growth, float64(round)))
	stage := len(k.in.Stages) + 1
	points := make([][]float64, n)
	for i := range points {
		points[i] = make([]float64, k.plan.Params())
		from.Draw(k.stream(random.Learn, stage)(i), points[i])
	}
	return k.stage(learnStage, k.learntBy(), k.batched(points, k.costs.learnt))
}

// wider returns a mixture with all its scales widened.
func wider(m *mixture.Mixture) (*mixture.Mixture, error) {
	var comps []mixture.Component
	for i := range m.Len() {
		c := m.Component(i)
		var scale mat.SymDense
		scale.ScaleSym(widen*widen, c.Scale)
		comps = append(comps, mixture.Component{Weight: c.Weight, Degrees: c.Degrees, Mean: c.Mean, Scale: &scale})
	}
	return mixture.New(comps)
}
