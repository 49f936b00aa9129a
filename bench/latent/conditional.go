package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// given is the density of the log length-scales where σ and the latent function, or the whitened one, are held (tables 3 and 4).
type given struct {
	d         *data
	f         []float64 // held
	nu        []float64 // in place of f: f = Lν
	curvature bool      // whether places have their metric
}

// place is the density at some log length-scales.
type place struct {
	theta  []float64 // log σ, log ℓ
	value  float64
	grad   []float64     // of log ℓ
	metric *mat.SymDense // Fisher's information about log ℓ, with minus the prior's second derivatives
}

// at returns the density at log σ and log length-scales, nil where K is numerically singular.
func (g *given) at(theta []float64) *place {
	if floats.Norm(theta, math.Inf(1)) > 20 {
		return nil
	}
	p := g.d.at(theta)
	if p == nil {
		return nil
	}
	here := &place{theta: theta, value: logPrior(theta), grad: make([]float64, len(theta)-1)}
	for i, l := range theta[1:] {
		here.grad[i] = 1 - math.Exp(l)
	}
	if g.nu != nil {
		g.ancillary(p, here)
	} else {
		g.sufficient(p, here)
	}
	if here.metric != nil {
		for i, l := range theta[1:] {
			here.metric.SetSym(i, i, here.metric.At(i, i)+math.Exp(l))
		}
	}
	return here
}

// change returns ∂K/∂log ℓ of input k.
func (g *given) change(p *point, k int) *mat.SymDense {
	n := len(g.d.problem.Y)
	out, scale := mat.NewSymDense(n, nil), math.Exp(-2*p.theta[1+k])
	for i := range n {
		for j := i; j < n; j++ {
			by := g.d.problem.Inputs.Row(i)[k] - g.d.problem.Inputs.Row(j)[k]
			out.SetSym(i, j, p.k.At(i, j)*by*by*scale)
		}
	}
	return out
}

// sufficient adds log N(f|0,K): ∂ = −½tr(K⁻¹∂K) + ½fᵀK⁻¹∂K K⁻¹f, with the metric ½tr(K⁻¹∂_iK K⁻¹∂_jK).
func (g *given) sufficient(p *point, here *place) {
	here.value += logNormal(p.lower, p.chol.LogDet(), g.f)
	a := mat.NewVecDense(len(g.f), p.solve(g.f))
	var whole []*mat.Dense // K⁻¹∂K
	for k := range here.grad {
		change, x := g.change(p, k), new(mat.Dense)
		_ = p.chol.SolveTo(x, change)
		here.grad[k] += mat.Inner(a, change, a)/2 - mat.Trace(x)/2
		whole = append(whole, x)
	}
	if !g.curvature {
		return
	}
	here.metric = mat.NewSymDense(len(whole), nil)
	for i, a := range whole {
		for j, b := range whole[:i+1] {
			sum := 0.0
			for r := range len(g.f) {
				for c := range len(g.f) {
					sum += a.At(r, c) * b.At(c, r)
				}
			}
			here.metric.SetSym(i, j, sum/2)
		}
	}
}

// ancillary adds log p(y|Lν): ∂ = ∇ᵀ∂f with ∂f = ∂L·ν and ∂L = L·low(L⁻¹∂K L⁻ᵀ), low taking the lower triangle with half of the diagonal
// (Smith 1995); the metric is ∂fᵀR∂f, R Fisher's information of each row.
func (g *given) ancillary(p *point, here *place) {
	n := len(g.nu)
	value, score, fisher := g.d.terms(mul(p.lower, g.nu))
	here.value += value
	var moves [][]float64
	for k := range here.grad {
		a := mat.DenseCopyOf(g.change(p, k))
		blas64.Trsm(blas.Left, blas.NoTrans, 1, p.lower.RawTriangular(), a.RawMatrix())
		blas64.Trsm(blas.Right, blas.Trans, 1, p.lower.RawTriangular(), a.RawMatrix())
		low := make([]float64, n)
		for i := range n {
			row := a.RawRowView(i)
			low[i] = floats.Dot(row[:i], g.nu[:i]) + row[i]*g.nu[i]/2
		}
		moves = append(moves, mul(p.lower, low))
		here.grad[k] += floats.Dot(score, moves[k])
	}
	if !g.curvature {
		return
	}
	here.metric = mat.NewSymDense(len(moves), nil)
	for i, a := range moves {
		scaled := floats.MulTo(make([]float64, n), a, fisher)
		for j, b := range moves[:i+1] {
			here.metric.SetSym(i, j, floats.Dot(scaled, b))
		}
	}
}

