package sampler

import (
	"context"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Proposals that are refined by a learnt density end where that ends: beyond its evaluations nothing is known of it, and it is
// taken to be low. Whether a posterior goes on there the exact weights of the proposals tell, if
// only some of these come there. Then the density is learnt at such proposals, what is proposed is fitted anew, and the
// chains begin anew.

const (
	// leastJudged is how many proposals tell of a tail: the largest of fewer terms is a large share of any sum.
	leastJudged = 1000
	// mostReaches is how many times the chains begin anew.
	mostReaches = 2
	// reaching is the third number of Shared[0] of the pilot stages of a run that looks for tails. Those of runs that an earlier version
	// has brought so far have none: they go on with proposals as theirs were, whose densities would else be others.
	reaching = 1
	// tailSample is how many draws, by weight, the points of a stage of tails are of.
	tailSample = 400
	// farPower is the power of the learnt density that a part of what is proposed is fitted to: of a normal one it has
	// 1.7 times the standard deviations. What it proposes where there is no density the refinement takes away.
	farPower = 0.35
	farShare = 0.2
)

// reach returns what is proposed of a sample of the learnt density: the fit to it, wider ones and the peaks.
func (k *conductor) reach(a *metropolis.Adapted) (*mixture.Mixture, error) {
	m, err := k.with(a.Fit, a.Wide, pilotPeaks)
	if err != nil {
		return nil, err
	}
	o := mixture.Options{Most: components, Starts: []*mixture.Mixture{a.Fit}, Stream: k.stream(random.Learnt, 1<<22+k.last.Number)}
	far := metropolis.Widen(a.All, farPower, o, k.env.Budget())
	if far == nil {
		return m, nil
	}
	return mixture.Join([]float64{1 - farShare, farShare}, m, far)
}

// tail returns the largest share of a parameter's variance that proposals may have missed, and the
// parameter; 0 of fewer proposals than tell of it. It is the share that the weight's tail holds of Σ w·u², u the parameter's
// distance from its mean: weights that are nearly constant have a tail, too, but it holds nothing.
func (k *conductor) tail(list *metropolis.Proposals) (share float64, of int, err error) {
	if len(list.X) < leastJudged {
		return 0, 0, nil
	}
	w, err := metropolis.Weigh(list)
	if err != nil {
		return 0, 0, err
	}
	terms := make([]float64, len(w.X))
	for i := range k.plan.Params() {
		var mean float64
		for j, x := range w.X {
			mean += w.W[j] * x[i]
		}
		for j, x := range w.X {
			terms[j] = math.Log(w.W[j]) + 2*math.Log(math.Abs(x[i]-mean))
		}
		if s := diagnostics.TailShare(terms); s > share {
			share, of = s, i
		}
	}
	return share, of, nil
}

// tolerable is the share of a variance that may be missed in a run that counts as converged: half of it is the error of the sd. Proposals
// are fitted anew at half of that.
func (k *conductor) tolerable() float64 { return 2 * k.wanted() }

// misses reports whether the chains' last proposals miss a tail that may yet be learnt.
func (k *conductor) misses(c *run) (bool, error) {
	if k.short || k.last.Kind != proposeStage || c.anew == mostReaches {
		return false, nil
	}
	share, _, err := k.tail(c.list)
	return share > k.tolerable()/2, err
}

// missing returns the stage that looks for what proposals miss: another search or, of a run that has none or if it has nowhere to
// begin, the density where they are heavy.
func (k *conductor) missing(b *density, c *run) (*chains.Event, error) {
	if !k.once {
		if e, err := k.heaviest(c.list); e != nil || err != nil {
			return e, err
		}
	}
	return k.tailing(b, c)
}

// tailing returns a stage that learns the density where weighted proposals are farthest from its evaluations, and around
// the maxima that a search has found.
func (k *conductor) tailing(b *density, c *run) (*chains.Event, error) {
	w, err := metropolis.Weigh(c.list)
	if err != nil {
		return nil, err
	}
	var drawn, reduced [][]float64
	sum := 0.5
	for i, x := range w.X { // a systematic sample
		before := math.Floor(sum)
		if sum += tailSample * w.W[i]; math.Floor(sum) > before {
			drawn, reduced = append(drawn, x), append(reduced, k.reduce.Point(x))
		}
	}
	points, err := k.aroundNew()
	if err != nil {
		return nil, err
	}
	for _, i := range b.guard.Scattered(reduced, k.costs.wanted) {
		points = append(points, drawn[i])
	}
	return k.stage(tailStage, k.learntBy(), k.batched(points, k.costs.learnt)), nil
}

// reached returns the first stage of proposals that are fitted anew, half of them to the density as it is learnt by
// then, half to the weighted proposals so far.
func (k *conductor) reached(ctx context.Context) (*chains.Event, error) {
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	c, err := k.chains(b)
	if err != nil {
		return nil, err
	}
	m, err := k.refit(c.mix, c.list)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(k.in.Stages, func(s chains.Staging) bool { return s.Kind == proposeStage })
	pilot, err := k.targets(&k.in.Stages[i-1], b)
	if err != nil {
		return nil, err
	}
	w, err := metropolis.Weigh(pilot)
	if err != nil {
		return nil, err
	}
	_, basis, err := proposed(&k.in.Stages[i].Stage, k.plan.Params())
	if err != nil {
		return nil, err
	}
	if a, err := k.sample(ctx, b, len(k.in.Stages)); err == nil {
		learnt, err := k.reach(a)
		if err != nil {
			return nil, err
		}
		if m, err = mixture.Join([]float64{0.5, 0.5}, learnt, m); err != nil {
			return nil, err
		}
		basis = k.spread(a.Weighted)
	} else if ctx.Err() != nil {
		return nil, err
	}
	return k.proposing(b, m, basis, w, len(c.draws[0]))
}
