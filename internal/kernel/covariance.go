package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Covariance is a covariance function with its parameters left open: a sum of
// terms. A bracket is written out, (a+b)·c as a·c + b·c: a leaf that occurs in
// several terms is one leaf, and is evaluated once.
//
// Parameters are told apart by their names: two of the same name are one. They
// have an order, that of their first occurrence, in which θ lists their values.
//
// A Covariance is immutable.
type Covariance struct {
	dim    int
	terms  []TermAt
	names  []string // of the terms, empty where they have none
	leaves []Leaf
	at     [][]int // of each leaf's parameters, in params
	params param.List
	split  split
}

// Term is a term of a sum: a variance times a product of leaves.
type Term struct {
	// Variance is a parameter; where it has no symbol, it is the number Fixed, and names the
	// term alone.
	Variance param.Param
	Fixed    float64
	Leaves   []Leaf
}

// Leaf is a factor of a term: a correlation function g(u), one at equal points, of a
// squared distance u = Σ_k τ_k (φ_k(x)−φ_k(y))² between features φ of the points, with
// parameters of its own: the rates τ, those on which features depend, and at most one
// on which g does. *Stationary, *Warped, *Periodic, *Cosine and *Hamming are leaves. Those of the profile Dot are
// the product Σ_q a_q(x)·a_q(y) of their features instead, such as *Linear; those of the profile Levels a
// table over the levels of a category, which has any number of parameters.
type Leaf interface {
	// Params returns the parameters, in an order of the leaf's own.
	Params() []param.Param
	// String returns the leaf in the canonical text.
	String() string
	// Profile returns g.
	Profile() Family
	// NumFeatures returns the number of features.
	NumFeatures() int
	// RateOf returns the place among Params of a feature's rate, -1 for one that is fixed.
	RateOf(feature int) int
	// WarpsOf returns the places among Params of the parameters that a feature depends on.
	WarpsOf(feature int) []int
	// Shape returns the place among Params of the parameter that the profile depends on, -1 if
	// there is none.
	Shape() int

	check(dim int) error
	// at returns the leaf at the values of its parameters.
	at(theta []float64) LeafAt
}

// LeafAt is a leaf at given parameters.
type LeafAt interface {
	// Rate returns the rate of a feature.
	Rate(feature int) float64
	// Shape returns the number that the profile depends on, 0 if it depends on none.
	Shape() float64
	// Feature returns that of a point but for a constant, which a typical point chooses.
	Feature(feature int, x []float64, typical *Inputs) float64
	// Slope returns the derivative of Feature with respect to one of WarpsOf, or to its logarithm
	// where that is what the parameter is positive by. It panics if it is none of these.
	Slope(feature, param int, x []float64, typical *Inputs) float64

	// value returns g(x,y).
	value(x, y []float64) float64
	// addGradient adds w·∂g(x,y) by parameter i, or by its logarithm where it is positive, to g[at[i]],
	// for each of the leaf's parameters.
	addGradient(g []float64, at []int, w float64, x, y []float64)
	// addRates adds weight times the rates of the inputs' differences, where these are small.
	addRates(dst []float64, weight float64)
	// spectral reports whether addFrequency can draw.
	spectral() bool
	// addFrequency adds a draw from the leaf's spectral density, input by input.
	addFrequency(r *rand.Rand, w []float64)
	// differentiable reports whether functions of the leaf have derivatives in their inputs, in mean
	// square. Since a leaf is one at equal points, its own slope there is zero.
	differentiable() bool
	// addSlopes adds w·∂g(x,y)/∂x_k to dst[k], for each input k.
	addSlopes(dst []float64, w float64, x, y []float64)
	// addSlopeVariances adds w·∂²g(x,y)/∂x_k∂y_k at y = x to dst[k], for each input k.
	addSlopeVariances(dst []float64, w float64, x []float64)
}

// TermAt is a term by the places of what it is made of.
type TermAt struct {
	Variance int     // among the parameters, -1 for one that is fixed
	Fixed    float64 // that one
	Leaves   []int   // among the leaves
}

