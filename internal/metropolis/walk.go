package metropolis

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/mixture"
)

// Density is a log density up to a constant, −∞ where there is none.
type Density func(ctx context.Context, x []float64) (float64, error)

// Walk is a chain that makes local moves between independent proposals, for where the
// latter are seldom accepted. A local move is normal around the state, with the scale of a
// component of the mixture that the state is likely to have come from.
type Walk struct {
	Target  Density
	Mixture *mixture.Mixture // that the proposals were drawn from
	Moves   int              // local ones after each independent proposal
	Scale   float64          // factor on the component's; 2.38/√p if 0 (Roberts and Rosenthal 2001)
}

// State is where a chain is.
type State struct {
	X        []float64
	Target   float64
	Proposal float64 // log density of the mixture
}

// Rates are probabilities of acceptance, summed, and how many they are.
type Rates struct {
	Independent, Local       int
	IndependentSum, LocalSum float64
}

// Advance makes independent proposal number i and the local moves after it, and returns
// the new state. r is the stream of this step.
func (w *Walk) Advance(ctx context.Context, s State, p *Proposals, i int, r *rand.Rand, rates *Rates) (State, error) {
	next := State{p.X[i], p.Target[i], p.Proposal[i]}
	a := acceptance(next.Target - s.Target + s.Proposal - next.Proposal)
	rates.Independent++
	rates.IndependentSum += a
	if r.Float64() < a {
		s = next
	}
	for range w.Moves {
		next, forth, back, err := w.move(ctx, s, r)
		if err != nil {
			return s, err
		}
		a := acceptance(next.Target - s.Target + back - forth)
		rates.Local++
		rates.LocalSum += a
		if r.Float64() < a {
			s = next
		}
	}
	return s, nil
}

// acceptance is the probability of a move with the given log ratio, 0 if that is NaN.
func acceptance(logRatio float64) float64 {
	if math.IsNaN(logRatio) {
		return 0
	}
	return math.Exp(math.Min(0, logRatio))
}

// move proposes a local move and returns the log densities of moving forth and back.
func (w *Walk) move(ctx context.Context, s State, r *rand.Rand) (next State, forth, back float64, err error) {
	k, p := w.Mixture.Len(), w.Mixture.Dim()
	scale := w.Scale
	if scale == 0 {
		scale = 2.38 / math.Sqrt(float64(p))
	}
	share := make([]float64, k)
	w.Mixture.Shares(share, s.X)
	u, c := r.Float64(), 0
	for ; c < k-1 && u >= share[c]; c++ {
		u -= share[c]
	}
	z, x := make([]float64, p), make([]float64, p)
	for i := range z {
		z[i] = scale * r.NormFloat64()
	}
	w.Mixture.Spread(c, x, z)
	floats.Add(x, s.X)
	target, err := w.Target(ctx, x)
	next = State{x, target, w.Mixture.LogDensity(x)}
	return next, w.logMove(s.X, x, scale), w.logMove(x, s.X, scale), err
}

// logMove returns the log density of a local move, up to a constant.
func (w *Walk) logMove(from, to []float64, scale float64) float64 {
	terms, at := make([]float64, w.Mixture.Len()), make([]float64, len(from))
	w.Mixture.Shares(terms, from)
	for c, share := range terms {
		// The scale's distance from its own centre, moved to where the move begins.
		floats.SubTo(at, to, from)
		floats.Add(at, w.Mixture.Component(c).Mean)
		distance, logDet := w.Mixture.Distance(c, at)
		terms[c] = math.Log(share) - distance/(2*scale*scale) - logDet/2
	}
	return floats.LogSumExp(terms)
}
