package posterior

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// Problem is a regression whose covariance parameters are to be inferred.
type Problem struct {
	Model  kernel.Model
	Priors Priors
	Inputs *cmvp.Inputs // n×d, standardised if the spec says so
	Y      []float64    // n targets
}

// Priors are the priors of σ, of every τ, and of λ.
type Priors struct{ Sigma, Tau, Lambda Prior }

// NewProblem checks that the sizes agree; it panics if they do not.
func NewProblem(m kernel.Model, priors Priors, in *cmvp.Inputs, y []float64) *Problem {
	if in.Len() != len(y) || in.Dim() != m.Dim {
		panic(fmt.Sprintf("posterior: %d×%d inputs, %d targets, a model of dimension %d", in.Len(), in.Dim(), len(y), m.Dim))
	}
	return &Problem{Model: m, Priors: priors, Inputs: in, Y: y}
}

// Subset returns the problem restricted to the given rows.
func (p *Problem) Subset(rows []int) *Problem {
	y := make([]float64, len(rows))
	for i, r := range rows {
		y[i] = p.Y[r]
	}
	return NewProblem(p.Model, p.Priors, p.Inputs.Select(rows), y)
}

// LogPrior returns the log prior density of ψ and its gradient.
func (p *Problem) LogPrior(psi []float64) (value float64, grad []float64) {
	grad = make([]float64, len(psi))
	last := len(psi) - 1
	for i, x := range psi {
		prior := p.Priors.Tau
		switch i {
		case 0:
			prior = p.Priors.Sigma
		case last:
			prior = p.Priors.Lambda
		}
		v, g := prior.LogDensity(x)
		value += v
		grad[i] = g
	}
	return value, grad
}
