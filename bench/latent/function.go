package main

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// operator moves the latent function given θ, in place. It keeps what it computes of a point until the point is another.
type operator interface {
	move(p *point, f []float64, r *rand.Rand)
	tune() *tuner // nil: it has no step
}

// operators are all there are, by the names of the paper.
func operators(d *data) (names []string, of map[string]operator) {
	return []string{"MH v1", "MH v2", "SMMALA", "ELL-SS", "HMC v1", "HMC v2"}, map[string]operator{
		"MH v1":  &walk{d: d, tuner: tuner{step: 0.1, target: 0.25}},
		"MH v2":  &walk{d: d, tuner: tuner{step: 0.1, target: 0.25}, keepsPrior: true},
		"SMMALA": &smmala{d: d, tuner: tuner{step: 0.5, target: 0.57}},
		"ELL-SS": ellipse{d},
		"HMC v1": &hmc{d: d, tuner: tuner{step: 0.3, target: 0.7}, curved: true},
		"HMC v2": &hmc{d: d, tuner: tuner{step: 0.3, target: 0.7}},
	}
}

// walk proposes f + αz (equation 11) or, keeping the prior, √(1−α²)f + αz (equation 12), z ~ N(0,K).
type walk struct {
	d *data
	tuner
	keepsPrior bool
}

func (w *walk) tune() *tuner { return &w.tuner }

func (w *walk) move(p *point, f []float64, r *rand.Rand) {
	z := mul(p.lower, normal(r, len(f)))
	alpha, to := w.step, make([]float64, len(f))
	ratio := -w.d.logLik(f)
	if w.keepsPrior {
		alpha = min(1, alpha)
		floats.ScaleTo(to, math.Sqrt(1-alpha*alpha), f)
		floats.AddScaled(to, alpha, z)
	} else {
		floats.AddScaledTo(to, f, alpha, z)
		ratio += (square(solveLower(p.lower, f)) - square(solveLower(p.lower, to))) / 2
	}
	if w.decide(r, ratio+w.d.logLik(to)) {
		copy(f, to)
	}
}

// ellipse is elliptical slice sampling (Murray, Adams and MacKay 2010).
type ellipse struct{ d *data }

func (ellipse) tune() *tuner { return nil }

func (e ellipse) move(p *point, f []float64, r *rand.Rand) {
	z := mul(p.lower, normal(r, len(f)))
	level := e.d.logLik(f) - r.ExpFloat64()
	angle := 2 * math.Pi * r.Float64()
	lo, hi := angle-2*math.Pi, angle
	to := make([]float64, len(f))
	for {
		floats.ScaleTo(to, math.Cos(angle), f)
		floats.AddScaled(to, math.Sin(angle), z)
		if e.d.logLik(to) > level {
			copy(f, to)
			return
		}
		if angle < 0 {
			lo = angle
		} else {
			hi = angle
		}
		angle = lo + (hi-lo)*r.Float64()
	}
}

// most is the largest number of leapfrog steps.
const most = 10

// hmc is Hamiltonian Monte Carlo with the inverse mass FFᵀ (algorithm 4), which is that with a mass of 1 on u = F⁻¹f. Version 2 has FFᵀ = K,
// version 1, curved, (K⁻¹+C)⁻¹ with Fisher's information C at f = 0.
type hmc struct {
	d *data
	tuner
	curved bool

	of     *point
	factor *mat.TriDense
}

func (h *hmc) tune() *tuner { return &h.tuner }

func (h *hmc) prepare(p *point) {
	if h.of == p {
		return
	}
	h.of, h.factor = p, p.lower
	if !h.curved {
		return
	}
	n := len(h.d.problem.Y)
	_, _, c := h.d.terms(make([]float64, n))
	h.factor, _ = lowerOf(sharpened(p.k, c))
}

