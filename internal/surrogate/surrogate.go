// Package surrogate learns a smooth function of a few parameters, such as log|K|, from
// noisy gradients and values at points where they were estimated: as a polynomial by
// generalised least squares (FitPolynomial), or as a Gaussian process with derivative
// observations (FitProcess); Choose takes the one that predicts held-out observations
// best.
//
// A Model knows how wrong it is: its errors are Gaussian with a posterior covariance,
// which gives the standard error of any linear functional of the function, as the means of
// a posterior are to first order (Model.Variances).
package surrogate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Observation is what is known of the function at a point: a gradient, a value, or both.
type Observation struct {
	X       []float64
	Grad    []float64     // nil: none
	GradCov *mat.SymDense // covariance of the gradient's noise; nil: exact
	// Value is the function's value, with noise of variance ValueVar, if HasValue.
	Value, ValueVar float64
	HasValue        bool
}

// Model is a fitted function. Its methods may be called concurrently.
type Model interface {
	// Value returns the function at x. If no value was observed, it is that above the
	// function's at the Whitening's centre.
	Value(x []float64) float64
	// Gradient sets dst to the exact gradient of Value.
	Gradient(dst, x []float64)
	// GradientCov returns the posterior covariance of the gradient at x.
	GradientCov(x []float64) *mat.SymDense
	// Variances returns the posterior variances of the functionals Σ_i w[q][i]·f(points[i]).
	// If no value was observed, weights that do not sum to zero add the centre's value with
	// the opposite weight.
	Variances(points [][]float64, w [][]float64) []float64
	// Deviations returns draws of the model's error at points: draws × points numbers, of
	// which stream returns the streams of random numbers. If no value was observed they are
	// relative to the error at the centre.
	Deviations(points [][]float64, draws int, stream func(index int) *rand.Rand) [][]float64
	// Name says what the model is, for logs and summaries.
	Name() string
}

// Whitening maps parameters to coordinates z = R⁻¹(x − centre) in which the posterior has
// unit covariance, so that one length fits all directions.
type Whitening struct {
	Centre []float64
	root   *mat.TriDense // lower
	inv    *mat.TriDense
}

// NewWhitening returns the map for a posterior of the given mean and covariance.
func NewWhitening(mean []float64, cov *mat.SymDense) (*Whitening, error) {
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		return nil, errors.New("surrogate: the covariance is not positive definite")
	}
	w := &Whitening{Centre: mean, root: mat.NewTriDense(len(mean), mat.Lower, nil), inv: new(mat.TriDense)}
	chol.LTo(w.root)
	if err := w.inv.InverseTri(w.root); err != nil {
		return nil, errors.New("surrogate: the covariance is numerically singular")
	}
	return w, nil
}

// Dim returns the number of parameters.
func (w *Whitening) Dim() int { return len(w.Centre) }

// Apply returns z.
func (w *Whitening) Apply(x []float64) []float64 {
	if len(x) != w.Dim() {
		panic(fmt.Sprintf("surrogate: a point of %d parameters, want %d", len(x), w.Dim()))
	}
	d := make([]float64, len(x))
	floats.SubTo(d, x, w.Centre)
	mulTri(d, w.inv)
	return d
}

// mulTri replaces v by the lower triangle times v.
func mulTri(v []float64, l *mat.TriDense) {
	raw := l.RawTriangular()
	for i := len(v) - 1; i >= 0; i-- {
		v[i] = floats.Dot(raw.Data[i*raw.Stride:][:i+1], v[:i+1])
	}
}

// Gradient returns the gradient with respect to z of a function with the given gradient
// with respect to x.
func (w *Whitening) Gradient(g []float64) []float64 {
	out := mat.NewVecDense(len(g), nil)
	out.MulVec(w.root.T(), mat.NewVecDense(len(g), g))
	return out.RawVector().Data
}

// Undo sets dst to the gradient with respect to x of one with respect to z.
func (w *Whitening) Undo(dst, g []float64) {
	mat.NewVecDense(len(dst), dst).MulVec(w.inv.T(), mat.NewVecDense(len(g), g))
}

// cov returns the covariance of a whitened gradient, and undoCov the way back.
func (w *Whitening) cov(c *mat.SymDense) *mat.SymDense     { return congruent(w.root.T(), c) }
func (w *Whitening) undoCov(c *mat.SymDense) *mat.SymDense { return congruent(w.inv.T(), c) }

// congruent returns A·C·Aᵀ.
func congruent(a mat.Matrix, c *mat.SymDense) *mat.SymDense {
	var ac, aca mat.Dense
	ac.Mul(a, c)
	aca.Mul(&ac, a.T())
	n, _ := a.Dims()
	out := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			out.SetSym(i, j, (aca.At(i, j)+aca.At(j, i))/2)
		}
	}
	return out
}

// observed are observations in whitened coordinates.
type observed struct {
	points []observedPoint
	values bool // there are values
}

type observedPoint struct {
	z       []float64
	grad    []float64 // nil: none
	cov     *mat.SymDense
	inv     *mat.TriDense // inverse of the lower factor of cov
	value   float64
	valueSD float64 // 0: no value
}

// floorNoise is the least standard deviation of the noise that an observation is given, in
// units of the function's own, per standard deviation of the posterior for gradients. What
// is smaller does not matter to a posterior, and exact observations of what no model is
// exactly would let nothing else count.
const floorNoise = 1e-3

func observe(w *Whitening, obs []Observation) (*observed, error) {
	if len(obs) == 0 {
		return nil, errors.New("surrogate: no observations")
	}
	o := &observed{points: make([]observedPoint, len(obs))}
	for i, ob := range obs {
		bad := func(what string) error { return fmt.Errorf("surrogate: observation %d has %s", i+1, what) }
		if !finite(ob.X) {
			return nil, bad("a point that is not finite")
		}
		p := &o.points[i]
		p.z = w.Apply(ob.X)
		if ob.Grad != nil {
			if err := p.gradient(w, ob); err != nil {
				return nil, bad(err.Error())
			}
		}
		if ob.HasValue {
			if math.IsNaN(ob.Value) || math.IsInf(ob.Value, 0) || !(ob.ValueVar >= 0) {
				return nil, bad("a value or variance that is not finite")
			}
			p.value, p.valueSD = ob.Value, math.Sqrt(ob.ValueVar+floorNoise*floorNoise)
			o.values = true
		}
	}
	return o, nil
}

func (p *observedPoint) gradient(w *Whitening, ob Observation) error {
	p.grad, p.cov = w.Gradient(ob.Grad), mat.NewSymDense(w.Dim(), nil)
	if ob.GradCov != nil {
		p.cov = w.cov(ob.GradCov)
	}
	for k := range w.Dim() {
		p.cov.SetSym(k, k, p.cov.At(k, k)*(1+1e-9)+floorNoise*floorNoise)
	}
	var chol mat.Cholesky
	if !finite(p.grad) || !chol.Factorize(p.cov) {
		return errors.New("a gradient that is not finite, or noise that is not positive semi-definite")
	}
	l := mat.NewTriDense(w.Dim(), mat.Lower, nil)
	chol.LTo(l)
	p.inv = new(mat.TriDense)
	_ = p.inv.InverseTri(l) // it only warns of ill-conditioning
	return nil
}

func finite(x []float64) bool {
	s := floats.Norm(x, 1)
	return !math.IsNaN(s) && !math.IsInf(s, 0)
}

// rows returns the number of scalars observed.
func (p *observedPoint) rows() int {
	n := len(p.grad)
	if p.valueSD > 0 {
		n++
	}
	return n
}
