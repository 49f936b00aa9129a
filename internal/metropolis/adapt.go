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
	// Wide is a mixture fitted to the target to the power of wideness, which is of its shape but
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
	out := &Adapted{Proposal: first, All: &Proposals{}}
	var used []mixture.Distribution
	var sizes []float64
	size := a.First
	for round := range a.Rounds {
		list := Propose(out.Proposal, size, func(i int) *rand.Rand { return a.Stream(round, ProposalStream, i) })
		if err := a.Evaluate(ctx, list); err != nil {
			return nil, err
		}
		used, sizes = append(used, out.Proposal), append(sizes, float64(size))
		all := out.All
		all.X, all.Target = append(all.X, list.X...), append(all.Target, list.Target...)
		all.Proposal = make([]float64, len(all.X))
		b.NewLoop(func(_, i int) { all.Proposal[i] = together(used, sizes, all.X[i]) }).Run(len(all.X))
		var err error
		if out.Weighted, err = Weigh(all); err != nil {
			return nil, err
		}
		var starts []*mixture.Mixture
		for _, m := range []*mixture.Mixture{a.Modes, out.Fit} {
			if m != nil {
				starts = append(starts, m)
			}
		}
		out.Fit, err = mixture.Fit(all.X, out.Weighted.W, mixture.Options{Most: a.Most, Starts: starts,
			Stream: func(i int) *rand.Rand { return a.Stream(round, FitStream, i) }}, b)
		if err != nil {
			return nil, err
		}
		if out.Proposal, err = a.Defend(out.Fit); err != nil {
			return nil, err
		}
		size *= 2
	}
	out.Wide = Widen(out.All, mixture.Options{Most: a.Most, Starts: []*mixture.Mixture{out.Fit},
		Stream: func(i int) *rand.Rand { return a.Stream(a.Rounds, FitStream, i) }}, b)
	return out, nil
}

// wideness is the power of a target that wide proposals are fitted to: of a normal target they
// have 1.2 times the standard deviations.
const wideness = 0.7

// Widen returns a mixture fitted to the target of proposals to the power of wideness; nil if
// too few of them have a weight.
func Widen(p *Proposals, o mixture.Options, b *parallel.Budget) *mixture.Mixture {
	flat := &Proposals{X: p.X, Target: slices.Clone(p.Target), Proposal: p.Proposal}
	floats.Scale(wideness, flat.Target)
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

// together is the log density of draws of several distributions in the given numbers.
func together(ds []mixture.Distribution, sizes []float64, x []float64) float64 {
	logs := make([]float64, len(ds))
	for i, d := range ds {
		logs[i] = math.Log(sizes[i]) + d.LogDensity(x)
	}
	return floats.LogSumExp(logs) - math.Log(floats.Sum(sizes))
}
