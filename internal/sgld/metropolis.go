package sgld

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Metropolis is exact Metropolis–Hastings on a log density that can be
// evaluated: steps of a random walk, whose scale adapts during warm-up, mixed
// with independent proposals from a Student t around the pooled mean once
// there is one.
type Metropolis struct {
	Adapt bool // warm-up: the random walk's scale learns
	// Independent is the share of independent proposals among all, if there is a
	// mean; NewMetropolis sets it to two thirds.
	Independent float64
	density     Density
	cov         *mat.TriDense
	mean        []float64 // nil: random walk only
}

// Density returns the log density at ψ up to a constant, −∞ outside of its support.
type Density func(ctx context.Context, psi []float64) (float64, error)

// The proposals' constants: the t's degrees of freedom and its spread over the
// posterior's, wide enough for its tails; the random walk's target acceptance (Roberts and
// Rosenthal 2001, for few dimensions).
const (
	tDegrees       = 7
	tSpread        = 1.15
	walkAcceptance = 0.3
)

// NewMetropolis returns the kernel for proposals shaped like c, around mean if
// it is not nil. It reports an error if c is not positive definite. The density may
// be nil if the kernel is not to move.
func NewMetropolis(density Density, c *mat.SymDense, mean []float64, adapt bool) (*Metropolis, error) {
	var chol mat.Cholesky
	if !chol.Factorize(c) {
		return nil, errIndefinite
	}
	l := mat.NewTriDense(c.SymmetricDim(), mat.Lower, nil)
	chol.LTo(l)
	return &Metropolis{density: density, Adapt: adapt, Independent: 2.0 / 3, cov: l, mean: mean}, nil
}

var errIndefinite = errors.New("the metric is not positive definite")

// MetropolisState is what a chain carries from step to step.
type MetropolisState struct {
	LogP     float64 // at ψ
	LogScale float64 // of the random walk, relative to 2.38/√p
	Walks    int     // steps that LogScale has learnt from
}

// Memory returns the state as numbers.
func (s *MetropolisState) Memory() []float64 {
	return []float64{s.LogP, s.LogScale, float64(s.Walks)}
}

// ReadMetropolisState returns the state of such numbers, the zero state of none.
func ReadMetropolisState(m []float64) (*MetropolisState, error) {
	switch {
	case len(m) == 0:
		return &MetropolisState{}, nil
	case len(m) != 3 || m[2] < 0:
		return nil, errors.New("the chain's memory is not that of Metropolis–Hastings")
	}
	return &MetropolisState{LogP: m[0], LogScale: m[1], Walks: int(m[2])}, nil
}

// Start returns the state at ψ.
func (m *Metropolis) Start(ctx context.Context, psi []float64) (MetropolisState, error) {
	logP, err := m.density(ctx, psi)
	return MetropolisState{LogP: logP}, err
}

// Advance moves ψ by one step. It returns the probability with which the proposal
// was to be accepted, and whether it was. The only errors are those of the density,
// which leave ψ and the state undefined.
func (m *Metropolis) Advance(ctx context.Context, psi []float64, st *MetropolisState, r *rand.Rand) (acceptance float64, accepted bool, err error) {
	var prop []float64
	independent := m.mean != nil && r.Float64() < m.Independent
	var correction float64
	if independent {
		prop = m.Propose(r)
		correction = m.LogProposal(psi) - m.LogProposal(prop)
	} else {
		prop = make([]float64, len(psi))
		m.offset(prop, 2.38/math.Sqrt(float64(len(psi)))*math.Exp(st.LogScale), r)
		for i := range prop {
			prop[i] += psi[i]
		}
	}
	logP, err := m.density(ctx, prop)
	if err != nil {
		return 0, false, err
	}
	logAccept := math.Min(0, logP-st.LogP+correction)
	if accepted = math.Log(r.Float64()) < logAccept; accepted {
		copy(psi, prop)
		st.LogP = logP
	}
	if !independent && m.Adapt {
		st.Walks++
		st.LogScale += (math.Exp(logAccept) - walkAcceptance) / math.Sqrt(float64(st.Walks))
	}
	return math.Exp(logAccept), accepted, nil
}

// Propose draws an independent proposal. It panics if there is no mean.
func (m *Metropolis) Propose(r *rand.Rand) []float64 {
	prop := make([]float64, len(m.mean))
	m.offset(prop, tSpread*math.Sqrt(tDegrees/chiSquared(r, tDegrees)), r)
	for i := range prop {
		prop[i] += m.mean[i]
	}
	return prop
}

// Normal draws from the normal distribution with the kernel's mean and
// covariance. It panics if there is no mean.
func (m *Metropolis) Normal(r *rand.Rand) []float64 {
	x := make([]float64, len(m.mean))
	m.offset(x, 1, r)
	for i := range x {
		x[i] += m.mean[i]
	}
	return x
}

// offset sets dst to scale·L·z.
func (m *Metropolis) offset(dst []float64, scale float64, r *rand.Rand) {
	z := mat.NewVecDense(len(dst), nil)
	for i := range dst {
		z.SetVec(i, scale*r.NormFloat64())
	}
	v := mat.NewVecDense(len(dst), dst)
	v.MulVec(m.cov, z)
}

// LogProposal is the log density of an independent proposal, up to a constant.
func (m *Metropolis) LogProposal(psi []float64) float64 {
	d := slices.Clone(psi)
	for i := range d {
		d[i] -= m.mean[i]
	}
	v := mat.NewVecDense(len(d), d)
	_ = v.SolveVec(m.cov, v)
	q := mat.Dot(v, v) / (tSpread * tSpread)
	return -0.5 * (tDegrees + float64(len(d))) * math.Log1p(q/tDegrees)
}

// chiSquared draws from the chi-squared distribution with k degrees of freedom.
func chiSquared(r *rand.Rand, k int) float64 {
	var s float64
	for range k {
		z := r.NormFloat64()
		s += z * z
	}
	return s
}
