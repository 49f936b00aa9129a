package posterior

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// Model says what is to be inferred, whatever the data: the parameters ψ of a
// covariance and of a likelihood, and their priors.
type Model struct {
	Covariance *kernel.Covariance
	Likelihood likelihood.Likelihood
	// Params are the covariance's parameters, then the likelihood's, with their
	// priors: the order of ψ.
	Params param.List
	// Terms are those of the covariance that each of several latent functions has (likelihood.Several); nil if each has all.
	Terms [][]int
}

// NewModel returns a model whose parameters have the priors that prior returns.
func NewModel(c *kernel.Covariance, l likelihood.Likelihood, prior func(param.Param) param.Prior) Model {
	m := Model{Covariance: c, Likelihood: l}
	for _, list := range []param.List{c.Params(), l.Params()} {
		for _, p := range list {
			p.Prior = prior(p)
			m.Params = append(m.Params, p)
		}
	}
	return m
}

// Names returns the parameters' names in the order of ψ.
func (m *Model) Names() []string { return m.Params.Names() }

// NumParams returns the length of ψ.
func (m *Model) NumParams() int { return len(m.Params) }

// Natural returns θ at ψ: the covariance's parameters, and the likelihood's.
func (m *Model) Natural(psi []float64) (covariance, likelihood []float64) {
	theta, p := m.Params.Natural(psi), len(m.Covariance.Params())
	return theta[:p:p], theta[p:]
}

// Function returns the covariance function at ψ.
func (m *Model) Function(psi []float64) *kernel.Function {
	theta, _ := m.Natural(psi)
	return m.Covariance.At(theta)
}

// Functions returns the number of latent functions.
func (m *Model) Functions() int { return likelihood.Functions(m.Likelihood) }

// Part is the covariance of a latent function, and the places of its parameters among those of the whole.
type Part struct {
	Covariance *kernel.Covariance
	At         []int
}

// Part returns that of latent function c, from 0.
func (m *Model) Part(c int) Part {
	if m.Terms != nil {
		k, at := m.Covariance.Parts(m.Terms[c])
		return Part{k, at}
	}
	at := make([]int, len(m.Covariance.Params()))
	for i := range at {
		at[i] = i
	}
	return Part{m.Covariance, at}
}

// Function returns the covariance function of a part where θ is that of the whole.
func (p Part) Function(theta []float64) *kernel.Function {
	own := make([]float64, len(p.At))
	for i, at := range p.At {
		own[i] = theta[at]
	}
	return p.Covariance.At(own)
}

// LogPrior returns the log prior density of ψ and its gradient.
func (m *Model) LogPrior(psi []float64) (value float64, grad []float64) {
	return m.Params.LogPrior(psi)
}

// Problem is a model with data. What is computed with is Gaussian, given the
// state of the likelihood's augmentation: z = f + ε, ε ~ N(0, diag(noise)).
type Problem struct {
	Model
	Inputs *kernel.Inputs // n×d, standardised if the specification says so
	Y      []float64      // n targets
	State  []float64      // of the likelihood's augmentation; nil if it has none
	// Offset is what is known of the likelihood's argument in each row: the latent function is what is left of it. Nil for nothing.
	Offset []float64
	// Levels says of each input whether it is a category; nil if none is.
	Levels []bool
}

// NewProblem returns a problem whose auxiliary state, if its likelihood has one, is the one to start
// with. It panics if sizes do not
// agree, or if nothing makes the likelihood Gaussian and it is of one latent function.
func NewProblem(m Model, in *kernel.Inputs, y []float64) *Problem {
	if in.Len() != len(y) || in.Dim() != m.Covariance.Dim() {
		panic(fmt.Sprintf("posterior: %d×%d inputs, %d targets, a covariance over %d inputs", in.Len(), in.Dim(), len(y), m.Covariance.Dim()))
	}
	if m.Likelihood.Augmentation() == nil && m.Functions() == 1 {
		panic(fmt.Sprintf("posterior: nothing makes the %s likelihood Gaussian", m.Likelihood.Name()))
	}
	p := &Problem{Model: m, Inputs: in, Y: y}
	if a := m.Likelihood.Augmentation(); a != nil && a.Width() > 0 {
		p.State = make([]float64, len(y)*a.Width())
		a.Start(p.State, y)
	}
	return p
}

// WithState returns the problem with an auxiliary state of its own, equal to this one's.
func (p *Problem) WithState() *Problem {
	q := *p
	q.State = slices.Clone(p.State)
	return &q
}

