package kernel

import (
	"fmt"
	"math/rand/v2"
)

// Function is a covariance function k(x,x') at given parameters. Its methods
// may be called concurrently.
type Function struct {
	cov    *Covariance
	theta  []float64
	leaves []LeafAt
	scale  float64
	pairs  *Function // the part that is not of low rank, nil if there is none
}

// Covariance returns the expression that the function is a value of.
func (f *Function) Covariance() *Covariance { return f.cov }

// Theta returns the parameters, to read.
func (f *Function) Theta() []float64 { return f.theta }

// Leaf returns a leaf at the parameters.
func (f *Function) Leaf(i int) LeafAt { return f.leaves[i] }

// Scale returns the sum of the terms' variances.
func (f *Function) Scale() float64 { return f.scale }

// Weight returns a term's share of the scale.
func (f *Function) Weight(term int) float64 { return f.TermVariance(term) / f.scale }

// TermVariance returns the variance of a term.
func (f *Function) TermVariance(term int) float64 {
	if t := f.cov.terms[term]; t.Variance < 0 {
		return t.Fixed
	}
	return f.theta[f.cov.terms[term].Variance]
}

// product returns the product of a term's leaves but one, -1 for of all.
func (f *Function) product(t TermAt, but int, x, y []float64) float64 {
	p := 1.0
	for i, l := range t.Leaves {
		if i != but {
			p *= f.leaves[l].value(x, y)
		}
	}
	return p
}

// Value returns k(x,y).
func (f *Function) Value(x, y []float64) float64 {
	var k float64
	for i, t := range f.cov.terms {
		k += f.TermVariance(i) * f.product(t, -1, x, y)
	}
	return k
}

// Correlation returns k(x,y) in units of the scale.
func (f *Function) Correlation(x, y []float64) float64 {
	var k float64
	for i, t := range f.cov.terms {
		k += f.Weight(i) * f.product(t, -1, x, y)
	}
	return k
}

// Variance returns k(x,x).
func (f *Function) Variance(x []float64) float64 { return f.Value(x, x) }

// AddGradient adds w·∂k(x,y) by the logarithm of parameter i, or by itself where param.Param.Transform is
// not Log, to g[i], for each parameter of the covariance.
func (f *Function) AddGradient(g []float64, w float64, x, y []float64) {
	for i, t := range f.cov.terms {
		wt := w * f.TermVariance(i)
		if t.Variance >= 0 {
			g[t.Variance] += wt * f.product(t, -1, x, y)
		}
		for at, l := range t.Leaves {
			f.leaves[l].addGradient(g, f.cov.at[l], wt*f.product(t, at, x, y), x, y)
		}
	}
}

// Rates sets dst to an inverse squared length-scale 1/(2ℓ²) for each input: a
// metric in which near rows have a high covariance. Those of a term's leaves add
// up; those of terms are averaged, weighted by the variances.
func (f *Function) Rates(dst []float64) {
	clear(dst)
	for i, t := range f.cov.terms {
		for _, l := range t.Leaves {
			f.leaves[l].addRates(dst, f.Weight(i))
		}
	}
}

// Frequency sets w, a number for each input, to a draw ω from the spectral
// density: E cos(ωᵀ(x−x')) is the correlation (Bochner; Rahimi and Recht 2007).
// That of a sum is a mixture, that of a product of leaves the law of the sum of
// their frequencies. It returns the term that the draw is from: where it has leaves
// of the profile Dot, the correlation is E b(x)·b(x')·cos(ωᵀ(x−x')), b its Amplitude.
// It panics if the covariance is not Spectral.
func (f *Function) Frequency(r *rand.Rand, w []float64) (term int) {
	t := 0
	if n := len(f.cov.terms); n > 1 {
		for u := r.Float64() * f.scale; t < n-1; t++ {
			if u -= f.TermVariance(t); u < 0 {
				break
			}
		}
	}
	clear(w)
	for _, l := range f.cov.terms[t].Leaves {
		f.leaves[l].addFrequency(r, w)
	}
	return t
}

// Spectral returns an error, one sentence, if Frequency cannot draw.
func (f *Function) Spectral() error {
	for i, leaf := range f.leaves {
		if !leaf.spectral() {
			return fmt.Errorf("there are no draws from the spectral density of %v", f.cov.leaves[i])
		}
	}
	return nil
}
