package metropolis

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Adaptation finds proposals for a target: rounds of proposals, each from a mixture fitted to
// all that were evaluated before. A round's proposals can be evaluated anywhere; a round is a
// barrier.
type Adaptation struct {
	// Evaluate computes the targets of proposals.
	Evaluate func(ctx context.Context, p *Proposals) error
	// Defend makes proposals of a fit that reach beyond it: Mixture.Defend and Blend.
	Defend func(*mixture.Mixture) (mixture.Distribution, error)
	// Stream returns stream number i of a round, proposals and fits apart.
	Stream func(round, kind, i int) *rand.Rand
	First  int // proposals of the first round; each has twice those of the one before
	Rounds int
	Most   int              // components of a fit
	Modes  *mixture.Mixture // known modes, where fits begin too; nil: none
}

// Kinds of streams of a round.
const (
	ProposalStream = iota
	FitStream
)

// Adapted is what an adaptation came to.
type Adapted struct {
	Proposal mixture.Distribution
	Fit      *mixture.Mixture // in it
	// Wide is a mixture fitted to the target to the power of Wideness, which is of its shape but
	// reaches farther into its tails.
	Wide *mixture.Mixture
	// All are the proposals of all rounds, as draws of all rounds' distributions together
	// (Cornuet, Marin, Mira and Robert, Scandinavian Journal of Statistics 2012), and
	// Weighted are they with their weights.
	All      *Proposals
	Weighted *Weighted
}

// Run runs the rounds from a first distribution.
func (a Adaptation) Run(ctx context.Context, first mixture.Distribution, b *parallel.Budget) (*Adapted, error) {
	out := &Adapted{Proposal: first}
	var used []mixture.Distribution
	var lists []*Proposals
	size := a.First
	for round := range a.Rounds {
		list := Propose(out.Proposal, size, func(i int) *rand.Rand { return a.Stream(round, ProposalStream, i) })
		if err := a.Evaluate(ctx, list); err != nil {
			return nil, err
		}
		used, lists = append(used, out.Proposal), append(lists, list)
		out.All = Pool(lists, used, b)
		var err error
		if out.Weighted, err = Weigh(out.All); err != nil {
			return nil, err
		}
		var starts []*mixture.Mixture
		for _, m := range []*mixture.Mixture{a.Modes, out.Fit} {
			if m != nil {
				starts = append(starts, m)
			}
		}
		out.Fit, err = mixture.Fit(out.All.X, out.Weighted.W, mixture.Options{Most: a.Most, Starts: starts,
			Stream: func(i int) *rand.Rand { return a.Stream(round, FitStream, i) }}, b)
		if err != nil {
			return nil, err
		}
		if out.Proposal, err = a.Defend(out.Fit); err != nil {
			return nil, err
		}
		size *= 2
	}
	out.Wide = Widen(out.All, Wideness, mixture.Options{Most: a.Most, Starts: []*mixture.Mixture{out.Fit},
		Stream: func(i int) *rand.Rand { return a.Stream(a.Rounds, FitStream, i) }}, b)
	return out, nil
}

// Wideness is the power of a target that wide proposals are fitted to: of a normal target they
// have 1.2 times the standard deviations.
const Wideness = 0.7

// Widen returns a mixture fitted to the target of proposals to a power; nil if
// too few of them have a weight.
func Widen(p *Proposals, power float64, o mixture.Options, b *parallel.Budget) *mixture.Mixture {
	flat := &Proposals{X: p.X, Target: slices.Clone(p.Target), Proposal: p.Proposal}
	floats.Scale(power, flat.Target)
	w, err := Weigh(flat)
	if err != nil {
		return nil
	}
	m, err := mixture.Fit(p.X, w.W, o, b)
	if err != nil {
		return nil
	}
	return m
}

// Pool returns the proposals of several lists, each drawn from its distribution, as draws of all
// these together, in shares by the lists' lengths.
func Pool(lists []*Proposals, from []mixture.Distribution, b *parallel.Budget) *Proposals {
	all := &Proposals{}
	shares := make([]float64, len(lists))
	for i, l := range lists {
		all.Append(l)
		shares[i] = math.Log(float64(len(l.X)))
	}
	floats.AddConst(-math.Log(float64(len(all.X))), shares)
	b.NewLoop(func(_, i int) {
		logs := slices.Clone(shares)
		for j, d := range from {
			logs[j] += d.LogDensity(all.X[i])
		}
		all.Proposal[i] = floats.LogSumExp(logs)
	}).Run(len(all.X))
	return all
}