// New returns the sum of the terms, over points of dimension dim. It is an error
// if a term has no leaf, a leaf no inputs, a parameter no name, or two different
// roles.
func New(dim int, terms ...Term) (*Covariance, error) {
	if len(terms) == 0 {
		return nil, errors.New("a covariance needs a term")
	}
	c := &Covariance{dim: dim}
	names := map[string]int{} // of parameters: their places
	seen := map[string]int{}  // leaves by their text
	for _, t := range terms {
		at, err := c.term(names, t)
		if err != nil {
			return nil, err
		}
		for _, l := range t.Leaves {
			if err := l.check(dim); err != nil {
				return nil, err
			}
			places, err := c.addAll(names, l.Params())
			if err != nil {
				return nil, err
			}
			i, ok := seen[l.String()]
			if !ok {
				i = len(c.leaves)
				seen[l.String()] = i
				c.leaves, c.at = append(c.leaves, l), append(c.at, places)
			}
			at.Leaves = append(at.Leaves, i)
		}
		c.terms = append(c.terms, at)
	}
	return c, c.divide()
}

// term returns a term without its leaves.
func (c *Covariance) term(names map[string]int, t Term) (at TermAt, err error) {
	fixed := t.Variance.Symbol == ""
	switch {
	case len(t.Leaves) == 0:
		return at, fmt.Errorf("the term of %s has no leaf", t.Variance.Name())
	case fixed && !(t.Fixed > 0 && !math.IsInf(t.Fixed, 1)):
		return at, fmt.Errorf("a term has the variance %g: it must be positive", t.Fixed)
	case t.Variance.Role != param.Variance:
		return at, fmt.Errorf("the variance %s of a term has another role", t.Variance.Name())
	}
	c.names = append(c.names, t.Variance.Term)
	if fixed {
		return TermAt{Variance: -1, Fixed: t.Fixed}, nil
	}
	at.Variance, err = c.add(names, t.Variance)
	return at, err
}

// add returns the place of a parameter.
func (c *Covariance) add(names map[string]int, p param.Param) (int, error) {
	if p.Symbol == "" {
		return 0, errors.New("a parameter of the covariance has no name")
	}
	i, ok := names[p.Name()]
	if !ok {
		i = len(c.params)
		names[p.Name()] = i
		c.params = append(c.params, p)
		return i, nil
	}
	q := &c.params[i]
	switch {
	case q.Role != p.Role:
		return 0, fmt.Errorf("the parameter %s has two roles", p.Name())
	case q.Transform != p.Transform:
		return 0, fmt.Errorf("the parameter %s is of two inputs", p.Name())
	}
	q.Inputs = union(q.Inputs, p.Inputs)
	return i, nil
}

