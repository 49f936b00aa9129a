package sgld

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// Fisher is Fisher-matched Langevin dynamics,
//
//	ψ' = ψ + h·C·ĝ + N(0,Q),  Q = (2h−h²)C − h²·C·S·C,
//
// with C the posterior covariance and S the covariance of the gradient
// estimate ĝ. The noise of the estimate takes the place of part of the injected
// noise. If the posterior is N(μ,C), it is left invariant at every h ≤ 1 and
// successive draws have correlation 1−h. Otherwise the mean and the covariance
// of the posterior are still those of the next draw if C is the inverse of the
// posterior mean of the observed information: by Stein's identity
// E[g(ψ−μ)ᵀ] = −1 and E[ggᵀ] = E[−∇²log p] = C⁻¹, whence
// Cov(ψ') = Σ − 2hC + h²C(C⁻¹+S)C + Q = Σ.
type Fisher struct {
	Step   float64 // h
	Budget float64 // λ_min of C^{-1/2} Q C^{-1/2}: what the noise leaves free
	c      *mat.SymDense
	root   *mat.Dense // Q^{1/2}
}

// NewFisher returns the kernel. It reports an error if Q is not positive
// semi-definite: the gradient is too noisy for the step.
func NewFisher(c, s *mat.SymDense, h float64) (*Fisher, error) {
	l, vecs, vals, err := whiten(c, s)
	if err != nil {
		return nil, err
	}
	f := &Fisher{Step: h, c: c, Budget: math.Inf(1)}
	scaled := mat.NewDense(len(vals), len(vals), nil)
	for k, v := range vals {
		q := 2*h - h*h - h*h*v
		f.Budget = min(f.Budget, q)
		for i := range vals {
			scaled.Set(i, k, vecs.At(i, k)*math.Sqrt(max(q, 0)))
		}
	}
	if f.Budget < 0 {
		return nil, fmt.Errorf("the gradient's noise exceeds what a step of %g allows (λ_min(Q) = %.3g)", h, f.Budget)
	}
	f.root = new(mat.Dense)
	f.root.Mul(l, scaled)
	return f, nil
}

// whiten returns the Cholesky factor L of c and the eigenvectors and
// eigenvalues of Lᵀ·s·L, which are those of C^{1/2}SC^{1/2}.
func whiten(c, s *mat.SymDense) (l *mat.TriDense, vecs *mat.Dense, vals []float64, err error) {
	var chol mat.Cholesky
	if !chol.Factorize(c) {
		return nil, nil, nil, fmt.Errorf("the metric is not positive definite")
	}
	n := c.SymmetricDim()
	l = mat.NewTriDense(n, mat.Lower, nil)
	chol.LTo(l)
	var a mat.Dense
	a.Product(l.T(), s, l)
	sym := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			sym.SetSym(i, j, (a.At(i, j)+a.At(j, i))/2)
		}
	}
	var eig mat.EigenSym
	if !eig.Factorize(sym, true) {
		return nil, nil, nil, fmt.Errorf("the gradient's covariance is not finite")
	}
	vecs = new(mat.Dense)
	eig.VectorsTo(vecs)
	return l, vecs, eig.Values(nil), nil
}

// Advance moves ψ by one step along the gradient estimate g.
func (f *Fisher) Advance(psi, g []float64, r *rand.Rand) {
	p := len(psi)
	z := mat.NewVecDense(p, nil)
	for i := range p {
		z.SetVec(i, r.NormFloat64())
	}
	var drift, noise mat.VecDense
	drift.MulVec(f.c, mat.NewVecDense(p, g))
	noise.MulVec(f.root, z)
	for i := range psi {
		psi[i] += f.Step*drift.AtVec(i) + noise.AtVec(i)
	}
}

// NoiseRatio returns λ_max(C^{1/2}SC^{1/2}), the gradient's noise in units of
// what the posterior's own spread would make. A step h needs it to be at most
// (2−h)/h.
func NoiseRatio(c, s *mat.SymDense) (float64, error) {
	_, _, vals, err := whiten(c, s)
	if err != nil {
		return 0, err
	}
	return vals[len(vals)-1], nil
}

// noiseMargin is the part of the noise budget that Tune leaves free, so that
// the error of the measured S does not make Q indefinite.
const noiseMargin = 0.8

// Tune chooses the number of probes J and the step, given the covariance v of
// one probe's estimate and w of the rest of the gradient's noise (nil for
// none): for a wanted step the smallest J ≥ minProbes that affords it; if even
// maxProbes do not, the largest step that maxProbes afford. allows is the
// sampler's AllowsFisher or AllowsLeimkuhler, which fall as the step grows.
func Tune(c, v, w *mat.SymDense, allows func(step float64) float64, step float64, minProbes, maxProbes int) (probes int, h float64, err error) {
	ratio := func(j int) (float64, error) {
		s := mat.NewSymDense(v.SymmetricDim(), nil)
		s.ScaleSym(1/float64(j), v)
		if w != nil {
			s.AddSym(s, w)
		}
		return NoiseRatio(c, s)
	}
	for j := minProbes; j <= maxProbes; j++ {
		r, err := ratio(j)
		if err != nil {
			return 0, 0, err
		}
		if r <= noiseMargin*allows(step) {
			return j, step, nil
		}
	}
	r, err := ratio(maxProbes)
	if err != nil {
		return 0, 0, err
	}
	lo, hi := 0.0, step
	for range 60 {
		if mid := (lo + hi) / 2; noiseMargin*allows(mid) >= r {
			lo = mid
		} else {
			hi = mid
		}
	}
	return maxProbes, lo, nil
}