// moved returns the point that is by away from θ in the log length-scales.
func moved(theta, by []float64) []float64 {
	out := slices.Clone(theta)
	floats.Add(out[1:], by)
	return out
}

// stepper moves the log length-scales of a place. They are all there are, by the names of the paper.
type stepper interface {
	move(g *given, from *place, r *rand.Rand) *place
	tune() *tuner
}

func steppers() (names []string, of map[string]stepper) {
	return []string{"MH", "HMC", "SMMALA"}, map[string]stepper{
		"MH":     &walkTheta{tuner{step: 0.3, target: 0.25}},
		"HMC":    &hmcTheta{tuner{step: 0.1, target: 0.7}},
		"SMMALA": &smmalaTheta{tuner{step: 0.5, target: 0.57}},
	}
}

// walkTheta is a random walk with a covariance that is a multiple of the identity.
type walkTheta struct{ tuner }

func (w *walkTheta) tune() *tuner { return &w.tuner }

func (w *walkTheta) move(g *given, from *place, r *rand.Rand) *place {
	z := normal(r, len(from.grad))
	floats.Scale(w.step, z)
	to, ratio := g.at(moved(from.theta, z)), math.Inf(-1)
	if to != nil {
		ratio = to.value - from.value
	}
	if w.decide(r, ratio) {
		return to
	}
	return from
}

// hmcTheta is Hamiltonian Monte Carlo with a mass that is a multiple of the identity.
type hmcTheta struct{ tuner }

func (h *hmcTheta) tune() *tuner { return &h.tuner }

func (h *hmcTheta) move(g *given, from *place, r *rand.Rand) *place {
	v, at := normal(r, len(from.grad)), from
	start := from.value - square(v)/2
	for range 1 + r.IntN(most) {
		floats.AddScaled(v, h.step/2, at.grad)
		by := slices.Clone(v)
		floats.Scale(h.step, by)
		if at = g.at(moved(at.theta, by)); at == nil {
			break
		}
		floats.AddScaled(v, h.step/2, at.grad)
	}
	ratio := math.Inf(-1)
	if at != nil {
		ratio = at.value - square(v)/2 - start
	}
	if h.decide(r, ratio) {
		return at
	}
	return from
}

// smmalaTheta is the simplified manifold Metropolis-adjusted Langevin algorithm.
type smmalaTheta struct{ tuner }

func (s *smmalaTheta) tune() *tuner { return &s.tuner }

// from returns the proposal at a place, nil where the metric has no factor.
func (s *smmalaTheta) from(p *place) *proposal {
	var chol mat.Cholesky
	if !chol.Factorize(p.metric) {
		return nil
	}
	step := mat.NewVecDense(len(p.grad), nil)
	_ = chol.SolveVecTo(step, mat.NewVecDense(len(p.grad), p.grad))
	out := &proposal{mean: slices.Clone(p.theta[1:]), lower: new(mat.TriDense), logDet: chol.LogDet(), value: p.value}
	chol.LTo(out.lower)
	floats.AddScaled(out.mean, s.step*s.step/2, step.RawVector().Data)
	return out
}

func (s *smmalaTheta) move(g *given, from *place, r *rand.Rand) *place {
	here, ratio := s.from(from), math.Inf(-1)
	if here == nil {
		return from
	}
	z := normal(r, len(from.grad))
	blas64.Trsv(blas.Trans, here.lower.RawTriangular(), blas64.Vector{N: len(z), Data: z, Inc: 1})
	theta := slices.Clone(from.theta)
	floats.AddScaledTo(theta[1:], here.mean, s.step, z)
	to := g.at(theta)
	if to != nil {
		if there := s.from(to); there != nil {
			ratio = there.value - here.value + there.logDensity(from.theta[1:], s.step) - here.logDensity(theta[1:], s.step)
		}
	}
	if s.decide(r, ratio) {
		return to
	}
	return from
}
