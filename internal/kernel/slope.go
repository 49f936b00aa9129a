package kernel

import "fmt"

// smooth is a leaf whose functions may have derivatives in their inputs, in mean square. Since a leaf is
// one at equal points, its own slope there is zero.
type smooth interface {
	// differentiable reports whether they have.
	differentiable() bool
	// addSlopes adds w·∂g(x,y)/∂x_k to dst[k], for each input k.
	addSlopes(dst []float64, w float64, x, y []float64)
	// addSlopeVariances adds w·∂²g(x,y)/∂x_k∂y_k at y = x to dst[k], for each input k.
	addSlopeVariances(dst []float64, w float64, x []float64)
}

// Differentiable returns an error, one sentence, if functions of the covariance have no gradient in their
// inputs.
func (c *Covariance) Differentiable() error {
	theta := make([]float64, len(c.params))
	for i := range theta {
		theta[i] = 1
	}
	for i, leaf := range c.At(theta).leaves {
		s, ok := leaf.(smooth)
		if !ok {
			return fmt.Errorf("the gradient of functions of the covariance %v is not known: no leaf but rbf, matern32 and matern52 tells it", c.leaves[i])
		}
		if !s.differentiable() {
			return fmt.Errorf("functions of the covariance %v have no gradient: they are not differentiable; use rbf, matern32 or matern52", c.leaves[i])
		}
	}
	return nil
}

// AddSlopes adds ∂k(x,y)/∂x_k to dst[k], for each input k: the covariance of the slopes at x with the value
// at y. It panics if the covariance is not Differentiable.
func (f *Function) AddSlopes(dst, x, y []float64) {
	for i, t := range f.cov.terms {
		for at, l := range t.Leaves {
			f.leaves[l].(smooth).addSlopes(dst, f.variance(i)*f.product(t, at, x, y), x, y)
		}
	}
}

// AddSlopeVariances adds ∂²k(x,y)/∂x_k∂y_k at y = x to dst[k], for each input k: the variances of the slopes at
// x. It panics if the covariance is not Differentiable.
func (f *Function) AddSlopeVariances(dst, x []float64) {
	for i, t := range f.cov.terms {
		for at, l := range t.Leaves {
			f.leaves[l].(smooth).addSlopeVariances(dst, f.variance(i)*f.product(t, at, x, x), x)
		}
	}
}

func (s *stationaryAt) differentiable() bool { return s.Family != Matern12 }

func (s *stationaryAt) addSlopes(dst []float64, w float64, x, y []float64) {
	w *= 2 * s.Family.Deriv(s.dist(x, y))
	for i, k := range s.Inputs {
		dst[k] += w * s.tau[min(i, len(s.tau)-1)] * (x[k] - y[k])
	}
}

func (s *stationaryAt) addSlopeVariances(dst []float64, w float64, _ []float64) {
	w *= -2 * s.Family.Deriv(0)
	for i, k := range s.Inputs {
		dst[k] += w * s.tau[min(i, len(s.tau)-1)]
	}
}
