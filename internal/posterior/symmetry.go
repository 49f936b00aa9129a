package posterior

import (
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// alike is how much, relative to the largest, two covariances of the same rows may differ that are the same but for rounding.
const alike = 1e-10

// Symmetries returns the exchanges of parameters that leave the posterior as it is, each as the permutation that says which parameter stands in
// the place of which: of all parameters of two terms of a sum, or of two rates of one term, with the same priors, whose covariances of the
// data's rows are the same. So it is where terms are over the same inputs, or over columns that are equal but for shift, scale and sign.
// Covariances are compared at a point without symmetries of its own, between each row and three others.
func (p *Problem) Symmetries() [][]int {
	n := len(p.Y)
	if n < 3 {
		return nil
	}
	psi := make([]float64, len(p.Params))
	for i, q := range p.Params {
		psi[i] = q.Scale().Sampled(q.Prior.Typical()) + 0.3*math.Sin(float64(1+i*i))
	}
	var out [][]int
	for _, swap := range p.swaps() {
		moved := permuted(psi, swap)
		f, g := p.Function(psi), p.Function(moved)
		same := true
		for i := 0; same && i < n; i++ {
			x := p.Inputs.Row(i)
			for _, j := range []int{(i + 1) % n, 0, (7919*i + 1) % n} {
				y := p.Inputs.Row(j)
				same = same && math.Abs(f.Value(x, y)-g.Value(x, y)) <= alike*f.Scale()
			}
		}
		if same {
			out = append(out, swap)
		}
	}
	return out
}

// permuted returns x with its elements exchanged: element i is what was element places[i].
func permuted(x []float64, places []int) []float64 {
	out := make([]float64, len(x))
	for i, from := range places {
		out[i] = x[from]
	}
	return out
}

// swaps returns the exchanges that may be symmetries, by what is known without the covariance.
func (p *Problem) swaps() [][]int {
	var out [][]int
	swap := func(a, b []int) {
		places := make([]int, len(p.Params))
		for i := range places {
			places[i] = i
		}
		for k := range a {
			places[a[k]], places[b[k]] = b[k], a[k]
		}
		if !slices.ContainsFunc(out, func(o []int) bool { return slices.Equal(o, places) }) {
			out = append(out, places)
		}
	}
	var terms [][]int
	for t := range p.Covariance.Terms() {
		_, a := p.Covariance.Part(t)
		for _, b := range terms {
			if slices.EqualFunc(a, b, func(i, j int) bool {
				return i == j || p.interchangeable(i, j) && !slices.Contains(a, j) && !slices.Contains(b, i)
			}) {
				swap(a, b)
			}
		}
		for k, i := range a {
			for _, j := range a[:k] {
				if p.Params[i].Role == param.Rate && p.interchangeable(i, j) && p.equallyFar(i, j) {
					swap([]int{i}, []int{j})
				}
			}
		}
		terms = append(terms, a)
	}
	return out
}

// interchangeable reports whether two parameters are of one kind and have one prior.
func (p *Problem) interchangeable(i, j int) bool {
	a, b := p.Params[i], p.Params[j]
	return a.Role == b.Role && a.Symbol == b.Symbol && a.Unitless == b.Unitless && a.Spare == b.Spare && a.Prior.String() == b.Prior.String() &&
		a.Scale().Name("") == b.Scale().Name("")
}

// equallyFar reports whether two rates of one input each may be of the same differences: whether the first rows are as far apart in both inputs.
func (p *Problem) equallyFar(i, j int) bool {
	a, b := p.Params[i].Inputs, p.Params[j].Inputs
	if len(a) != 1 || len(b) != 1 {
		return len(a) == len(b)
	}
	x, y := p.Inputs.Row(0), p.Inputs.Row(1)
	da, db := math.Abs(x[a[0]]-y[a[0]]), math.Abs(x[b[0]]-y[b[0]])
	return math.Abs(da-db) <= 1e-9*max(1, da)
}
