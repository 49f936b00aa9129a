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
	wideShare     = 0.2 // of the proposals are from a mixture that reaches farther
	pilotKHat     = 0.6 // of a pilot that needs no other
	pilotESS      = 0.4 // of its proposals
	pilotPeaks    = 0.2 // of the pilot's proposals are from the peaks
	basisPoints   = 16  // whose solutions the quadratic term is computed from
	checkPoints   = 24
	valuePoints   = 4 // where an evaluation is a value without an error
	mostChecks    = 4 // in a row
	mostInflation = 3 // of errors that were stated, far from what was learnt from
	refineSample  = 2000
	deviations    = 64  // draws of the determinant's error
	deviationsAt  = 240 // draws of the posterior, where they are told
	valley        = 1   // nats between two modes, at least
	extraDraws    = 1.5 // times as many as are expected to suffice
	negligible    = 40  // nats below the usual weight, at which nothing is ever accepted
)

// drawing goes from the maxima to draws.
func (k *conductor) drawing(ctx context.Context) (*chains.Event, error) {
	switch proposed := k.count[proposeStage] > 0; {
	case proposed && k.last.Kind == tailStage:
		return k.reached(ctx)
	case proposed && (k.last.Kind == climbStage || k.last.Kind == curvatureStage):
		return k.searched(ctx)
	case proposed && k.costs.direct:
		return k.directly(ctx)
	case k.costs.direct:
		return k.adapting()
	case proposed && k.costs.exact:
		return k.exactly(ctx)
	case proposed:
		return k.sampling(ctx)
	}
	if k.count[learnStage] == 0 {
		return k.learningAround()
	}
	if e, err := k.looking(ctx); e != nil || err != nil {
		return e, err
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
			m, err := k.with(a.Fit, nil, learnPeaks)
			if err == nil {
				m, err = wider(m)
			}
			if err != nil {
				return nil, err
			}
			return k.learning(m), nil
		}
		if k.count[exploreStage] == 0 {
			return k.exploring(b, k.spread(a.Weighted))
		}
		m, err := k.with(a.Fit, a.Wide, pilotPeaks)
		if !k.short {
			m, err = k.reach(a)
		}
		if err != nil {
			return nil, err
		}
		return k.piloting(b, m, k.spread(a.Weighted))
	}
	return k.piloted(b)
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
	for len(out) < k.costs.basis && len(out) < len(likely) {
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

// refined returns proposals from a mixture that the learnt density has refined, unless nothing was learnt.
func (k *conductor) refined(b *density, m *mixture.Mixture) (mixture.Distribution, error) {
	d, err := k.proposals(m)
	if err != nil || k.costs.direct {
		return d, err
	}
	sample := make([][]float64, refineSample)
	rough := make([]float64, refineSample)
	k.env.Budget().NewLoop(func(_, i int) {
		sample[i] = make([]float64, d.Dim())
		d.Draw(k.stream(random.Learnt, 1<<21)(i), sample[i])
		rough[i] = k.logDensity(b, sample[i])
	}).Run(refineSample)
	return metropolis.Refine(d, func(x []float64) float64 { return k.logDensity(b, x) }, sample, rough), nil
}

// shared returns what the target's items share, with the mixture that is proposed from. begin
// holds the mark of a pilot stage that reaches, or, of each chain, which of the last pilot's proposals it begins at, and the log density
// of that under what is proposed from.
func (k *conductor) shared(m *mixture.Mixture, basis [][]float64, begin []float64) [][]float64 {
	how := []float64{bySolves, float64(len(basis))}
	if k.costs.exact {
		how, basis = []float64{byFactor, 0}, nil
	}
	out := append([][]float64{append(how, begin...), k.peaks[0].X}, basis...)
	for i := range m.Len() {
		c := m.Component(i)
		out = append(out, slices.Concat([]float64{c.Weight, c.Degrees}, c.Mean, chains.Flat(c.Scale)))
	}
	return out
}

// proposed returns the mixture of a stage's proposals and the basis of its items.
func proposed(s *chains.Stage, p int) (*mixture.Mixture, [][]float64, error) {
	if len(s.Shared) < 3 || len(s.Shared[0]) < 2 || len(s.Shared) < 3+int(s.Shared[0][1]) {
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

// propose returns a stage of the target at proposals [from,to) of each list, drawn from d,
// by the streams of a stage: its own, or that of the stage that it goes on with.
func (k *conductor) propose(b *density, kind string, d mixture.Distribution, shared [][]float64, stage, lists, from, to int) *chains.Event {
	usual := math.Inf(-1) // log weight
	for _, p := range k.peaks {
		if !k.costs.exact {
			usual = max(usual, k.logDensity(b, p.X)-d.LogDensity(p.X))
		}
	}
	points := make([][]float64, lists*(to-from))
	k.env.Budget().NewLoop(func(_, i int) {
		x := make([]float64, k.plan.Params())
		d.Draw(k.stream(random.Propose, stage<<12|i/(to-from))(from+i%(to-from)), x)
		log := d.LogDensity(x)
		enough := singular
		if !k.costs.exact {
			enough = k.enough(b, x, log+usual-negligible)
		}
		points[i] = append(x, enough, log)
	}).Run(len(points))
	return k.stage(kind, shared, k.batched(points, k.costs.target))
}

// proposing returns the first stage of the chains' proposals, enough for so many draws of each, after the pilot
// whose weighted proposals are w. Each chain begins at one of those, drawn by its weight.
func (k *conductor) proposing(b *density, m *mixture.Mixture, basis [][]float64, w *metropolis.Weighted, draws int) (*chains.Event, error) {
	d, err := k.refined(b, m)
	if err != nil {
		return nil, err
	}
	var begin []float64
	for c := range k.plan.Chains {
		i := pick(w.W, k.stream(random.Start, c+1)(0).Float64())
		begin = append(begin, float64(i), d.LogDensity(w.X[i]))
	}
	stage := 0
	if k.count[proposeStage] > 0 {
		stage = len(k.in.Stages) + 1
	}
	return k.propose(b, proposeStage, d, k.shared(m, basis, begin), stage, k.plan.Chains, 0, k.costs.thin*draws), nil
}

// proposingMore returns a stage of proposals as those of the chains so far, [from,to) of each.
func (k *conductor) proposingMore(ctx context.Context, c *run, from, to int) (*chains.Event, error) {
	var b *density
	var err error
	if !k.costs.direct {
		if b, err = k.learn(ctx, k.learnt[:k.before]); err != nil {
			return nil, err
		}
	}
	d, err := k.refined(b, c.mix)
	if err != nil {
		return nil, err
	}
	return k.propose(b, proposeStage, d, c.shared, c.stage, k.plan.Chains, k.costs.thin*from, k.costs.thin*to), nil
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
	d, err := k.refined(b, m)
	if err != nil {
		return nil, err
	}
	var mark []float64
	if !k.short && !k.costs.direct {
		mark = []float64{searches}
		if k.once {
			mark = []float64{reaching}
		}
	}
	n := k.costs.thin * pilotEach * k.plan.Params() * (1 + k.count[pilotStage])
	return k.propose(b, pilotStage, d, k.shared(m, basis, mark), len(k.in.Stages)+1, 1, 0, n), nil
}

// piloted fits the proposals to the target itself, as the last pilot stage came to it.
func (k *conductor) piloted(b *density) (*chains.Event, error) {
	m, basis, err := proposed(&k.last.Stage, k.plan.Params())
	if err != nil {
		return nil, err
	}
	list, err := k.targets(k.last, b)
	if err != nil {
		return nil, err
	}
	w, err := metropolis.Weigh(list)
	if err != nil {
		return nil, err
	}
	if (w.KHat <= pilotKHat || !k.short) && w.ESS >= pilotESS*float64(len(w.X)) {
		return k.proposing(b, m, basis, w, k.plan.Draws)
	}
	// The density has spoken: what is proposed is fitted to it.
	options := mixture.Options{Most: components, Starts: []*mixture.Mixture{m}, Stream: k.stream(random.Learnt, 1<<20+k.last.Number)}
	fit, err := mixture.Fit(w.X, w.W, options, k.env.Budget())
	if err != nil {
		fit = m // too few draws have a weight
	} else if wide := metropolis.Widen(list, metropolis.Wideness, options, k.env.Budget()); wide != nil {
		if fit, err = mixture.Join([]float64{1 - wideShare, wideShare}, fit, wide); err != nil {
			return nil, err
		}
	}
	if !k.short { // few pilots say little of tails
		if fit, err = mixture.Join([]float64{0.5, 0.5}, fit, m); err != nil {
			return nil, err
		}
	}
	if k.count[pilotStage] < mostPilots {
		return k.piloting(b, fit, basis)
	}
	return k.proposing(b, fit, basis, w, k.plan.Draws)
}

// targets returns the proposals of a stage with their log densities.
func (k *conductor) targets(s *chains.Staging, b *density) (*metropolis.Proposals, error) {
	p := k.plan.Params()
	out := &metropolis.Proposals{}
	exact := s.Shared[0][0] == byFactor
	for i, item := range s.Items {
		if len(s.Results[i]) != 2*len(item)/proposalSize(p) {
			return nil, errLength
		}
		j := 0
		for x := range slices.Chunk(item, proposalSize(p)) {
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
			out.X, out.Target, out.Proposal = append(out.X, psi), append(out.Target, target), append(out.Proposal, x[p+1])
			j++
		}
	}
	return out, nil
}

// sampling goes on once the proposals of the chains are chosen.
func (k *conductor) sampling(ctx context.Context) (*chains.Event, error) {
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	c, err := k.chains(b)
	if err != nil {
		return nil, err
	}
	misses, err := k.misses(c)
	switch {
	case err != nil:
		return nil, err
	case k.in.Drawn != nil && k.in.Drawn.Stages == len(k.in.Stages):
		return k.more(ctx, b, c)
	case misses:
		return k.missing(b, c)
	case k.last.Kind == proposeStage && k.in.Drawn != nil && len(k.fresh) > 0:
		return k.drawn(b, c)
	case k.last.Kind != checkStage:
		return k.checking(b, c), nil
	case k.checksInARow() == mostChecks:
		return k.drawn(b, c)
	}
	missed, err := k.missed(b)
	if err != nil || !missed {
		return k.drawn(b, c)
	}
	// Learn from what was missed, and draw again from the same proposals.
	if b, err = k.learn(ctx, slices.Concat(k.learnt, k.fresh)); err != nil {
		return nil, err
	}
	if c, err = k.chains(b); err != nil {
		return nil, err
	}
	return k.checking(b, c), nil
}

// exactly goes on once the proposals of the chains are chosen, if their densities are exact.
func (k *conductor) exactly(ctx context.Context) (*chains.Event, error) {
	c, err := k.chains(nil)
	if err != nil {
		return nil, err
	}
	if k.in.Drawn != nil && k.in.Drawn.Stages == len(k.in.Stages) {
		return k.more(ctx, nil, c)
	}
	misses, err := k.misses(c)
	if err != nil {
		return nil, err
	}
	if !misses {
		return k.drawn(nil, c)
	}
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	return k.missing(b, c)
}

// checksInARow returns how many of the last stages check.
func (k *conductor) checksInARow() int {
	n := 0
	for i := len(k.in.Stages) - 1; i >= 0 && k.in.Stages[i].Kind == checkStage; i-- {
		n++
	}
	return n
}

// missed reports whether fresh evaluations farther from what was learnt from than it reaches
// are elsewhere than the function is believed to be, by far: there it has run off.
func (k *conductor) missed(b *density) (bool, error) {
	var far []record
	for _, r := range k.fresh {
		if b.guard.Penalty(k.reduce.Point(r.psi)) > 0 {
			far = append(far, r)
		}
	}
	if len(far) == 0 {
		return false, nil
	}
	inflation, err := k.verify(b, far)
	return inflation > mostInflation, err
}

// run is what the chains came to.
type run struct {
	mix      *mixture.Mixture      // that was proposed from, refined
	shared   [][]float64           // of the stages that it was proposed in
	stage    int                   // the first of these, 0 if none was before them
	anew     int                   // how many times proposals were chosen anew
	list     *metropolis.Proposals // of all chains
	first    *metropolis.Proposals // those of them that were made at once, when what is proposed was chosen
	kHat     float64               // of their weights
	draws    [][][]float64
	logP     [][]float64
	accepted []int
}

// chains runs the chains over the proposals so far. Every thin-th state is a draw.
func (k *conductor) chains(b *density) (*run, error) {
	lists := make([]*metropolis.Proposals, k.plan.Chains)
	for c := range lists {
		lists[c] = &metropolis.Proposals{}
	}
	var out run
	var pilot *metropolis.Proposals
	for i := range k.in.Stages {
		s := &k.in.Stages[i]
		if s.Kind != pilotStage && s.Kind != proposeStage {
			continue
		}
		list, err := k.targets(s, b)
		if err != nil {
			return nil, err
		}
		if s.Kind == pilotStage {
			pilot = list
			continue
		}
		if !slices.EqualFunc(s.Shared, out.shared, slices.Equal) {
			if err := k.begin(&out, s, lists, pilot); err != nil {
				return nil, err
			}
			out.first = list
		}
		each := len(list.X) / k.plan.Chains
		for c := range k.plan.Chains {
			lists[c].Append(list.Slice(c*each, (c+1)*each))
		}
	}
	out.list = &metropolis.Proposals{}
	for c, list := range lists {
		out.list.Append(list.Slice(1, len(list.X)))
		r := random.Key{Seed: k.plan.Seed, Chain: c + 1}.Stream(random.Accept, 0)
		state, _ := metropolis.Scan(list.LogWeights(), r)
		var draws [][]float64
		var logP []float64
		accepted, last := 0, 0
		for i := k.costs.thin; i < len(state); i += k.costs.thin {
			at := state[i]
			if at < 0 {
				return nil, errors.New("no proposal has a density: the posterior is not where it was found to be")
			}
			if at != last {
				accepted, last = accepted+1, at
			}
			draws, logP = append(draws, list.X[at]), append(logP, list.Target[at])
		}
		out.draws, out.logP, out.accepted = append(out.draws, draws), append(out.logP, logP), append(out.accepted, accepted)
	}
	w, err := metropolis.Weigh(out.list)
	if err != nil {
		return nil, err
	}
	out.kHat = w.KHat
	return &out, nil
}

// begin begins the chains at the first stage of their proposals: each list with a proposal of the
// pilot.
func (k *conductor) begin(r *run, s *chains.Staging, lists []*metropolis.Proposals, pilot *metropolis.Proposals) error {
	if r.mix != nil {
		r.stage, r.anew = s.Number, r.anew+1
	}
	var err error
	if r.mix, _, err = proposed(&s.Stage, k.plan.Params()); err != nil {
		return err
	}
	r.shared = s.Shared
	begin := s.Shared[0][2:]
	if pilot == nil || len(begin) != 2*len(lists) {
		return errBegin
	}
	for c, list := range lists {
		i := int(begin[2*c])
		if i < 0 || i >= len(pilot.X) {
			return errBegin
		}
		*list = metropolis.Proposals{X: pilot.X[i : i+1 : i+1], Target: pilot.Target[i : i+1 : i+1], Proposal: begin[2*c+1 : 2*c+2 : 2*c+2]}
	}
	return nil
}

var errBegin = errors.New("a stage of proposals does not say where its chains begin")

// pick returns an index by weights of sum 1 and a uniform number.
func pick(weights []float64, u float64) int {
	for i, w := range weights {
		if u -= w; u < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// checks returns how many draws are checked at, beside half as many that are far away, and whether by values alone: by a
// factor these have no noise, so that of many rows fewer do.
func (k *conductor) checks() (count int, values bool) {
	if k.costs.factor && k.costs.many {
		return valuePoints, true
	}
	return checkPoints, false
}

// checking returns the stage that checks what was learnt: at some draws, and at those farthest
// from what it was learnt from.
func (k *conductor) checking(b *density, c *run) *chains.Event {
	count, values := k.checks()
	shared, flops := k.how(), k.costs.evaluation
	if values {
		shared[0], flops = []float64{byValue, 0}, flops/gradientValues
	}
	var points, reduced [][]float64
	all := slices.Concat(c.draws...)
	for _, x := range all {
		reduced = append(reduced, k.reduce.Point(x))
	}
	for _, i := range b.guard.Farthest(reduced, count/2) {
		points = append(points, all[i])
	}
	each := (count + len(c.draws) - 1) / len(c.draws)
	for _, draws := range c.draws {
		for i := range each {
			points = append(points, draws[(2*i+1)*len(draws)/(2*each)])
		}
	}
	return k.stage(checkStage, shared, k.batched(points, flops))
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
		inflation, err := k.verify(b, k.fresh)
		if err != nil {
			return nil, err
		}
		d.Inflation = inflation
	}
	if !k.short && !k.costs.direct {
		// Further proposals dilute what the first told of.
		for _, list := range []*metropolis.Proposals{c.first, c.list} {
			share, of, err := k.tail(list)
			if err != nil {
				return nil, err
			}
			if share > max(k.tolerable(), d.Tail) {
				d.Tail, d.TailOf = share, of
			}
		}
	}
	d.Modes = k.modes(b, c)
	return &chains.Event{Drawn: d}, nil
}

// verify returns the factor on the determinant's errors that fresh evaluations call for.
func (k *conductor) verify(b *density, records []record) (float64, error) {
	if len(records) == 0 {
		return 1, nil
	}
	var fresh []surrogate.Observation
	var spreads []surrogate.Spread
	main := k.peaks[0]
	white, err := surrogate.NewWhitening(main.X, main.cov)
	if err != nil {
		return 0, err
	}
	usual := usualVariance(records)
	for i := range records {
		r := &records[i]
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
	at := c.mix.LogDensity
	if b != nil {
		at = func(x []float64) float64 { return k.logDensity(b, x) }
	}
	of := modes.Merge(peaks, at, valley)
	count := slices.Max(of) + 1
	if count < 2 {
		return nil
	}
	all := slices.Concat(c.draws...)
	member := modes.Assign(all, nil, peaks, of)
	modes.Renumber(count, of, member)
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
func (k *conductor) more(ctx context.Context, b *density, c *run) (*chains.Event, error) {
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
	return k.proposingMore(ctx, c, n, to)
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
