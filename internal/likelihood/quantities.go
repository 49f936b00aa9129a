package likelihood

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// Quantity is something that people are told of several latent functions.
type Quantity struct {
	Name    string
	Shifted bool // with the target, if that is shifted; it is scaled as the target
	// Of returns it where the functions are f, in the units of the (standardised) target. theta are the likelihood's own parameters.
	Of func(theta, f []float64) float64
}

// Telling is a Several that says what it tells of its functions.
type Telling interface {
	Several
	// Latents returns what is told of each function, the c-th of function c alone.
	Latents() []Quantity
	// Expected returns what is told of a target where the functions are known, in the order of Latents.
	Expected() []Quantity
}

// Moments returns mean and standard deviation of a Quantity of function c alone, which is at each of some draws normal with the given mean
// and variance: of the mixture over the draws. It sums at equal steps.
func (q Quantity) Moments(c, functions int, theta [][]float64, mean, variance []float64) (centre, sd float64) {
	weights, f := normalWeights(momentStep), make([]float64, functions)
	values := make([]float64, 0, len(mean)*len(weights))
	for t := range mean {
		for k := range weights {
			f[c] = mean[t] + math.Sqrt(variance[t])*momentStep*float64(k-len(weights)/2)
			values = append(values, q.Of(theta[t], f))
		}
	}
	n := float64(len(mean))
	for k, v := range values {
		centre += weights[k%len(weights)] * v / n
	}
	for k, v := range values {
		sd += weights[k%len(weights)] * (v - centre) * (v - centre) / n
	}
	return centre, math.Sqrt(sd)
}

// momentStep is the step of the sums of moments, in standard deviations.
const momentStep = 0.5

// Latents returns the function of each class.
func (c Categorical) Latents() (out []Quantity) {
	for k, name := range c.Classes {
		out = append(out, Quantity{Name: name, Of: func(_, f []float64) float64 { return f[k] }})
	}
	return out
}

// Expected returns the probability of each class.
func (c Categorical) Expected() (out []Quantity) {
	for k, name := range c.Classes {
		out = append(out, Quantity{Name: "p[" + name + "]", Of: func(_, f []float64) float64 { return math.Exp(f[k] - floats.LogSumExp(f)) }})
	}
	return out
}

// Latents returns the mean of the target and the standard deviation of its noise.
func (Heteroscedastic) Latents() []Quantity {
	return []Quantity{
		{Name: "mean", Shifted: true, Of: func(_, f []float64) float64 { return f[0] }},
		{Name: "noise_sd", Of: func(theta, f []float64) float64 { return math.Sqrt(theta[0] * math.Exp(f[1])) }},
	}
}

// Expected returns the same.
func (h Heteroscedastic) Expected() []Quantity { return h.Latents() }
