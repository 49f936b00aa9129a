package sampler

import (
	"cmp"
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// A mode that no climb from the broad starts came to may yet show: a point on its slope has a density far beyond what the maxima that are
// known lead to expect. Once a density is learnt, and costs a product, points that are spread wider than the posterior is likely to be explore it; later the weights of
// proposals tell the same. Climbs begin at the points that stand for the most mass. Those that come to a known maximum end there: it is a
// tail. A maximum that is new has its curvature measured, is learnt around, and takes part in what is proposed.

const (
	// searches is the third number of Shared[0] of the pilot stages of a run that searches again, as reaching is.
	searches = 2
	// explorers are the points that explore, for each parameter; exploreScale is how many times as wide as at the peaks they are spread, with
	// exploreDegrees of freedom.
	explorers, exploreScale, exploreDegrees = 40, 3, 3
	// mostClimbs is how many climbs of another search there are at most, of many rows one.
	mostClimbs = 2
	// heavy is how many times the mean weight a proposal has at least where a climb begins. An explorer stands for leastMass at least, and
	// has a log density that is beyond by surprise more than that of the known maxima's normal approximations.
	heavy, leastMass, surprise = 5, 1e-3, 1
	// home is how far from a known maximum, in standard deviations, a climb has come home, and how far apart the starts are.
	home = 2
)

// exploring returns the stage that explores.
func (k *conductor) exploring(b *density, basis [][]float64) (*chains.Event, error) {
	var comps []mixture.Component
	for _, p := range k.peaks {
		var scale mat.SymDense
		scale.ScaleSym(exploreScale*exploreScale, p.cov)
		comps = append(comps, mixture.Component{Weight: 1, Degrees: exploreDegrees, Mean: p.X, Scale: &scale})
	}
	m, err := mixture.New(comps)
	if err != nil {
		return nil, err
	}
	return k.propose(b, exploreStage, m, k.shared(m, basis, nil), len(k.in.Stages)+1, 1, 0, explorers*k.plan.Params()), nil
}

// looking returns what follows from explorers and from a search of theirs, nil if nothing does.
func (k *conductor) looking(ctx context.Context) (*chains.Event, error) {
	switch {
	case k.last.Kind == exploreStage:
		return k.explored(ctx)
	case len(k.climbs) > 1 && (k.last.Kind == climbStage || k.last.Kind == curvatureStage):
		return k.searched(ctx)
	}
	return nil, nil
}

// explored returns the stage of the search that begins at explorers, nil if none stands out.
func (k *conductor) explored(ctx context.Context) (*chains.Event, error) {
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	list, err := k.targets(k.last, b)
	if err != nil {
		return nil, err
	}
	var masses []float64
	for _, p := range k.peaks {
		masses = append(masses, p.LogMass())
	}
	score := list.LogWeights()
	floats.AddConst(-floats.LogSumExp(masses)-math.Log(float64(len(score))), score)
	for i, x := range list.X {
		if !(list.Target[i] > k.laplace(x)+surprise) { // or NaN
			score[i] = math.Inf(-1)
		}
	}
	return k.again(list.X, score, math.Log(leastMass)), nil
}

// heaviest returns the stage of the search that begins at the heaviest proposals, nil if none stands out.
func (k *conductor) heaviest(list *metropolis.Proposals) (*chains.Event, error) {
	w, err := metropolis.Weigh(list)
	if err != nil {
		return nil, err
	}
	return k.again(w.X, w.W, heavy/float64(len(w.W))), nil
}

// again returns the stage of another search, from the points of the highest scores, away from the peaks and from each other; nil if none scores
// as much as is asked for. Its items share the known maxima, where climbs end.
func (k *conductor) again(points [][]float64, score []float64, least float64) *chains.Event {
	most := mostClimbs
	if k.costs.many {
		most = 1
	}
	order, minus := make([]int, len(score)), make([]float64, len(score))
	floats.SubTo(minus, minus, score)
	floats.ArgsortStable(minus, order)
	var starts [][]float64
	for _, i := range order {
		x := points[i]
		if len(starts) == most || score[i] < least {
			break
		}
		near := slices.ContainsFunc(k.peaks, func(p *peak) bool {
			return p.Distance(x) < home || slices.ContainsFunc(starts, func(s []float64) bool {
				at := *p.Maximum
				at.X = s
				return at.Distance(x) < home
			})
		})
		if !near {
			starts = append(starts, x)
		}
	}
	if len(starts) == 0 {
		return nil
	}
	if k.costs.many { // an evaluation costs so much that a climb begins with a guess: most come home
		for i, x := range starts {
			starts[i] = slices.Concat(x, chains.Flat(k.nearest(x).Info), []float64{1})
		}
	}
	shared := k.how()
	for _, p := range k.peaks {
		shared = append(shared, slices.Concat(p.X, chains.Flat(p.Info)))
	}
	return k.stage(climbStage, shared, starts)
}

// nearest returns the peak that a point is nearest to.
func (k *conductor) nearest(x []float64) *peak {
	return slices.MinFunc(k.peaks, func(a, b *peak) int { return cmp.Compare(a.Distance(x), b.Distance(x)) })
}

// known returns the maxima that the items of a search share.
func known(shared [][]float64, p int) []*maxima.Maximum {
	var out []*maxima.Maximum
	for _, x := range shared {
		if len(x) == p+p*p {
			out = append(out, &maxima.Maximum{X: x[:p], Info: chains.Symmetric(x[p:])})
		}
	}
	return out
}

// cameHome reports whether a climb is at a known maximum.
func cameHome(c *maxima.Climb, known []*maxima.Maximum) bool {
	at := c.Best()
	return at != nil && slices.ContainsFunc(known, func(m *maxima.Maximum) bool { return m.Distance(at.X) < home })
}

// searched goes on after another search, or after the curvature of what it found: with the density learnt around maxima that are new and,
// if chains have proposed, in the tail that weights tell of. It returns nil where there is nothing to learn.
func (k *conductor) searched(ctx context.Context) (*chains.Event, error) {
	if len(k.unmeasured) > 0 {
		return k.curving(k.unmeasured), nil
	}
	if k.count[proposeStage] == 0 {
		points, err := k.aroundNew()
		if err != nil || len(points) == 0 {
			return nil, err
		}
		return k.stage(tailStage, k.learntBy(), k.batched(points, k.costs.learnt)), nil
	}
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	c, err := k.chains(k.given(b))
	if err != nil {
		return nil, err
	}
	return k.tailing(b, c)
}

// given returns the learnt density if it is what chains are given.
func (k *conductor) given(b *density) *density {
	if k.costs.exact {
		return nil
	}
	return b
}

// aroundNew returns points around the maxima that a search has just found.
func (k *conductor) aroundNew() ([][]float64, error) {
	if k.last.Kind != curvatureStage {
		return nil, nil
	}
	var points [][]float64
	for i, p := range k.found {
		var scale mat.SymDense
		scale.ScaleSym(widen*widen, p.cov)
		m, err := mixture.New([]mixture.Component{{Weight: 1, Mean: p.X, Scale: &scale}})
		if err != nil {
			return nil, err
		}
		stream := k.stream(random.Learn, len(k.in.Stages)+1)
		for j := range k.costs.wanted {
			x := make([]float64, len(p.X))
			m.Draw(stream(i*k.costs.wanted+j), x)
			points = append(points, x)
		}
	}
	return points, nil
}

// add adds the maxima of another search that are new and may matter, measured by a stage if there is one.
func (k *conductor) add(climbs []*maxima.Climb, measured *chains.Staging) error {
	best := math.Inf(-1)
	for _, p := range k.peaks {
		best = max(best, p.LogMass())
	}
	k.found = nil
	for _, m := range maxima.Distinct(climbs, 0) {
		cov, ok := m.Covariance()
		near := slices.ContainsFunc(k.peaks, func(p *peak) bool { return min(p.Distance(m.X), m.Distance(p.X)) < 1 })
		if ok && !near && m.LogMass() > best-relevant {
			k.found = append(k.found, &peak{m, cov})
		}
	}
	if k.unmeasured = k.found; len(k.found) == 0 {
		return nil
	}
	if measured != nil {
		k.unmeasured = nil
		if err := k.curve(k.found, measured); err != nil {
			return err
		}
	}
	k.peaks = append(k.peaks, k.found...)
	k.byMass()
	return nil
}
