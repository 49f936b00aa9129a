package sampler

import (
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/accuracy"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/modes"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// Constants of drawing.
const (
	defaultError  = 0.05 // that is aimed at if the specification asks for none
	learnPeaks    = 0.3  // of the points of a round of learning are at the peaks
	learningShare = 0.5  // of the error that not knowing the determinant may have
	pilotEach     = 60   // pilot proposals for each parameter
	mostPilots    = 3
	pilotKHat     = 0.6 // of a pilot that needs no other
	pilotESS      = 0.4 // of its proposals
	pilotPeaks    = 0.2 // of the pilot's proposals are from the peaks
	basisPoints   = 16  // whose solutions the quadratic term is computed from
	checkPoints   = 24
	deviations    = 64  // draws of the determinant's error
	deviationsAt  = 240 // draws of the posterior, where they are told
	valley        = 1   // nats between two modes, at least
	extraDraws    = 1.5 // times as many as are expected to suffice
	negligible    = 40  // nats below the usual weight, at which nothing is ever accepted
)

// drawing goes from the maxima to draws.
func (k *conductor) drawing(ctx context.Context) (*chains.Event, error) {
	if k.count[proposeStage] > 0 {
		return k.sampling(ctx)
	}
	if k.count[learnStage] == 0 {
		return k.learningAround()
	}
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	if k.count[pilotStage] == 0 {
		a, err := k.sample(ctx, b, len(k.in.Stages))
		if err != nil && ctx.Err() == nil && k.count[learnStage] < maxRounds {
			return k.learningAround() // the learnt density is nothing to draw from: more evaluations are needed
		}
		if err != nil {
			return nil, err
		}
		if k.count[learnStage] < maxRounds && k.shortfall(b, a) > learningShare*k.wanted() {
			m, err := k.with(a.Fit, learnPeaks)
			if err == nil {
				m, err = wider(m)
			}
			if err != nil {
				return nil, err
			}
			return k.learning(m), nil
		}
		m, err := k.with(a.Fit, pilotPeaks)
		if err != nil {
			return nil, err
		}
		return k.piloting(b, m, k.spread(a.Weighted))
	}
	return k.piloted(ctx, b)
}

// learningAround returns a round of learning around the peaks.
func (k *conductor) learningAround() (*chains.Event, error) {
	m, err := k.first()
	if err == nil {
		m, err = wider(m)
	}
	if err != nil {
		return nil, err
	}
	return k.learning(m), nil
}

// wanted returns the error that is aimed at.
func (k *conductor) wanted() float64 { return or(k.plan.Error, defaultError) }

// spread returns some of the draws, far apart: the first is that of the largest weight.
func (k *conductor) spread(w *metropolis.Weighted) [][]float64 {
	white, err := surrogate.NewWhitening(k.peaks[0].X, k.peaks[0].cov)
	if err != nil {
		return nil
	}
	order := make([]int, len(w.W))
	minus := make([]float64, len(w.W))
	for i, x := range w.W {
		minus[i] = -x
	}
	floats.Argsort(minus, order)
	likely := order[:max(1, len(order)/10)]
	var out, at [][]float64
	for len(out) < basisPoints && len(out) < len(likely) {
		best, most := 0, -1.0
		for _, i := range likely {
			nearest := math.Inf(1)
			z := white.Apply(w.X[i])
			for _, other := range at {
				nearest = min(nearest, floats.Distance(z, other, 2))
			}
			if len(at) == 0 || nearest > most {
				best, most = i, nearest
				if len(at) == 0 {
					break
				}
			}
		}
		out, at = append(out, w.X[best]), append(at, white.Apply(w.X[best]))
	}
	return out
}

// proposals returns what is proposed from a fit: that, wider tails, and the prior.
func (k *conductor) proposals(m *mixture.Mixture) (mixture.Distribution, error) {
	wide, err := m.Defend(0.1, 2)
	if err != nil {
		return nil, err
	}
	centre := k.peaks[0].X
	var logs []func(float64) float64
	for i := range centre { // the parameters are independent under the prior
		logs = append(logs, func(x float64) float64 {
			psi := slices.Clone(centre)
			psi[i] = x
			v, _ := k.env.LogPrior(psi)
			return v
		})
	}
	prior, err := mixture.NewIndependent(-40, 40, 8000, logs)
	if err != nil {
		return nil, err
	}
	return mixture.Blend(wide, prior, max(priorShare, min(mostPrior, priorRows/float64(k.model.Rows)))), nil
}

// shared returns what the target's items share, with the mixture that is proposed from.
func (k *conductor) shared(m *mixture.Mixture, basis [][]float64) [][]float64 {
	how := []float64{bySolves, float64(len(basis))}
	if k.costs.exact {
		how, basis = []float64{byFactor, 0}, nil
	}
	out := append([][]float64{how, k.peaks[0].X}, basis...)
	for i := range m.Len() {
		c := m.Component(i)
		out = append(out, slices.Concat([]float64{c.Weight, c.Degrees}, c.Mean, chains.Flat(c.Scale)))
	}
	return out
}

// proposed returns the mixture of a stage's proposals and the basis of its items.
func proposed(s *chains.Stage, p int) (*mixture.Mixture, [][]float64, error) {
	if len(s.Shared) < 3 || len(s.Shared[0]) != 2 || len(s.Shared) < 3+int(s.Shared[0][1]) {
		return nil, nil, errors.New("a stage of proposals does not say what they were drawn from")
	}
	from := 2 + int(s.Shared[0][1])
	var comps []mixture.Component
	for _, x := range s.Shared[from:] {
		if len(x) != 2+p+p*p {
			return nil, nil, errors.New("a stage of proposals does not say what they were drawn from")
		}
		comps = append(comps, mixture.Component{Weight: x[0], Degrees: x[1], Mean: x[2 : 2+p], Scale: chains.Symmetric(x[2+p:])})
	}
	m, err := mixture.New(comps)
	return m, s.Shared[2:from], err
}

// propose returns a stage of the target at proposals [from,to) of each list.
func (k *conductor) propose(b *density, kind string, m *mixture.Mixture, basis [][]float64, lists, from, to int) (*chains.Event, error) {
	d, err := k.proposals(m)
	if err != nil {
		return nil, err
	}
	stage := 0 // all stages of the chains go on with the same streams
	if kind == pilotStage {
		stage = len(k.in.Stages) + 1
	}
	usual := math.Inf(-1) // log weight
	for _, p := range k.peaks {
		usual = max(usual, k.logDensity(b, p.X)-d.LogDensity(p.X))
	}
	points := make([][]float64, lists*(to-from))
	k.env.Budget().NewLoop(func(_, i int) {
		x := make([]float64, k.plan.Params())
		d.Draw(k.stream(random.Propose, stage<<12|i/(to-from))(from+i%(to-from)), x)
		points[i] = append(x, k.enough(b, x, d.LogDensity(x)+usual-negligible))
	}).Run(len(points))
	return k.stage(kind, k.shared(m, basis), k.batched(points, k.costs.target)), nil
}

// enough returns the quadratic term from which on the log density at ψ is below a level.
func (k *conductor) enough(b *density, psi []float64, level float64) float64 {
	prior, _ := k.env.LogPrior(psi)
	if v := 2*(prior-level) - b.logDet.Value(psi); v < singular { // and not NaN
		return max(v, -singular)
	}
	return singular
}

// piloting returns a pilot stage.
func (k *conductor) piloting(b *density, m *mixture.Mixture, basis [][]float64) (*chains.Event, error) {
	n := pilotEach * k.plan.Params() * (1 + k.count[pilotStage])
	return k.propose(b, pilotStage, m, basis, 1, 0, n)
}

// piloted fits the proposals to the target itself, as the last pilot stage came to it.
func (k *conductor) piloted(ctx context.Context, b *density) (*chains.Event, error) {
	m, basis, w, err := k.pilot(k.last, b)
	if err != nil {
		return nil, err
	}
	if w.KHat <= pilotKHat && w.ESS >= pilotESS*float64(len(w.X)) {
		return k.propose(b, proposeStage, m, basis, k.plan.Chains, 0, k.plan.Draws)
	}
	// The density has spoken: what is proposed is fitted to it.
	fit, err := mixture.Fit(w.X, w.W, mixture.Options{Most: components, Starts: []*mixture.Mixture{m}, Stream: k.stream(random.Learnt, 1<<20+k.last.Number)}, k.env.Budget())
	if err != nil {
		fit = m // too few draws have a weight
	}
	if k.count[pilotStage] < mostPilots {
		return k.piloting(b, fit, basis)
	}
	return k.propose(b, proposeStage, fit, basis, k.plan.Chains, 0, k.plan.Draws)
}

// pilot returns the mixture and the basis of a pilot stage, and its weighted proposals.
func (k *conductor) pilot(s *chains.Staging, b *density) (*mixture.Mixture, [][]float64, *metropolis.Weighted, error) {
	m, basis, err := proposed(&s.Stage, k.plan.Params())
	if err != nil {
		return nil, nil, nil, err
	}
	list, err := k.targets(s, m, b)
	if err != nil {
		return nil, nil, nil, err
	}
	w, err := metropolis.Weigh(list)
	return m, basis, w, err
}

// targets returns the proposals of a stage with their log densities.
func (k *conductor) targets(s *chains.Staging, m *mixture.Mixture, b *density) (*metropolis.Proposals, error) {
	d, err := k.proposals(m)
	if err != nil {
		return nil, err
	}
	p := k.plan.Params()
	out := &metropolis.Proposals{}
	exact := s.Shared[0][0] == byFactor
	for i, item := range s.Items {
		if len(s.Results[i]) != 2*len(item)/(p+1) {
			return nil, errors.New("a stage of proposals has results of another length")
		}
		j := 0
		for x := range slices.Chunk(item, p+1) {
			psi := x[:p:p]
			prior, _ := k.env.LogPrior(psi)
			quad, logDet := s.Results[i][2*j], s.Results[i][2*j+1]
			if !exact {
				if bound := logDet; bound > 2*quadTolerance {
					quad += bound // it was enough, and is never to seem less than it is
				}
				logDet = b.logDet.Value(psi)
			}
			target := prior - (quad+logDet)/2
			if logDet >= singular || math.IsNaN(target) {
				target = math.Inf(-1)
			}
			out.X, out.Target, out.Proposal = append(out.X, psi), append(out.Target, target), append(out.Proposal, d.LogDensity(psi))
			j++
		}
	}
	return out, nil
}

// sampling goes on once the proposals of the chains are chosen.
func (k *conductor) sampling(ctx context.Context) (*chains.Event, error) {
	fitted := k.learnt[:len(k.learnt)-k.fresh()]
	b, err := k.learn(ctx, fitted)
	if err != nil {
		return nil, err
	}
	c, err := k.chains(b)
	if err != nil {
		return nil, err
	}
	switch {
	case k.last.Kind != checkStage && !k.costs.exact && !(k.last.Kind == proposeStage && k.in.Drawn != nil):
		return k.checking(c), nil
	case k.in.Drawn == nil || k.in.Drawn.Stages < len(k.in.Stages):
		return k.drawn(b, c)
	}
	return k.more(b, c)
}

// fresh returns how many of the evaluations are of a last stage that checks.
func (k *conductor) fresh() int {
	if k.last.Kind != checkStage {
		return 0
	}
	n := 0
	for _, x := range k.last.Results {
		records, _ := decodeRecords(x, k.plan.Params())
		for _, r := range records {
			if r.Evidence != nil {
				n++
			}
		}
	}
	return n
}

// run is what the chains came to.
type run struct {
	mix      *mixture.Mixture
	basis    [][]float64
	draws    [][][]float64
	logP     [][]float64
	accepted []int
}

// chains runs the chains over the proposals so far. Each begins at a proposal of the last
// pilot, drawn by its weight.
func (k *conductor) chains(b *density) (*run, error) {
	var lists []*metropolis.Proposals
	var out run
	var begin *metropolis.Proposals
	var weights []float64
	for i := range k.in.Stages {
		s := &k.in.Stages[i]
		if s.Kind != pilotStage && s.Kind != proposeStage {
			continue
		}
		m, basis, err := proposed(&s.Stage, k.plan.Params())
		if err != nil {
			return nil, err
		}
		list, err := k.targets(s, m, b)
		if err != nil {
			return nil, err
		}
		if s.Kind == pilotStage {
			w, err := metropolis.Weigh(list)
			if err != nil {
				return nil, err
			}
			begin, weights = list, w.W
			continue
		}
		out.mix, out.basis = m, basis
		each := len(list.X) / k.plan.Chains
		for c := range k.plan.Chains {
			if len(lists) <= c {
				lists = append(lists, &metropolis.Proposals{})
			}
			more := list.Slice(c*each, (c+1)*each)
			to := lists[c]
			to.X, to.Target, to.Proposal = append(to.X, more.X...), append(to.Target, more.Target...), append(to.Proposal, more.Proposal...)
		}
	}
	d, err := k.proposals(out.mix)
	if err != nil {
		return nil, err
	}
	for c, list := range lists {
		r := random.Key{Seed: k.plan.Seed, Chain: c + 1}.Stream(random.Accept, 0)
		start := pick(weights, r.Float64())
		all := &metropolis.Proposals{X: append([][]float64{begin.X[start]}, list.X...), Target: append([]float64{begin.Target[start]}, list.Target...),
			Proposal: append([]float64{d.LogDensity(begin.X[start])}, list.Proposal...)}
		state, _ := metropolis.Scan(all.LogWeights(), r)
		var draws [][]float64
		var logP []float64
		accepted := 0
		for i, at := range state[1:] {
			if at < 0 {
				return nil, errors.New("no proposal has a density: the posterior is not where it was found to be")
			}
			if at == i+1 {
				accepted++
			}
			draws, logP = append(draws, all.X[at]), append(logP, all.Target[at])
		}
		out.draws, out.logP, out.accepted = append(out.draws, draws), append(out.logP, logP), append(out.accepted, accepted)
	}
	return &out, nil
}

// pick returns an index by weights of sum 1 and a uniform number.
func pick(weights []float64, u float64) int {
	for i, w := range weights {
		if u -= w; u < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// checking returns the stage that checks what was learnt, at draws.
func (k *conductor) checking(c *run) *chains.Event {
	var points [][]float64
	each := (checkPoints + len(c.draws) - 1) / len(c.draws)
	for _, draws := range c.draws {
		for i := range each {
			points = append(points, draws[(2*i+1)*len(draws)/(2*each)])
		}
	}
	return k.stage(checkStage, k.how(), k.batched(points, k.costs.evaluation))
}

// drawn returns the draws with what is told of their errors.
func (k *conductor) drawn(b *density, c *run) (*chains.Event, error) {
	d := &chains.Drawn{Chains: c.draws, Accepted: c.accepted, LogP: c.logP, Every: 1, Inflation: 1, Stages: len(k.in.Stages)}
	if !k.costs.exact {
		total := len(c.draws) * len(c.draws[0])
		d.Every = (total + deviationsAt - 1) / deviationsAt
		var points [][]float64
		for _, draws := range c.draws {
			for t := 0; t < len(draws); t += d.Every {
				points = append(points, draws[t])
			}
		}
		d.Deviations = b.logDet.Deviations(points, deviations, k.stream(random.Deviation, len(k.in.Stages)))
		for _, x := range d.Deviations {
			floats.Scale(-0.5, x)
		}
		inflation, err := k.verify(b)
		if err != nil {
			return nil, err
		}
		d.Inflation = inflation
	}
	d.Modes = k.modes(b, c)
	return &chains.Event{Drawn: d}, nil
}

// verify returns the factor on the determinant's errors that the last fresh evaluations
// call for.
func (k *conductor) verify(b *density) (float64, error) {
	if len(k.checks) == 0 {
		return 1, nil
	}
	var fresh []surrogate.Observation
	var spreads []surrogate.Spread
	main := k.peaks[0]
	white, err := surrogate.NewWhitening(main.X, main.cov)
	if err != nil {
		return 0, err
	}
	usual := usualVariance(k.checks)
	for i := range k.checks {
		r := &k.checks[i]
		if r.Evidence == nil {
			continue
		}
		o := surrogate.Observation{X: r.psi, Grad: r.LogDetGrad}
		if !math.IsNaN(r.LogDet) {
			o.Value, o.ValueVar, o.HasValue = r.LogDet, max(r.LogDetVar, usual), true
		}
		if r.Probes > 0 {
			spreads = append(spreads, surrogate.Spread{X: r.psi, Cov: chains.Symmetric(r.GradCov), Probes: r.Probes})
		}
		fresh = append(fresh, o)
	}
	if len(spreads) == len(fresh) && len(fresh) > 0 {
		noise, err := surrogate.PoolNoise(white, spreads)
		if err != nil {
			return 0, err
		}
		for i := range fresh {
			fresh[i].GradCov = noise[i]
		}
	}
	check, err := surrogate.Verify(b.logDet, fresh)
	return math.Sqrt(check.Inflate), err
}

// modes returns the modes with their masses, the largest first.
func (k *conductor) modes(b *density, c *run) []chains.Mode {
	if len(k.peaks) < 2 {
		return nil
	}
	var peaks []modes.Peak
	for _, p := range k.peaks {
		peaks = append(peaks, modes.Peak{X: p.X, Value: p.Value, LogMass: p.LogMass(), Cov: p.cov})
	}
	of := modes.Merge(peaks, func(x []float64) float64 { return k.logDensity(b, x) }, valley)
	count := slices.Max(of) + 1
	if count < 2 {
		return nil
	}
	all := slices.Concat(c.draws...)
	member := modes.Assign(all, nil, peaks, of)
	byMode := make([][][]float64, count)
	var estimates []accuracy.Estimate
	for m := range count {
		var x [][]float64
		i := 0
		for _, draws := range c.draws {
			in := make([]float64, len(draws))
			for t := range draws {
				if member[i] == m {
					in[t] = 1
					byMode[m] = append(byMode[m], draws[t])
				}
				i++
			}
			x = append(x, in)
		}
		estimates = append(estimates, accuracy.Draws{X: x}.Mean())
	}
	density := make([]float64, count)
	if !k.costs.exact {
		density = accuracy.Density(b.logDet, -0.5, c.draws, estimates)
	}
	top := k.peaks[0].Value
	for _, p := range k.peaks {
		top = max(top, p.Value)
	}
	out := make([]chains.Mode, count)
	for m := range out {
		best := -1
		for i, p := range k.peaks {
			if of[i] != m {
				continue
			}
			out[m].Found += p.Found
			if best < 0 || p.Value > k.peaks[best].Value {
				best = i
			}
		}
		e := estimates[m].MonteCarlo()
		if math.IsNaN(e) {
			e = 0
		}
		out[m].Psi, out[m].Below = k.peaks[best].X, top-k.peaks[best].Value
		out[m].Mass, out[m].MassError = estimates[m].Value, math.Hypot(e, density[m])
	}
	for m := 1; m < count; m++ {
		if len(byMode[m]) > 1 && len(byMode[0]) > 1 {
			s := modes.Separations(byMode[0], byMode[m])[0]
			out[m].Parameter, out[m].Distance = s.Coordinate, s.Distance
		}
	}
	return out
}

// more returns what draws that are not good enough call for: a better determinant, or more
// draws.
func (k *conductor) more(b *density, c *run) (*chains.Event, error) {
	n := len(c.draws[0])
	carlo, density := k.errors(b, c)
	rounds := k.count[learnStage]
	if density > learningShare*k.wanted() && rounds < 2*maxRounds && density > carlo/4 {
		m, err := wider(c.mix)
		if err != nil {
			return nil, err
		}
		return k.learning(m), nil
	}
	left := math.Sqrt(max(k.wanted()*k.wanted()-density*density, k.wanted()*k.wanted()/4))
	want := extraDraws * float64(n) * (carlo / left) * (carlo / left)
	to := min(max(n+n/2, int(min(want, 4*float64(n))), k.in.Draws), max(k.in.MaxDraws, n+1))
	return k.propose(b, proposeStage, c.mix, c.basis, k.plan.Chains, n, to)
}

// errors returns the largest error, of a mean in sds or of an sd, relative, of the finite
// number of draws and of the determinant.
func (k *conductor) errors(b *density, c *run) (carlo, density float64) {
	var estimates []accuracy.Estimate
	var sds []float64
	for i := range k.plan.Params() {
		x := make([][]float64, len(c.draws))
		for j, draws := range c.draws {
			for _, psi := range draws {
				x[j] = append(x[j], psi[i])
			}
		}
		d := accuracy.Draws{X: x}
		sd := d.SD()
		for _, e := range []accuracy.Estimate{d.Mean(), sd} {
			carlo = max(carlo, e.MonteCarlo()/sd.Value)
			estimates, sds = append(estimates, e), append(sds, sd.Value)
		}
	}
	if k.costs.exact {
		return carlo, 0
	}
	inflation := 1.0
	if k.in.Drawn != nil {
		inflation = k.in.Drawn.Inflation
	}
	for i, e := range accuracy.Density(b.logDet, -0.5, c.draws, estimates) {
		density = max(density, inflation*e/sds[i])
	}
	return carlo, density
}
