package deep

import (
	"math"
)

// Output is what targets are, given the functions of the last layer.
type Output interface {
	// Functions returns how many functions there are, Params how many parameters of its own the output has.
	Functions() int
	Params() int
	// Row returns the expectation of log p(y_i|f) for a row i, f normal with independent elements of the given means and variances, or an unbiased estimate of
	// it by standard normal numbers, one a function. It adds the derivatives to those of d.
	Row(own []float64, i int, mean, variance, noise []float64, d Slopes) float64
}

// Slopes are where derivatives by means, variances and own parameters of an output are added.
type Slopes struct{ Mean, Variance, Own []float64 }

// Gaussian has targets with normal noise; its parameter is the log of the noise's variance.
type Gaussian struct {
	Y []float64
}

// Functions returns 1.
func (Gaussian) Functions() int { return 1 }

// Params returns 1.
func (Gaussian) Params() int { return 1 }

// Row is closed.
func (g Gaussian) Row(own []float64, i int, mean, variance, _ []float64, d Slopes) float64 {
	precision, e := math.Exp(-own[0]), g.Y[i]-mean[0]
	square := (e*e + variance[0]) * precision
	d.Mean[0] += e * precision
	d.Variance[0] -= 0.5 * precision
	d.Own[0] += 0.5 * (square - 1)
	return -0.5 * (math.Log(2*math.Pi) + own[0] + square)
}

// Softmax has classes, p(y=c|f) = exp(f_c)/Σ exp(f).
type Softmax struct {
	Class   []int // of each row, from 0
	Classes int
}

// Functions returns the number of classes.
func (s Softmax) Functions() int { return s.Classes }

// Params returns 0.
func (Softmax) Params() int { return 0 }

// Row is f_y in expectation less an estimate of E log Σ exp(f) by one draw.
func (s Softmax) Row(_ []float64, i int, mean, variance, noise []float64, d Slopes) float64 {
	p := make([]float64, s.Classes)
	for c, m := range mean {
		p[c] = m + math.Sqrt(variance[c])*noise[c]
	}
	lse := Normalise(p)
	y := s.Class[i]
	d.Mean[y]++
	for c, v := range variance {
		d.Mean[c] -= p[c]
		if v > 0 {
			d.Variance[c] -= p[c] * noise[c] / (2 * math.Sqrt(v))
		}
	}
	return mean[y] - lse
}

// Normalise replaces f by exp(f)/Σ exp(f), and returns log Σ exp(f).
func Normalise(f []float64) (lse float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range f {
		top = max(top, v)
	}
	for c, v := range f {
		f[c] = math.Exp(v - top)
		sum += f[c]
	}
	for c := range f {
		f[c] /= sum
	}
	return top + math.Log(sum)
}
