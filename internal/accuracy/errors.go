package accuracy

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Errors are the standard errors of an estimate by source, and all together.
type Errors struct {
	MonteCarlo float64 // the finite number of draws
	Density    float64 // what is not known of the log density
	Bound      float64 // what was not computed to the end: a bound, taken as a standard error
}

// Total returns the standard error from all sources.
func (e Errors) Total() float64 {
	return math.Sqrt(e.MonteCarlo*e.MonteCarlo + e.Density*e.Density + e.Bound*e.Bound)
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

// Bound returns how far the estimate may be off if the log density at every draw is off by
// at most the bound given for it, laid out as the influence function.
func (e Estimate) Bound(bounds [][]float64) float64 {
	var sum, n float64
	for c, us := range e.Influence {
		for t, u := range us {
			w := 1.0
			if e.weights != nil {
				w = e.weights[t]
			}
			sum += w * math.Abs(u) * bounds[c][t]
			n += w
		}
	}
	return sum / n
}

// Shift is by how much an estimate is off, as fresh evaluations say, and the standard error
// of that.
type Shift struct{ Value, Error float64 }

// Stein returns the shifts of the means of the parameters from the residuals of the gradient
// of the log density at independent draws: unbiased estimates of it less the gradient that the
// draws were made with. By Stein's identity the means are off by C·mean(residual), to first
// order and as far as the posterior, of covariance C, is Gaussian. The error is from the
// residuals' spread.
func Stein(cov *mat.SymDense, residuals [][]float64) []Shift {
	p, n := cov.SymmetricDim(), float64(len(residuals))
	moves := make([][]float64, len(residuals))
	for i, r := range residuals {
		v := mat.NewVecDense(p, nil)
		v.MulVec(cov, mat.NewVecDense(p, r))
		moves[i] = v.RawVector().Data
	}
	out := make([]Shift, p)
	for k := range out {
		var mean, square float64
		for _, m := range moves {
			mean += m[k] / n
		}
		for _, m := range moves {
			square += (m[k] - mean) * (m[k] - mean) / (n - 1)
		}
		out[k] = Shift{mean, math.Sqrt(square / n)}
	}
	return out
}

// Residual is by how much the log density at a draw is off, by a fresh evaluation with noise
// of the given variance. Influence are the values of the estimates' influence functions there.
type Residual struct {
	Value, Variance float64
	Influence       []float64
}

// Values returns the shifts of estimates from residuals of the log density at independent
// draws, Cov(u, residual), with what noise and the finite number of residuals leave open.
func Values(residuals []Residual) []Shift {
	n := float64(len(residuals))
	var level float64
	for _, r := range residuals {
		level += r.Value / n
	}
	out := make([]Shift, len(residuals[0].Influence))
	for q := range out {
		var mean, sum, square float64
		for _, r := range residuals {
			mean += r.Influence[q] / n
		}
		for _, r := range residuals {
			v := (r.Influence[q] - mean) * (r.Value - level)
			sum += v / n
			square += v * v / n
		}
		out[q] = Shift{sum, math.Sqrt(max(0, square-sum*sum) / n)}
	}
	return out
}
