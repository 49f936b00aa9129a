// Package metropolis draws from a log density by independence Metropolis–Hastings and
// by importance sampling. Proposals are a list whose log densities were computed
// beforehand, anywhere and in any order; a chain is then a scan over arrays, and several
// chains, weights and normalising constants can be had from the same evaluations.
package metropolis

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/mixture"
)

// Proposals are independent draws of one distribution, with their log densities under the
// target, up to a constant, and under the distribution. A target of −∞ or NaN is never
// accepted.
type Proposals struct {
	X                [][]float64
	Target, Proposal []float64
}

// Propose draws count proposals, number i from stream(i); their targets are NaN, to be
// computed.
func Propose(m mixture.Distribution, count int, stream func(index int) *rand.Rand) *Proposals {
	p := &Proposals{X: make([][]float64, count), Target: make([]float64, count), Proposal: make([]float64, count)}
	for i := range p.X {
		p.X[i] = make([]float64, m.Dim())
		m.Draw(stream(i), p.X[i])
		p.Proposal[i] = m.LogDensity(p.X[i])
		p.Target[i] = math.NaN()
	}
	return p
}

// LogWeights returns the logs of the importance weights, target over proposal, −∞ where
// the target is not finite.
func (p *Proposals) LogWeights() []float64 {
	w := make([]float64, len(p.X))
	for i, t := range p.Target {
		w[i] = t - p.Proposal[i]
		if math.IsNaN(w[i]) || math.IsInf(t, 0) {
			w[i] = math.Inf(-1)
		}
	}
	return w
}

// Append adds the proposals of another list.
func (p *Proposals) Append(q *Proposals) {
	p.X, p.Target, p.Proposal = append(p.X, q.X...), append(p.Target, q.Target...), append(p.Proposal, q.Proposal...)
}

// Slice returns the proposals [lo,hi).
func (p *Proposals) Slice(lo, hi int) *Proposals {
	return &Proposals{p.X[lo:hi], p.Target[lo:hi], p.Proposal[lo:hi]}
}

// Scan runs a chain over proposals with the given log weights: it is at proposal
// state[i] after it has seen number i. It begins wherever the first proposal of positive
// density is; before that, its states are −1. rate is the mean probability of acceptance of
// what follows.
func Scan(logWeights []float64, r *rand.Rand) (state []int, rate float64) {
	state = make([]int, len(logWeights))
	at, current, seen := -1, math.Inf(-1), 0
	for i, w := range logWeights {
		u := math.Log(r.Float64()) // always drawn, so that streams do not depend on weights
		switch {
		case at < 0:
			if w > current {
				at, current = i, w
			}
		default:
			seen++
			accept := math.Min(0, w-current)
			rate += math.Exp(accept)
			if u < accept {
				at, current = i, w
			}
		}
		state[i] = at
	}
	return state, rate / float64(max(1, seen))
}

// LongestStay returns the most steps that a chain stood still: far above 1/rate it has
// come to where the proposals hardly reach, and the proposals should be fitted anew.
func LongestStay(state []int) int {
	longest, stay := 0, 0
	for i := range state {
		stay++
		if i == 0 || state[i] != state[i-1] {
			stay = 1
		}
		longest = max(longest, stay)
	}
	return longest
}
