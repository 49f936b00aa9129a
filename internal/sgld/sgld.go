package sgld

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// SGLD is stochastic gradient Langevin dynamics as Filippone and Engler (2015,
// section 2.1) run it:
//
//	ψ' = ψ + (ε_t/2)·M·ĝ + N(0,ε_t·M),  ε_t = a(b+t)^−γ,
//
// where ε is frozen once (ε_t/4)·λ_max(M^{1/2}VM^{1/2}) < Freeze, V being the
// sampling covariance of a batch of gradients. Draws count from there on.
type SGLD struct {
	A, B, Gamma float64
	Freeze      float64
	Batch       int
	m           *mat.SymDense
	root        *mat.TriDense // M^{1/2}, any factor
}

// NewSGLD returns the kernel with the metric m. It reports an error if that is not
// positive definite.
func NewSGLD(a, b, gamma, freeze float64, batch int, m *mat.SymDense) (*SGLD, error) {
	var chol mat.Cholesky
	if !chol.Factorize(m) {
		return nil, errIndefinite
	}
	root := mat.NewTriDense(m.SymmetricDim(), mat.Lower, nil)
	chol.LTo(root)
	return &SGLD{A: a, B: b, Gamma: gamma, Freeze: freeze, Batch: batch, m: m, root: root}, nil
}

// SGLDState is what a chain carries from step to step.
type SGLDState struct {
	Frozen float64 // ε once it is frozen, else 0
	// The batch of gradients that V is estimated from.
	Count int
	Mean  []float64
	M2    []float64 // p×p, sums of products of deviations
}

// Memory returns the state as numbers.
func (s *SGLDState) Memory() []float64 {
	return slices.Concat([]float64{s.Frozen, float64(s.Count)}, s.Mean, s.M2)
}

// ReadSGLDState returns the state of such numbers for p parameters, the zero state
// of none.
func ReadSGLDState(m []float64, p int) (*SGLDState, error) {
	if len(m) == 0 {
		return &SGLDState{}, nil
	}
	if len(m) < 2 || m[1] < 0 || len(m) != 2+p+p*p && (len(m) != 2 || m[1] != 0) {
		return nil, errors.New("the chain's memory is not that of SGLD")
	}
	s := &SGLDState{Frozen: m[0], Count: int(m[1])}
	if len(m) > 2 {
		s.Mean, s.M2 = slices.Clone(m[2:2+p]), slices.Clone(m[2+p:])
	}
	return s, nil
}

// Advance moves ψ by iteration t, counted from 1, along the gradient estimate g.
func (s *SGLD) Advance(psi, g []float64, t int, st *SGLDState, r *rand.Rand) {
	eps := st.Frozen
	if eps == 0 {
		eps = s.A * math.Pow(s.B+float64(t), -s.Gamma)
		s.monitor(g, eps, st)
	}
	p := len(psi)
	z := mat.NewVecDense(p, nil)
	for i := range p {
		z.SetVec(i, r.NormFloat64())
	}
	var drift, noise mat.VecDense
	drift.MulVec(s.m, mat.NewVecDense(p, g))
	noise.MulVec(s.root, z)
	for i := range psi {
		psi[i] += eps/2*drift.AtVec(i) + math.Sqrt(eps)*noise.AtVec(i)
	}
}

// monitor adds a gradient to the batch and, when it is full, tests whether the
// step may be frozen.
func (s *SGLD) monitor(g []float64, eps float64, st *SGLDState) {
	p := len(g)
	if st.Count == 0 {
		st.Mean, st.M2 = make([]float64, p), make([]float64, p*p)
	}
	st.Count++
	before := make([]float64, p)
	for i, x := range g {
		before[i] = x - st.Mean[i]
		st.Mean[i] += before[i] / float64(st.Count)
	}
	for i := range p {
		for j := range p {
			st.M2[i*p+j] += before[i] * (g[j] - st.Mean[j])
		}
	}
	if st.Count < s.Batch {
		return
	}
	v := mat.NewSymDense(p, nil)
	for i := range p {
		for j := i; j < p; j++ {
			v.SetSym(i, j, (st.M2[i*p+j]+st.M2[j*p+i])/2/float64(st.Count-1))
		}
	}
	st.Count = 0
	ratio, err := NoiseRatio(s.m, v)
	if err != nil {
		ratio = math.Inf(1)
	}
	if eps/4*ratio < s.Freeze {
		st.Frozen = eps
	}
}
