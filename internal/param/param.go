// Package param describes the parameters of a model: their names in every
// output, what each of them is (its role), the scale on which it is sampled, and
// its prior. Nobody needs to know at which place of a vector a parameter stands:
// it is found by its role or by its name.
//
// θ are the parameters on the natural scale, ψ on the sampled one.
package param

import (
	"cmp"
	"fmt"
)

// Role is what a parameter is.
type Role int

// The roles.
const (
	Variance Role = iota // marginal variance of a term of the covariance, σ
	Rate                 // inverse squared length-scale 1/(2ℓ²), τ
	Noise                // variance of the noise, λ
	Period               // period of a periodic leaf, in the units of the input
	Shape                // on which the profile of a leaf depends, such as α of a rational quadratic
	Mismatch             // −log of the correlation of points that differ in one category
	Size                 // size of a negative binomial distribution
	Partial              // of a partial correlation r of a correlation matrix: (1+r)/(1−r), or r/(1−r) where r > 0
	Ratio                // of the standard deviation of a level of a category to that of the first
	Place                // where something changes, in the units of the input
	Width                // over which it changes, in the units of the input
	Exponent             // of a warped input
	Offset               // of a polynomial
	Freedom              // degrees of freedom of Student's t
	Gap                  // between two thresholds of classes in order
	Spread               // of outliers: the standard deviation of their noise over that of ordinary rows
	Share                // of rows that are not ordinary
)

// Param is a parameter.
type Param struct {
	// Term names the term of the covariance that the parameter belongs to, Symbol
	// says which of the term's it is, and Index which of several of that symbol.
	// Term and Index may be empty: sigma, tau[3], trend.tau[3].
	Term, Symbol, Index string

	Role   Role
	Inputs []int // whose differences it scales, from 0; nil for none
	// Unitless says of a variance that it is of a function without the target's units, such as a log variance.
	Unitless bool
	Spare    int // of a partial correlation, how many variables it is neither of nor given (the prior lkj)
	// Transform says where the parameter may be. What the parameter is part of gives its derivatives with
	// respect to log θ where that is Log, or else to θ.
	Transform Transform
	Prior     Prior
}

// Scale returns the transform by which the parameter is sampled: its own, or that of the interval which its
// prior confines it to.
func (p Param) Scale() Transform {
	if p.Prior.confined {
		return p.Prior.on
	}
	return p.Transform
}

// SampledName returns the name of ψ: trend.log_tau[year].
func (p Param) SampledName() string { return p.As(p.Scale().Name(p.Symbol), p.Index) }

// Name returns the parameter's name in every output, which tells it from the
// others of a model.
func (p Param) Name() string { return p.As(p.Symbol, p.Index) }

// As returns the name of what is derived from the parameter, such as the
// length-scale of a rate.
func (p Param) As(symbol, index string) string {
	if p.Term != "" {
		symbol = p.Term + "." + symbol
	}
	if index != "" {
		symbol += "[" + index + "]"
	}
	return symbol
}

// List are the parameters of a model, in the order of its vectors.
type List []Param

// Names returns the names.
func (l List) Names() []string {
	names := make([]string, len(l))
	for i, p := range l {
		names[i] = p.Name()
	}
	return names
}

// Of returns the parameter's index for people and programs: the name of the input that it is of, if it is
// one of several, of one input alone, and that has a name; or else Index.
func (p Param) Of(inputs []string) string {
	if p.Index != "" && len(p.Inputs) == 1 {
		return cmp.Or(inputs[p.Inputs[0]], p.Index)
	}
	return p.Index
}

// NamesBy returns the names by those of the inputs: tau[hr] for tau[3].
func (l List) NamesBy(inputs []string) []string {
	names := make([]string, len(l))
	for i, p := range l {
		names[i] = p.As(p.Symbol, p.Of(inputs))
	}
	return names
}

// Natural returns θ. It panics if ψ has another length than the list.
func (l List) Natural(psi []float64) []float64 {
	return l.each(psi, Param.natural)
}

// Sampled returns ψ. It panics if θ has another length than the list.
func (l List) Sampled(theta []float64) []float64 {
	return l.each(theta, Param.sampled)
}

func (p Param) natural(psi float64) float64   { return p.Scale().Natural(psi) }
func (p Param) sampled(theta float64) float64 { return p.Scale().Sampled(theta) }

func (l List) each(x []float64, f func(p Param, x float64) float64) []float64 {
	if len(x) != len(l) {
		panic(fmt.Sprintf("param: %d parameters, want %d", len(x), len(l)))
	}
	out := make([]float64, len(x))
	for i, p := range l {
		out[i] = f(p, x[i])
	}
	return out
}

// Usable reports whether ψ has the length of the list, and θ is finite and
// neither overflows nor underflows.
func (l List) Usable(psi []float64) bool {
	if len(psi) != len(l) {
		return false
	}
	for i, theta := range l.Natural(psi) {
		if !l[i].Scale().usable(theta) {
			return false
		}
	}
	return true
}

// Chain turns a gradient with respect to the scales that Param.Transform names into that with respect to ψ.
// The gradient may be of the first parameters alone.
func (l List) Chain(psi, grad []float64) {
	for i := range grad {
		scale := l[i].Scale()
		if scale == Log {
			continue
		}
		grad[i] *= scale.Slope(psi[i])
		if l[i].Transform == Log {
			grad[i] /= scale.Natural(psi[i])
		}
	}
}

// LogPrior returns the log prior density of ψ and its gradient.
func (l List) LogPrior(psi []float64) (value float64, grad []float64) {
	grad = make([]float64, len(psi))
	for i, x := range psi {
		v, g := l[i].Prior.LogDensity(x)
		value += v
		grad[i] = g
	}
	return value, grad
}
