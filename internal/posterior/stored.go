package posterior

import (
	"context"
	"errors"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/evidence"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Evidence is what the log density of the data consists of at a ψ,
//
//	log p(y|ψ) = −½ log|K| − ½ yᵀK⁻¹y − ½ n log 2π,
//
// with the derivatives with respect to ψ.
type Evidence struct {
	LogDet, Quad         float64
	LogDetGrad, QuadGrad []float64 // nil if they were not asked for
}

// Stored evaluates the evidence exactly, from a stored factor of K (package evidence). It
// is not safe for concurrent use.
type Stored struct {
	problem  *Problem
	elements *cmvp.Elements
	evidence *evidence.Evidence
}

// NewStored returns the evidence of a problem. The memory is taken at once
// (evidence.Bytes).
func NewStored(p *Problem, b *parallel.Budget) *Stored {
	e := cmvp.NewElements(p.Inputs, p.Covariance, b)
	return &Stored{problem: p, elements: e, evidence: evidence.New(e, p.Targets(), b)}
}

// At returns the evidence at ψ, nil where K is numerically singular. The only error is
// that of ctx.
func (s *Stored) At(ctx context.Context, psi []float64, gradients bool) (*Evidence, error) {
	p := s.problem
	theta, noise := p.At(psi)
	s.elements.Set(p.Covariance.At(theta), noise)
	v, err := s.evidence.At(ctx, gradients)
	var singular *cholesky.NotPositive
	if errors.As(err, &singular) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := &Evidence{LogDet: v.LogDet, Quad: v.Quad}
	if !gradients {
		return out, nil
	}
	out.LogDetGrad, out.QuadGrad = v.LogDetGrad, v.QuadGrad
	for _, g := range p.noiseGradient(psi) {
		out.LogDetGrad = append(out.LogDetGrad, along(g, v.LogDetNoise))
		out.QuadGrad = append(out.QuadGrad, along(g, v.QuadNoise))
	}
	p.Params.Chain(psi, out.LogDetGrad)
	p.Params.Chain(psi, out.QuadGrad)
	return out, nil
}

// along returns Σ_i g_i·x_i for a diagonal which is one number for all rows, or one for
// each.
func along(g, x []float64) float64 {
	if len(g) == 1 {
		return g[0] * floats.Sum(x)
	}
	return floats.Dot(g, x)
}