// sharpened returns (K⁻¹+diag(c))⁻¹ = K − K(K+diag(1/c))⁻¹K.
func sharpened(k *mat.SymDense, c []float64) *mat.SymDense {
	n := len(c)
	a := mat.NewSymDense(n, nil)
	a.CopySym(k)
	for i, v := range c {
		a.SetSym(i, i, a.At(i, i)+1/v)
	}
	var chol mat.Cholesky
	chol.Factorize(a)
	x := mat.NewDense(n, n, nil) // (K+C⁻¹)⁻¹K; C⁻¹ times that is what is wanted, and does not cancel
	_ = chol.SolveTo(x, k)
	sym := mat.NewSymDense(n, nil)
	for i, v := range c {
		for j := i; j < n; j++ {
			sym.SetSym(i, j, (x.At(i, j)/v+x.At(j, i)/c[j])/2)
		}
		sym.SetSym(i, i, sym.At(i, i)*(1+jitter))
	}
	return sym
}

// energy returns log p(y|f) + log N(f|0,K) and its gradient in u.
func (h *hmc) energy(p *point, u, f []float64) (float64, []float64) {
	value, score, _ := h.d.terms(f)
	if !h.curved { // Kinv·f = F⁻ᵀu
		g := mul(h.factor.T(), score)
		floats.Sub(g, u)
		return value - square(u)/2, g
	}
	k := p.solve(f)
	floats.Sub(score, k)
	return value - floats.Dot(f, k)/2, mul(h.factor.T(), score)
}

func (h *hmc) move(p *point, f []float64, r *rand.Rand) {
	h.prepare(p)
	if h.factor == nil {
		return
	}
	u, v := solveLower(h.factor, f), normal(r, len(f))
	at := mul(h.factor, u)
	value, g := h.energy(p, u, at)
	start := value - square(v)/2
	for range 1 + r.IntN(most) {
		floats.AddScaled(v, h.step/2, g)
		floats.AddScaled(u, h.step, v)
		at = mul(h.factor, u)
		value, g = h.energy(p, u, at)
		floats.AddScaled(v, h.step/2, g)
	}
	if h.decide(r, value-square(v)/2-start) {
		copy(f, at)
	}
}

// smmala is the simplified manifold Metropolis-adjusted Langevin algorithm (algorithm 2), with the metric G = Fisher's information + K⁻¹.
type smmala struct {
	d *data
	tuner

	of  *point
	inv *mat.SymDense // K⁻¹
}

func (s *smmala) tune() *tuner { return &s.tuner }

// proposal is the normal distribution that is proposed from.
type proposal struct {
	mean   []float64
	lower  *mat.TriDense // of G
	logDet float64
	value  float64 // the target's log density
}

func (s *smmala) from(f []float64) *proposal {
	value, grad, fisher := s.d.terms(f)
	k := mul(s.inv, f)
	value -= floats.Dot(f, k) / 2
	floats.Sub(grad, k)
	g := mat.NewSymDense(len(f), nil)
	g.CopySym(s.inv)
	for i, w := range fisher {
		g.SetSym(i, i, g.At(i, i)+w)
	}
	var chol mat.Cholesky
	if !chol.Factorize(g) {
		return nil
	}
	step := mat.NewVecDense(len(f), nil)
	_ = chol.SolveVecTo(step, mat.NewVecDense(len(f), grad))
	p := &proposal{mean: make([]float64, len(f)), lower: new(mat.TriDense), logDet: chol.LogDet(), value: value}
	chol.LTo(p.lower)
	floats.AddScaledTo(p.mean, f, s.step*s.step/2, step.RawVector().Data)
	return p
}

// logDensity is that of N(mean, ε²G⁻¹) at f.
func (p *proposal) logDensity(f []float64, step float64) float64 {
	d := floats.SubTo(make([]float64, len(f)), f, p.mean)
	return p.logDet/2 - square(mul(p.lower.T(), d))/(2*step*step)
}

func (s *smmala) move(p *point, f []float64, r *rand.Rand) {
	if s.of != p {
		s.of, s.inv = p, new(mat.SymDense)
		_ = p.chol.InverseTo(s.inv)
	}
	here := s.from(f)
	z := normal(r, len(f))
	blas64.Trsv(blas.Trans, here.lower.RawTriangular(), blas64.Vector{N: len(z), Data: z, Inc: 1})
	to := floats.AddScaledTo(make([]float64, len(f)), here.mean, s.step, z)
	ratio := math.Inf(-1)
	there := s.from(to)
	if there != nil {
		ratio = there.value - here.value + there.logDensity(f, s.step) - here.logDensity(to, s.step)
	}
	if s.decide(r, ratio) {
		copy(f, to)
	}
}
