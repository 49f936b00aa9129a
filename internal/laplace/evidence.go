package laplace

import (
	"context"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// Evidence is log q(y|ψ), Laplace's approximation, by a factor of K that ends early (White).
type Evidence struct{ white *White }

// Constants of differences.
const (
	evidenceStep = 1e-3 // their half-width
	evidenceNear = 1e-8 // nats below the mode
	// severalNear is that of several latent functions, where steps by an expected curvature come near the mode by a factor each: the evidence
	// depends on how far it is to the first order.
	severalNear = 1e-14
)

// NewEvidence returns the evidence of a problem. It is computed best near ψ.
func NewEvidence(ctx context.Context, p *posterior.Problem, psi []float64) (*Evidence, error) {
	w, err := NewWhite(ctx, p, psi)
	if err != nil {
		return nil, err
	}
	w.within, w.last = evidenceNear, 0
	if p.Functions() > 1 {
		w.within = severalNear
	}
	return &Evidence{w}, nil
}

// Extra returns nil.
func (*Evidence) Extra() []float64 { return nil }

// At returns the evidence at ψ and its gradient by central differences, which is nil where there is none. The only error is that of ctx.
func (e *Evidence) At(ctx context.Context, psi []float64) (value float64, grad []float64, err error) {
	w := e.white
	pt, err := w.point(ctx, psi)
	if err != nil || pt.blocks == nil {
		return math.Inf(-1), nil, err
	}
	prior, _ := w.problem.LogPrior(psi)
	value = pt.value - prior
	_, w.near, _ = w.expand(pt.own, pt.function(pt.mode)) // what follows begins here
	grad = make([]float64, len(psi))
	for i := range psi {
		for _, sign := range []float64{1, -1} {
			x := slices.Clone(psi)
			x[i] += sign * evidenceStep
			if pt, err = w.point(ctx, x); err != nil || pt.blocks == nil {
				return math.Inf(-1), nil, err
			}
			prior, _ := w.problem.LogPrior(x)
			grad[i] += sign * (pt.value - prior) / (2 * evidenceStep)
		}
	}
	return value, grad, nil
}
