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
			return fmt.Errorf("functions of the covariance %v have no gradient: they are not differentiable; use rbf, rq, wendland, wendland2, matern32 or matern52", c.leaves[i])
		}
	}
	return nil
}

// AddSlopes adds ∂k(x,y)/∂x_k to dst[k], for each input k: the covariance of the slopes at x with the value
// at y. A category has no slope: 0. It panics if the covariance is not Differentiable.
func (f *Function) AddSlopes(dst, x, y []float64) {
	for i, t := range f.cov.terms {
		for at, l := range t.Leaves {
			f.leaves[l].addSlopes(dst, f.TermVariance(i)*f.product(t, at, x, y), x, y)
		}
	}
}

// AddSlopeVariances adds ∂²k(x,y)/∂x_k∂y_k at y = x to dst[k], for each input k: the variances of the slopes at
// x. It panics if the covariance is not Differentiable.
func (f *Function) AddSlopeVariances(dst, x []float64) {
	for i, t := range f.cov.terms {
		for at, l := range t.Leaves {
			f.leaves[l].addSlopeVariances(dst, f.TermVariance(i)*f.product(t, at, x, x), x)
		}
		f.addCrossSlopes(dst, i, x)
	}
}

// addCrossSlopes adds what the slopes of two leaves of a term add to the variances: Σ ∂_x g_ℓ·∂_y g_m times the
// other leaves, over pairs of different ones. That of a function of a distance is zero at equal points.
func (f *Function) addCrossSlopes(dst []float64, term int, x []float64) {
	t := f.cov.terms[term]
	var slopes [][]float64 // of the leaves of the profile Dot
	var values []float64
	rest := f.TermVariance(term)
	for _, l := range t.Leaves {
		if f.cov.leaves[l].Profile() != Dot {
			rest *= f.leaves[l].value(x, x)
			continue
		}
		slope := make([]float64, len(dst))
		f.leaves[l].addSlopes(slope, 1, x, x)
		slopes, values = append(slopes, slope), append(values, f.leaves[l].value(x, x))
	}
	for i := range slopes {
		for j := range slopes {
			if i == j {
				continue
			}
			w := rest
			for k, v := range values {
				if k != i && k != j {
					w *= v
				}
			}
			for k := range dst {
				dst[k] += w * slopes[i][k] * slopes[j][k]
			}
		}
	}
}

func (s *stationaryAt) differentiable() bool { return s.Family != Matern12 && s.Family != Wendland0 }

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