// Refresh draws the auxiliary state anew, given ψ and the latent function.
func (p *Problem) Refresh(r *rand.Rand, psi, f []float64) {
	_, own := p.Natural(psi)
	p.Likelihood.Augmentation().Refresh(r, p.State, own, p.Y, p.whole(f))
}

// whole returns the likelihood's argument: the latent function with the offset.
func (p *Problem) whole(f []float64) []float64 {
	if p.Offset == nil {
		return f
	}
	return floats.AddTo(make([]float64, len(f)), f, p.Offset)
}

// Excess returns by how much the log density of the targets given ψ and the latent function is more than the likelihood's
// augmentation makes of it: 0 of one that is exact.
func (p *Problem) Excess(psi, f []float64) float64 {
	a, ok := p.Likelihood.Augmentation().(likelihood.Approximate)
	if !ok {
		return 0
	}
	_, own := p.Natural(psi)
	return a.Excess(own, p.Y, p.whole(f))
}

// Own returns how many of the parameters, the last ones of ψ, are the likelihood's.
func (p *Problem) Own() int { return len(p.Likelihood.Params()) }

// Held returns how many of the parameters, the last ones of ψ, are not to move while the auxiliary state
// is what it is.
func (p *Problem) Held() int { return p.Likelihood.Augmentation().Held() }

// Scales returns the places in ψ of the variances to which K_f is proportional, all of them together, where the scale
// of the latent function is not that of the targets: nil otherwise, and where the variance of a term is known.
func (p *Problem) Scales() []int {
	if p.Likelihood.Standardized() {
		return nil
	}
	var scales []int
	for _, t := range p.Covariance.Terms() {
		if t.Variance < 0 {
			return nil
		}
		if !slices.Contains(scales, t.Variance) {
			scales = append(scales, t.Variance)
		}
	}
	return scales
}

// LogDensityGiven returns log p(y|f,ψ) + log p(ψ): as a function of the likelihood's own parameters,
// the log density of these given the latent function f, whatever the auxiliary state is.
func (p *Problem) LogDensityGiven(psi, f []float64) float64 {
	sum, _ := p.LogPrior(psi)
	_, own := p.Natural(psi)
	f = p.whole(f)
	for i, y := range p.Y {
		v, _, _ := p.Likelihood.LogDensity(own, y, f[i])
		sum += v
	}
	return sum
}

// Expect returns the problem with the auxiliary state that is typical given ψ and the latent
// function.
func (p *Problem) Expect(psi, f []float64) *Problem {
	q := p.WithState()
	_, own := p.Natural(psi)
	p.Likelihood.Augmentation().Expect(q.State, own, p.Y, p.whole(f))
	return q
}

// Subset returns the problem restricted to the given rows.
func (p *Problem) Subset(rows []int) *Problem {
	width := likelihood.Width(p.Likelihood)
	y := make([]float64, len(rows))
	var state []float64
	for i, r := range rows {
		y[i] = p.Y[r]
		state = append(state, p.State[r*width:(r+1)*width]...)
	}
	m := p.Model
	if l, ok := m.Likelihood.(likelihood.ByRow); ok {
		m.Likelihood = l.Select(rows)
	}
	q := NewProblem(m, p.Inputs.Select(rows), y)
	q.State, q.Levels = state, p.Levels
	if p.Offset != nil {
		q.Offset = make([]float64, len(rows))
		for i, r := range rows {
			q.Offset[i] = p.Offset[r]
		}
	}
	return q
}

// Targets returns z less the offset, to read: y itself for Gaussian noise without one.
func (p *Problem) Targets() []float64 {
	z := p.Likelihood.Augmentation().Targets(p.Y, p.State)
	if p.Offset == nil {
		return z
	}
	return floats.SubTo(make([]float64, len(z)), z, p.Offset)
}

// At returns what K(ψ) is made of: the covariance's parameters, and the variances
// of the noise, one number for all rows or one for each.
func (p *Problem) At(psi []float64) (theta, noise []float64) {
	theta, own := p.Natural(psi)
	return theta, p.Likelihood.Augmentation().Noise(own, p.State)
}

// noiseGradient returns the derivatives of the noise at ψ, for each of the
// likelihood's parameters.
func (p *Problem) noiseGradient(psi []float64) [][]float64 {
	_, own := p.Natural(psi)
	return p.Likelihood.Augmentation().NoiseGradient(own, p.State)
}

// element returns that of a diagonal which is one number for all rows, or one for
// each.
func element(diagonal []float64, row int) float64 {
	if len(diagonal) == 1 {
		return diagonal[0]
	}
	return diagonal[row]
}

// least returns the least element of a diagonal.
func least(diagonal []float64) float64 { return slices.Min(diagonal) }
