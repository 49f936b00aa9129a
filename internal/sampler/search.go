package sampler

import (
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

// A mode that no climb from the broad starts came to may yet show: a proposal that comes to its slope, on which the density is
// learnt to be low or is not learnt at all, has a weight beyond all others. Some of what is proposed explores: it is wider than any posterior that is
// nearly normal, and not left out where the learnt density is low. Where weights say that the proposals miss something,
// climbs begin at the heaviest. Those that come to a known maximum end there: it is a tail. A maximum that is new has its curvature measured, is
// learnt around, and takes part in what is proposed.

const (
	// searches is the third number of Shared[0] of the pilot stages of a run that searches again, as reaching is.
	searches = 2
	// mostClimbs is how many climbs of another search there are at most.
	mostClimbs = 3
	// heavy is how many times the mean weight a proposal has at least where a climb begins.
	heavy = 5
	// home is how far from a known maximum, in standard deviations, a climb has come home, and how far apart the starts are.
	home = 2
	// exploreShare is the share that explores of what is refined, which makes about a tenth of it of what is proposed;
	// exploreScale is how many times as wide as at the peaks it is, with exploreDegrees of freedom.
	exploreShare, exploreScale, exploreDegrees = 0.3, 3, 3
)

// exploring returns a distribution that reaches far beyond the peaks.
func (k *conductor) exploring() (*mixture.Mixture, error) {
	var comps []mixture.Component
	for _, p := range k.peaks {
		var scale mat.SymDense
		scale.ScaleSym(exploreScale*exploreScale, p.cov)
		comps = append(comps, mixture.Component{Weight: 1, Degrees: exploreDegrees, Mean: p.X, Scale: &scale})
	}
	return mixture.New(comps)
}

// heaviest returns where to search again: the proposals of the largest weights, away from the peaks and from each other.
func (k *conductor) heaviest(list *metropolis.Proposals) ([][]float64, error) {
	w, err := metropolis.Weigh(list)
	if err != nil {
		return nil, err
	}
	order, minus := make([]int, len(w.W)), make([]float64, len(w.W))
	floats.SubTo(minus, minus, w.W)
	floats.ArgsortStable(minus, order)
	var starts [][]float64
	for _, i := range order {
		x := w.X[i]
		if len(starts) == mostClimbs || w.W[i]*float64(len(w.W)) < heavy {
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
	return starts, nil
}

// again returns the stage of another search, nil if there is nowhere to begin. Its items share the known maxima, where climbs end.
func (k *conductor) again(c *run) (*chains.Event, error) {
	starts, err := k.heaviest(c.list)
	if err != nil || len(starts) == 0 {
		return nil, err
	}
	shared := k.how()
	for _, p := range k.peaks {
		shared = append(shared, slices.Concat(p.X, chains.Flat(p.Info)))
	}
	return k.stage(climbStage, shared, starts), nil
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

// searched goes on after another search, or after the curvature of what it found: with the density learnt in the tail that weights tell of, and
// around maxima that are new.
func (k *conductor) searched(ctx context.Context) (*chains.Event, error) {
	if len(k.unmeasured) > 0 {
		return k.curving(k.unmeasured), nil
	}
	b, err := k.learn(ctx, k.learnt)
	if err != nil {
		return nil, err
	}
	var c *run
	if k.costs.exact {
		c, err = k.chains(nil)
	} else {
		c, err = k.chains(b)
	}
	if err != nil {
		return nil, err
	}
	return k.tailing(b, c)
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
