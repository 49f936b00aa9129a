package accuracy

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// Errors are the standard errors of an estimate by source, and all together.
type Errors struct {
	MonteCarlo float64 // the finite number of draws
	Density    float64 // what is not known of the log density
}

// Total returns the standard error from all sources.
func (e Errors) Total() float64 {
	return math.Hypot(e.MonteCarlo, e.Density)
}

// Unknown is a function that enters the log density and is known with an error only
// (surrogate.Model is one).
type Unknown interface {
	// Variances returns the variances of the errors of Σ_i w[q][i]·f(points[i]).
	Variances(points [][]float64, w [][]float64) []float64
}

// mostPoints bounds the draws that an error of the density is averaged over: the average is
// over the posterior, whose own spread it depends on, and so is good to a few percent.
const mostPoints = 500

// Density returns the standard errors of estimates, all of the same draws, for an unknown f
// that enters the log density as factor·f: −½ for log|K|. points are the draws, as the
// estimates have them. Each estimate moves by factor·Cov(u, δf), with u its influence
// function.
func Density(f Unknown, factor float64, points [][][]float64, estimates []Estimate) []float64 {
	count := 0
	for _, c := range points {
		count += len(c)
	}
	step := (count + mostPoints - 1) / mostPoints
	var at [][]float64
	w := make([][]float64, len(estimates))
	weights := estimates[0].weights
	var mass float64
	i := 0
	for c := range points {
		for t, x := range points[c] {
			if i%step == 0 {
				wi := 1.0
				if weights != nil {
					wi = weights[i]
				}
				mass += wi
				at = append(at, x)
				for q, e := range estimates {
					w[q] = append(w[q], wi*e.Influence[c][t])
				}
			}
			i++
		}
	}
	for q := range w {
		// The influence has mean zero over all draws, not over those taken; the error of
		// the function's level must not enter.
		floats.Scale(factor/mass, w[q])
		floats.AddConst(-floats.Sum(w[q])/float64(len(w[q])), w[q])
	}
	out := f.Variances(at, w)
	for q := range out {
		out[q] = math.Sqrt(out[q])
	}
	return out
}
