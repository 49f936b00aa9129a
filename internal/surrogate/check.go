package surrogate

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Check is what observations that a model was not fitted to say of it.
type Check struct {
	// ChiSquare is the mean square of the residuals in units of what the model and the noise
	// lead to expect: 1 ± √(2/Scalars) for a model that is right.
	ChiSquare float64
	Scalars   int
	// Inflate is the factor on the model's posterior variances, at least 1, that makes the
	// residuals as large as expected.
	Inflate float64
}

// Verify compares a model with fresh observations, gradients and values.
func Verify(m Model, fresh []Observation) (Check, error) {
	var parts []part
	var c Check
	for _, o := range fresh {
		p, err := residuals(m, o)
		if err != nil {
			return c, err
		}
		parts = append(parts, p...)
	}
	for _, p := range parts {
		c.Scalars += len(p.noise)
	}
	size := func(factor float64) float64 {
		var sum float64
		for _, p := range parts {
			for k, r := range p.residual {
				sum += r * r / (p.noise[k] + factor*p.model[k])
			}
		}
		return sum / float64(max(1, c.Scalars))
	}
	c.ChiSquare, c.Inflate = size(1), 1
	lo, hi := 0.0, 0.0 // log of the factor
	for size(math.Exp(hi)) > 1 && hi < 40 {
		lo, hi = hi, hi+1
	}
	for range 30 {
		if mid := (lo + hi) / 2; size(math.Exp(mid)) > 1 {
			lo = mid
		} else {
			hi = mid
		}
	}
	c.Inflate = math.Exp(hi)
	return c, nil
}

// part are residuals in coordinates in which their noise and the model's error have
// diagonal covariances.
type part struct{ residual, noise, model []float64 }

func residuals(m Model, o Observation) ([]part, error) {
	var out []part
	if o.HasValue {
		out = append(out, part{
			residual: []float64{o.Value - m.Value(o.X)}, noise: []float64{o.ValueVar + floorNoise*floorNoise},
			model: m.Variances([][]float64{o.X}, [][]float64{{1}}),
		})
	}
	if o.Grad == nil {
		return out, nil
	}
	q := len(o.X)
	r := make([]float64, q)
	m.Gradient(r, o.X)
	floats.SubTo(r, o.Grad, r)
	// The model's covariance C has a root; in its coordinates it is the identity, and the
	// noise is made diagonal by its eigenvectors.
	cov := m.GradientCov(o.X)
	ridge := 1e-12 * mat.Trace(cov) / float64(q)
	for k := range q {
		cov.SetSym(k, k, cov.At(k, k)+ridge+1e-300)
	}
	w, err := NewWhitening(make([]float64, q), cov)
	if err != nil {
		return nil, err
	}
	noise := mat.NewSymDense(q, nil)
	if o.GradCov != nil {
		noise = congruent(w.inv, o.GradCov)
	}
	for k := range q {
		noise.SetSym(k, k, noise.At(k, k)+1e-12)
	}
	var eig mat.EigenSym
	eig.Factorize(noise, true)
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	mulTri(r, w.inv)
	p := part{residual: mulVec(vectors.T(), r), noise: eig.Values(nil), model: make([]float64, q)}
	for k := range q {
		p.noise[k] = max(p.noise[k], 0)
		p.model[k] = 1
	}
	return append(out, p), nil
}
