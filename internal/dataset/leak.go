package dataset

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// Bounds of the search for columns that add up to the target.
const (
	leakTerms   = 4    // columns at most
	leakColumns = 200  // that are looked at
	leakRows    = 2000 // evenly spaced
	leakLeft    = 1e-9 // of the target's variance, which is rounding
)

// Leak returns the names of the few columns of numbers of which the target is a sum with weights and a constant, with nothing left
// over but rounding; nil if it finds none. They are searched for one by one, each the most correlated with what the ones before
// leave over (orthogonal matching pursuit).
func Leak(columns []Column, target string) []string {
	at := slices.IndexFunc(columns, func(c Column) bool { return c.Name == target })
	if at < 0 || len(columns[at].numbers) == 0 {
		return nil
	}
	step := (len(columns[at].numbers) + leakRows - 1) / leakRows
	left := thinned(columns[at].numbers, step)
	if left == nil || floats.Dot(left, left) == 0 || len(left) < 10*leakTerms {
		return nil
	}
	all := floats.Dot(left, left)
	var names []string
	var basis [][]float64
	var of []string
	for i, c := range columns {
		if i == at || c.Type != Numbers && c.Type != Integers || len(of) == leakColumns {
			continue
		}
		if x := thinned(c.numbers, step); len(x) == len(left) && floats.Dot(x, x) > 0 {
			basis, of = append(basis, x), append(of, c.Name)
		}
	}
	for range min(leakTerms, len(basis)) {
		best, most := -1, 0.0
		for k, x := range basis {
			if norm := floats.Norm(x, 2); norm > 0 {
				if share := math.Abs(floats.Dot(x, left)) / norm; share > most {
					best, most = k, share
				}
			}
		}
		if best < 0 {
			return nil
		}
		names = append(names, of[best])
		one := slices.Clone(basis[best])
		floats.Scale(1/floats.Norm(one, 2), one)
		for _, x := range append(basis, left) { // what has nothing of it any more
			before := floats.Dot(x, x)
			floats.AddScaled(x, -floats.Dot(x, one), one)
			if floats.Dot(x, x) <= 1e-20*before {
				clear(x)
			}
		}
		if floats.Dot(left, left) <= leakLeft*all {
			return names
		}
	}
	return nil
}

// thinned returns every so many values less their mean; nil if one is missing.
func thinned(x []float64, step int) []float64 {
	var out []float64
	for i := 0; i < len(x); i += step {
		out = append(out, x[i])
	}
	if slices.ContainsFunc(out, math.IsNaN) {
		return nil
	}
	floats.AddConst(-stat.Mean(out, nil), out)
	return out
}
