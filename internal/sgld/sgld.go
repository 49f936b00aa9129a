package sgld

import (
	"math"
	"math/rand/v2"

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

// NewSGLD returns the kernel with the metric m, or false if it is not positive
// definite.
func NewSGLD(a, b, gamma, freeze float64, batch int, m *mat.SymDense) (*SGLD, bool) {
	var chol mat.Cholesky
	if !chol.Factorize(m) {
		return nil, false
	}
	root := mat.NewTriDense(m.SymmetricDim(), mat.Lower, nil)
	chol.LTo(root)
	return &SGLD{A: a, B: b, Gamma: gamma, Freeze: freeze, Batch: batch, m: m, root: root}, true
}

// SGLDState is what a chain carries from step to step.
type SGLDState struct {
	Frozen float64 `json:"frozen"` // ε once it is frozen, else 0
	// The batch of gradients that V is estimated from.
	Count int       `json:"count"`
	Mean  []float64 `json:"mean,omitempty"`
	M2    []float64 `json:"m2,omitempty"` // p×p, sums of products of deviations
	Ratio float64   `json:"ratio"`        // the monitor after the last whole batch
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
	st.Ratio = eps / 4 * ratio
	if st.Ratio < s.Freeze {
		st.Frozen = eps
	}
}
