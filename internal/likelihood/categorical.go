package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Categorical is the likelihood of classes without an order, 0, 1, 2, …, with a latent function for each: p(y=c|f) ∝ exp(f_c), the softmax
// function (Williams and Barber 1998). It has no parameters of its own.
type Categorical struct {
	several
	Classes []string
}

var _ Several = Categorical{}

// Name returns categorical.
func (Categorical) Name() string { return "categorical" }

// Params returns nothing.
func (Categorical) Params() param.List { return nil }

// Check returns an error if a target is none of the classes. A class may be without rows if it is named: its function then is known from
// the others' alone.
func (c Categorical) Check(y []float64) error {
	n := len(c.Classes)
	if n < 2 {
		return fmt.Errorf("model.likelihood: categorical needs two classes or more, and there are %d", n)
	}
	if n > maxClasses {
		return fmt.Errorf("the target has %d values: model.likelihood: categorical is for %d classes at most; join some, or learn it as a number", n, maxClasses)
	}
	same := true
	for i, v := range y {
		if !(v >= 0 && v < float64(n) && v == math.Round(v)) {
			return fmt.Errorf("the target of row %d is %g: the %d classes of model.likelihood: categorical have the numbers from 0 on", i+1, v, n)
		}
		same = same && v == y[0]
	}
	if same {
		return fmt.Errorf("the targets of all %d rows are of one class: there is nothing to tell apart", len(y))
	}
	return nil
}

// Standardized returns false.
func (Categorical) Standardized() bool { return false }

// Functions returns the number of classes.
func (c Categorical) Functions() int { return len(c.Classes) }

// Coupled returns true.
func (Categorical) Coupled() bool { return true }

// Terms returns log p(y|f), its gradient e_y − p and minus its Hessian, diag(p) − ppᵀ.
func (Categorical) Terms(_ []float64, y float64, f, score, curvature []float64) float64 {
	all := floats.LogSumExp(f)
	if score != nil {
		for c, v := range f {
			score[c] = -math.Exp(v - all)
		}
		for c, p := range score {
			for d, q := range score {
				curvature[c*len(f)+d] = -p * q
			}
			curvature[c*len(f)+c] -= p
		}
		score[int(y)]++
	}
	return f[int(y)] - all
}

// DrawAll draws a class: the first of independent exponential times with the rates exp(f_c).
func (Categorical) DrawAll(r *rand.Rand, _, f []float64) float64 {
	first, best := 0, math.Inf(-1)
	for c, v := range f {
		if u := v - math.Log(r.ExpFloat64()); u > best {
			first, best = c, u
		}
	}
	return float64(first)
}

// PredictAll returns the mean over the draws of the probabilities of the classes.
func (c Categorical) PredictAll(_, mean, variance [][]float64) Predictive {
	out := Categories{make([]float64, len(c.Classes))}
	for t := range mean {
		floats.Add(out.P, softmaxMean(mean[t], variance[t]))
	}
	floats.Scale(1/floats.Sum(out.P), out.P)
	return out
}

// Constants of softmaxMean: the steps of its two sums, as a share of the width of the strip in which what is summed is analytic and
// bounded, and where they end.
const (
	raceStep = 0.4 // of π/2: the error falls as exp(−2π/raceStep), to 1e-6
	raceTail = 6.5 // standard deviations
	raceLast = 15  // −log of the probability that is left out
)

// softmaxMean returns E exp(f_c)/Σ_d exp(f_d), f independent and normal, to 1e-6 or better. Of independent exponential times with the rates
// exp(f_c) the c-th is the first with this probability given f; so it is, with t = e^(−u) and the Laplace transforms L_c(t) = E exp(−t·e^(f_c)),
//
//	P(c) = −∫ L_c'(t) Π_(d≠c) L_d(t) dt
//
// an integral over u of functions of one variable each, whatever the number of classes. It, and the expectations in it, are sums at equal
// steps, which converge exponentially: all functions are analytic for |Im u| < π/2.
func softmaxMean(mean, variance []float64) []float64 {
	const h = raceStep * math.Pi / 2
	n := len(mean)
	sd, lo, hi := make([]float64, n), math.Inf(-1), math.Inf(-1)
	for c, v := range variance {
		sd[c] = math.Sqrt(v)
		lo = max(lo, mean[c]-raceTail*sd[c]-math.Log(2*raceLast))
		hi = max(hi, mean[c]+min(v/2, raceTail*sd[c])+raceLast+math.Log(float64(n)))
	}
	weights := make([][]float64, n)
	for c := range weights {
		weights[c] = normalWeights(min(h, h/sd[c]))
	}
	out, transform, slope := make([]float64, n), make([]float64, n), make([]float64, n)
	for u := lo; u <= hi; u += h {
		for c := range n {
			transform[c], slope[c] = 0, 0
			w, step := weights[c], min(h, h/sd[c])
			for k, weight := range w {
				rate := math.Exp(mean[c] + sd[c]*step*float64(k-len(w)/2) - u) // t·e^f
				e := weight * math.Exp(-rate)
				transform[c] += e
				slope[c] += e * rate
			}
		}
		for c := range n {
			p := slope[c]
			for d, l := range transform {
				if d != c {
					p *= l
				}
			}
			out[c] += p
		}
	}
	floats.Scale(1/floats.Sum(out), out)
	return out
}

// normalWeights returns the weights of a sum at equal steps about 0 that is the expectation under N(0,1).
func normalWeights(step float64) []float64 {
	m := int(math.Ceil(raceTail / step))
	w := make([]float64, 2*m+1)
	for k := range w {
		w[k] = normalDensity(step * float64(k-m))
	}
	floats.Scale(1/floats.Sum(w), w)
	return w
}

// Categories is the distribution of a target that is one of the classes 0, 1, 2, … without an order, with the probability of each. Of what
// has a meaning for numbers alone it has nothing: moments, CDF and quantiles are NaN.
type Categories struct{ P []float64 }

// Shares returns the probability of each of three or more classes, or of classes without an order; nil of another distribution.
func Shares(p Predictive) []float64 {
	switch d := p.(type) {
	case Classes:
		return d.P
	case Categories:
		return d.P
	}
	return nil
}

// Moments returns NaN.
func (Categories) Moments() (mean, sd float64) { return math.NaN(), math.NaN() }

// CDF returns NaN.
func (Categories) CDF(float64) float64 { return math.NaN() }

// Quantile returns NaN.
func (Categories) Quantile(float64) float64 { return math.NaN() }

// LogDensity returns the log probability of class y, −∞ where it is none.
func (c Categories) LogDensity(y float64) float64 { return Classes(c).LogDensity(y) }

// CRPS returns the Brier score of class y, Σ_c (P_c − 1{c=y})² (Brier 1950), which is that of classes without an order.
func (c Categories) CRPS(y float64) float64 {
	var sum float64
	for k, p := range c.P {
		if float64(k) == y {
			p--
		}
		sum += p * p
	}
	return sum
}

// Scaled returns the distribution itself: classes have no units.
func (c Categories) Scaled(_, _ float64) Predictive { return c }