// union returns the elements of both in increasing order.
func union(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func (c *Covariance) addAll(names map[string]int, ps []param.Param) ([]int, error) {
	at := make([]int, len(ps))
	for i, p := range ps {
		var err error
		if at[i], err = c.add(names, p); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// Single returns the covariance of one family over all dim inputs, with the
// parameters sigma and tau, or, with a length-scale for each input (ard),
// tau[1] to tau[dim].
func Single(f Family, dim int, ard bool) *Covariance {
	leaf := &Stationary{Family: f}
	for k := range dim {
		leaf.Inputs = append(leaf.Inputs, k)
	}
	tau := param.Param{Symbol: "tau", Role: param.Rate}
	if !ard {
		leaf.Rates = []param.Param{tau}
	} else {
		for k := range dim {
			tau.Index = fmt.Sprint(k + 1)
			leaf.Rates = append(leaf.Rates, tau)
		}
	}
	c, err := New(dim, Term{Variance: param.Param{Symbol: "sigma", Role: param.Variance}, Leaves: []Leaf{leaf}})
	if err != nil {
		panic("kernel: " + err.Error())
	}
	return c
}

// Dim returns the dimension of the points.
func (c *Covariance) Dim() int { return c.dim }

// Params returns the parameters in the order of θ, to read.
func (c *Covariance) Params() param.List { return c.params }

// Leaves returns the leaves, each once, to read.
func (c *Covariance) Leaves() []Leaf { return c.leaves }

// LeafParams returns the places in θ of a leaf's parameters, to read.
func (c *Covariance) LeafParams(leaf int) []int { return c.at[leaf] }

// Terms returns the terms, to read.
func (c *Covariance) Terms() []TermAt { return c.terms }

// Part returns the covariance of one term alone, and the place of each of its parameters in
// those of the whole.
func (c *Covariance) Part(term int) (part *Covariance, at []int) { return c.of([]int{term}) }

// Parts returns the sum of some terms, and the places of its parameters among those of the whole.
func (c *Covariance) Parts(terms []int) (sum *Covariance, at []int) { return c.of(terms) }

// All returns the terms as they were given to New.
func (c *Covariance) All() []Term {
	var all []Term
	for i := range c.terms {
		all = append(all, c.whole(i))
	}
	return all
}

// Plus returns the sum of the covariance and more terms.
func (c *Covariance) Plus(terms ...Term) (*Covariance, error) {
	return New(c.dim, append(c.All(), terms...)...)
}

// Free returns the sum of the terms whose variance is a parameter, nil if there are none, and the places
// of its parameters among those of the whole.
func (c *Covariance) Free() (free *Covariance, at []int) {
	var terms []int
	for i, t := range c.terms {
		if t.Variance >= 0 {
			terms = append(terms, i)
		}
	}
	if len(terms) == 0 {
		return nil, nil
	}
	return c.of(terms)
}

// whole returns a term as it was given to New.
func (c *Covariance) whole(term int) Term {
	t := c.terms[term]
	one := Term{Variance: param.Param{Term: c.names[term], Role: param.Variance}, Fixed: t.Fixed}
	if t.Variance >= 0 {
		one.Variance = c.params[t.Variance]
	}
	for _, l := range t.Leaves {
		one.Leaves = append(one.Leaves, c.leaves[l])
	}
	return one
}

// of returns the covariance of some terms, and the places of its parameters in c's.
func (c *Covariance) of(terms []int) (part *Covariance, at []int) {
	var some []Term
	for _, i := range terms {
		some = append(some, c.whole(i))
	}
	part, err := New(c.dim, some...)
	if err != nil {
		panic("kernel: " + err.Error()) // it is part of one
	}
	for _, p := range part.params {
		at = append(at, slices.IndexFunc(c.params, func(q param.Param) bool { return q.Name() == p.Name() }))
	}
	return part, at
}

// TermName returns the name of a term, empty if it has none.
func (c *Covariance) TermName(term int) string { return c.names[term] }

// String returns the canonical text, which Parse reads:
//
//	sigma*rbf(1-3:tau)
//	a*rbf(1:u)*matern32(2:v[2],3:v[3])+b*rbf(1:w)+=100*linear(0,1)
//
// A term is the name of its variance, or the number that this is, and its leaves; a leaf lists its inputs,
// from 1, with their rates. Two covariances of the same text have the same values
// at the same θ.
func (c *Covariance) String() string {
	var terms []string
	for _, t := range c.terms {
		factors := []string{constant(t.Fixed)}
		if t.Variance >= 0 {
			factors[0] = quoted(c.params[t.Variance].Name())
		}
		for _, l := range t.Leaves {
			factors = append(factors, c.leaves[l].String())
		}
		terms = append(terms, strings.Join(factors, "*"))
	}
	return strings.Join(terms, "+")
}

// At returns the covariance at the given parameters. It panics if there are more
// or fewer than it has.
func (c *Covariance) At(theta []float64) *Function {
	if len(theta) != len(c.params) {
		panic(fmt.Sprintf("kernel: %d parameters, want %d", len(theta), len(c.params)))
	}
	f := &Function{cov: c, theta: slices.Clone(theta)}
	for l, leaf := range c.leaves {
		own := make([]float64, len(c.at[l]))
		for i, p := range c.at[l] {
			own[i] = theta[p]
		}
		f.leaves = append(f.leaves, leaf.at(own))
	}
	for t := range c.terms {
		f.scale += f.TermVariance(t)
	}
	f.pairs = f.cut()
	return f
}
