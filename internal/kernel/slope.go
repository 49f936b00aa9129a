package kernel

import (
	"fmt"
	"math"
)

// Differentiable returns an error, one sentence, if functions of the covariance have no gradient in their
// inputs.
func (c *Covariance) Differentiable() error {
	theta := make([]float64, len(c.params))
	for i := range theta {
		theta[i] = 1
	}
	for i, leaf := range c.At(theta).leaves {
		if !leaf.differentiable() {
			return fmt.Errorf("functions of the covariance %v have no gradient: they are not differentiable; use rbf, rq, wendland, matern32 or matern52", c.leaves[i])
		}
	}
	return nil
}

// AddSlopes adds ∂k(x,y)/∂x_k to dst[k], for each input k: the covariance of the slopes at x with the value
// at y. A category has no slope: 0. It panics if the covariance is not Differentiable.
func (f *Function) AddSlopes(dst, x, y []float64) {
	for i, t := range f.cov.terms {
		for at, l := range t.Leaves {
			f.leaves[l].addSlopes(dst, f.variance(i)*f.product(t, at, x, y), x, y)
		}
	}
}

// AddSlopeVariances adds ∂²k(x,y)/∂x_k∂y_k at y = x to dst[k], for each input k: the variances of the slopes at
// x. It panics if the covariance is not Differentiable.
func (f *Function) AddSlopeVariances(dst, x []float64) {
	for i, t := range f.cov.terms {
		for at, l := range t.Leaves {
			f.leaves[l].addSlopeVariances(dst, f.variance(i)*f.product(t, at, x, x), x)
		}
	}
}

func (s *stationaryAt) differentiable() bool { return s.Family != Matern12 }

func (s *stationaryAt) addSlopes(dst []float64, w float64, x, y []float64) {
	w *= 2 * s.deriv(s.dist(x, y))
	for i, k := range s.Inputs {
		dst[k] += w * s.Rate(i) * (x[k] - y[k])
	}
}

func (s *stationaryAt) addSlopeVariances(dst []float64, w float64, _ []float64) {
	w *= -2 * s.deriv(0)
	for i, k := range s.Inputs {
		dst[k] += w * s.Rate(i)
	}
}

func (p *periodicAt) differentiable() bool { return true }

func (p *periodicAt) addSlopes(dst []float64, w float64, x, y []float64) {
	u, a := p.dist(x, y)
	dst[p.Input] += w * RBF.Deriv(u) * 2 * p.tau * p.angular() * math.Sin(a)
}

func (p *periodicAt) addSlopeVariances(dst []float64, w float64, _ []float64) {
	dst[p.Input] += w * 2 * p.tau * p.angular() * p.angular()
}
