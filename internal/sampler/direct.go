package sampler

import (
	"context"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Where a density costs so little that nothing is to be learnt, proposals are fitted to the density
// itself: pilots, each from a mixture fitted to all before, then the chains' proposals. Their weights,
// which are many, tell whether the proposals reach the posterior's tails. If they do not, the
// proposals are fitted anew to all that is known by then, and the chains begin anew.

const (
	leastPilots = 2 // the first is of Laplace's approximation, and seldom reaches tails
	// tailKHat is the k-hat of the chains' proposals from which on they are fitted anew, mostAnew
	// times at most.
	tailKHat = 0.5
	mostAnew = 2
)

// adapting goes from the maxima to the chains' proposals.
func (k *conductor) adapting() (*chains.Event, error) {
	if k.count[pilotStage] == 0 {
		first, err := k.first()
		if err != nil {
			return nil, err
		}
		return k.piloting(nil, first, nil)
	}
	m, _, err := proposed(&k.last.Stage, k.plan.Params())
	if err != nil {
		return nil, err
	}
	list, err := k.targets(k.last, nil)
	if err != nil {
		return nil, err
	}
	w, err := metropolis.Weigh(list)
	if err != nil {
		return nil, err
	}
	n := k.count[pilotStage]
	if n >= leastPilots && w.KHat <= pilotKHat && w.ESS >= pilotESS*float64(len(w.X)) {
		return k.proposing(nil, m, nil, w, k.plan.Draws)
	}
	all, err := k.pilots()
	if err != nil {
		return nil, err
	}
	fit, err := k.refit(m, all)
	if err != nil {
		return nil, err
	}
	if n < mostPilots+1 {
		return k.piloting(nil, fit, nil)
	}
	return k.proposing(nil, fit, nil, w, k.plan.Draws)
}

// pilots returns the proposals of all pilots, as draws of all their distributions together.
func (k *conductor) pilots() (*metropolis.Proposals, error) {
	var lists []*metropolis.Proposals
	var from []mixture.Distribution
	for i := range k.in.Stages {
		s := &k.in.Stages[i]
		if s.Kind != pilotStage {
			continue
		}
		list, err := k.targets(s, nil)
		if err != nil {
			return nil, err
		}
		m, _, err := proposed(&s.Stage, k.plan.Params())
		if err != nil {
			return nil, err
		}
		d, err := k.proposals(m)
		if err != nil {
			return nil, err
		}
		lists, from = append(lists, list), append(from, d)
	}
	return metropolis.Pool(lists, from, k.env.Budget()), nil
}

// refit returns the mixture that is fitted to proposals, with a wider one and the peaks beside. The last of the
// proposals were from last.
func (k *conductor) refit(last *mixture.Mixture, list *metropolis.Proposals) (*mixture.Mixture, error) {
	w, err := metropolis.Weigh(list)
	if err != nil {
		return nil, err
	}
	first, err := k.first()
	if err != nil {
		return nil, err
	}
	options := mixture.Options{Most: components, Starts: []*mixture.Mixture{first, last}, Stream: k.stream(random.Learnt, 1<<20+k.last.Number)}
	fit, err := mixture.Fit(w.X, w.W, options, k.env.Budget())
	if err != nil {
		return last, nil // too few of the proposals have a weight
	}
	options.Starts = []*mixture.Mixture{fit}
	return k.with(fit, metropolis.Widen(list, metropolis.Wideness, options, k.env.Budget()), pilotPeaks/2)
}

// directly goes on once the chains' proposals are chosen.
func (k *conductor) directly(ctx context.Context) (*chains.Event, error) {
	c, err := k.chains(nil)
	if err != nil {
		return nil, err
	}
	if k.in.Drawn != nil && k.in.Drawn.Stages == len(k.in.Stages) {
		return k.more(ctx, nil, c)
	}
	if c.anew < mostAnew && c.kHat > tailKHat {
		return k.anew(c)
	}
	return k.drawn(nil, c)
}

// anew returns the first stage of the chains' proposals as they are fitted to all so far.
func (k *conductor) anew(c *run) (*chains.Event, error) {
	m, err := k.refit(c.mix, c.list)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(k.in.Stages, func(s chains.Staging) bool { return s.Kind == proposeStage })
	pilot, err := k.targets(&k.in.Stages[i-1], nil)
	if err != nil {
		return nil, err
	}
	w, err := metropolis.Weigh(pilot)
	if err != nil {
		return nil, err
	}
	return k.proposing(nil, m, nil, w, len(c.draws[0]))
}
