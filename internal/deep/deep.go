// Package deep has Gaussian processes by random features, and deep ones, whose layers these are (Cutajar, Bonilla, Michiardi and Filippone,
// ICML 2017), with a variational posterior that is learnt from minibatches.
//
// A layer maps D inputs z to Q outputs by N frequencies Ω, D×N, and weights W:
//
//	RBF          φ(z) = √(σ/N) [cos zΩ, sin zΩ]    E φ(z)·φ(z') = σ exp(−Σ_k τ_k (z_k−z'_k)²)
//	arc-cosine   φ(z) = √(2σ/N) max(0, zΩ)         E φ(z)·φ(z') = (σ/π) ‖z‖‖z'‖ (sin α + (π−α) cos α), ‖z‖² = Σ_k 2τ_k z_k², α the angle
//	f = φ(z) W,  W ~ N(0,I),  Ω_kj ~ N(0, 2τ_k)
//
// The first layer sees the inputs x, any other what the one before it answers, with x beside it. The posterior of W is taken for normal
// with independent elements, N(m, s²). The bound of the log evidence is
//
//	Σ_i E log p(y_i|f_i) − KL(q(W) ‖ p(W)) − KL(q(Ω) ‖ p(Ω))
//
// Given what a layer sees, the Q outputs in a row are normal and independent, of mean φm and variance φ²s²: hidden layers are drawn so, with random
// numbers of each row (local reparametrisation, Kingma, Salimans and Welling 2015), and what is left of the last layer is an expectation of one normal variable a function.
// Gradients are by reverse mode, by hand. A sum over rows is one over chunks of 64 in their order, so that bits do not depend on threads.
package deep

import (
	"fmt"
	"math"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// Covariance is that of each layer.
type Covariance string

// The covariances.
const (
	RBF       Covariance = "rbf"
	ArcCosine Covariance = "arc-cosine" // of order 1: rectified linear features
)

// Frequencies says what becomes of Ω.
type Frequencies string

// The treatments (Cutajar et al. 2017, section 3.3).
const (
	PriorFixed       Frequencies = "prior-fixed"       // Ω_kj = √(2τ_k) ε_kj, ε drawn once
	VariationalFixed Frequencies = "variational-fixed" // Ω = μ + βε, μ and β learnt beside τ, ε drawn once
	Resampled        Frequencies = "resampled"         // the same, ε drawn anew at each step
)

// Covariances and Treatments are all there are; the first is the default.
var (
	Covariances = []Covariance{RBF, ArcCosine}
	Treatments  = []Frequencies{PriorFixed, VariationalFixed, Resampled}
)

// Config is the shape of a network.
type Config struct {
	Inputs      int // columns of x
	Layers      int // 1 or more
	Features    int // N: of RBF there are a cosine and a sine of each frequency
	Hidden      int // functions of a hidden layer
	Covariance  Covariance
	Frequencies Frequencies
	ARD         bool   // a rate for each input of a layer, or one for all of them
	Seed        uint64 // of all that is random
}

// Network is a deep Gaussian process with its parameters left open: a vector whose parts are, layer after layer, log σ, log τ, unless frequencies are prior-fixed
// the means and the log variances of Ω (D×N by rows), the means and the log variances of W (features × Q by rows); then the output's own parameters.
// It is immutable.
type Network struct {
	Config
	out    Output
	layers []layer
	size   int
	fixed  [][]float64 // ε of each layer, D×N, where it is drawn once
}

// layer is the shape of a layer, and where its parameters begin.
type layer struct {
	in, out            int
	rates, freq, width int // freq frequencies make width features
	sigma, tau         int // log σ, log τ
	mu, beta           int // means and log variances of Ω
	m, s               int // means and log variances of W
}

// New returns a network. It panics if a number is not positive, or a word is unknown.
func New(c Config, out Output) *Network {
	if c.Inputs < 1 || c.Layers < 1 || c.Features < 1 || c.Hidden < 1 {
		panic(fmt.Sprintf("deep: a network of the shape %+v", c))
	}
	n := &Network{Config: c, out: out}
	for l := range c.Layers {
		y := layer{in: c.Inputs, out: c.Hidden, rates: 1, freq: c.Features, width: c.Features}
		if l > 0 {
			y.in += c.Hidden
		}
		if l == c.Layers-1 {
			y.out = out.Functions()
		}
		if c.Covariance == RBF {
			y.width = 2 * c.Features
		}
		if c.ARD {
			y.rates = y.in
		}
		y.sigma = n.take(1)
		y.tau = n.take(y.rates)
		if n.variational() {
			y.mu = n.take(y.in * y.freq)
			y.beta = n.take(y.in * y.freq)
		}
		y.m = n.take(y.width * y.out)
		y.s = n.take(y.width * y.out)
		n.layers = append(n.layers, y)
		if c.Frequencies != Resampled {
			n.fixed = append(n.fixed, n.normals(l, 0, y.in*y.freq))
		}
	}
	n.size += out.Params()
	return n
}

func (n *Network) take(count int) (at int) {
	at = n.size
	n.size += count
	return at
}

// variational reports whether frequencies have a posterior of their own.
func (n *Network) variational() bool { return n.Frequencies != PriorFixed }

// normals returns ε of a layer: at step 0 that of all steps.
func (n *Network) normals(l, step, count int) []float64 {
	e := make([]float64, count)
	random.Normal(random.Key{Seed: n.Seed, Iter: step}.Stream(random.Frequencies, l), e)
	return e
}

// Size returns the length of the vector of parameters.
func (n *Network) Size() int { return n.size }

// Variance returns the place of the last layer's log σ, and Rates the first layer's log τ: how many, from where.
func (n *Network) Variance() int { return n.layers[len(n.layers)-1].sigma }

// Rates returns the places of the first layer's log τ, from lo up to hi.
func (n *Network) Rates() (lo, hi int) { return n.layers[0].tau, n.layers[0].tau + n.layers[0].rates }

// Own returns the place of the output's own parameters.
func (n *Network) Own() int { return n.size - n.out.Params() }

// Where the weights begin.
const (
	startMean   = 0.1  // standard deviation of the means, around 0
	startSpread = -4.0 // log variance
)

// Start returns where learning begins: σ = 1, 2τ = 1/D, frequencies as the prior has them, weights near 0, by the seed. The output's own parameters are 0.
func (n *Network) Start() []float64 {
	x := make([]float64, n.size)
	for l, y := range n.layers {
		for k := range y.rates {
			x[y.tau+k] = -math.Log(2 * float64(y.in))
		}
		r := random.Key{Seed: n.Seed}.Stream(random.Weights, l)
		for k := range y.width * y.out {
			x[y.m+k], x[y.s+k] = startMean*r.NormFloat64(), startSpread
		}
	}
	n.Settle(x)
	return x
}

// Settle makes the posterior of the frequencies what their prior is at the rates in x; nothing if they have none.
func (n *Network) Settle(x []float64) {
	if !n.variational() {
		return
	}
	for _, y := range n.layers {
		for k := range y.in {
			for j := range y.freq {
				x[y.mu+k*y.freq+j], x[y.beta+k*y.freq+j] = 0, math.Ln2+x[y.rate(k)]
			}
		}
	}
}

// rate returns the place of log τ of an input of a layer.
func (y *layer) rate(k int) int {
	if y.rates == 1 {
		return y.tau
	}
	return y.tau + k
}

// Divergence returns KL(q ‖ p) of weights and frequencies, and subtracts its gradient from grad.
func (n *Network) Divergence(x, grad []float64) (kl float64) {
	for l := range n.layers {
		y := &n.layers[l]
		for k := range y.width * y.out {
			m, lv := x[y.m+k], x[y.s+k]
			v := math.Exp(lv)
			kl += 0.5 * (v + m*m - 1 - lv)
			grad[y.m+k] -= m
			grad[y.s+k] -= 0.5 * (v - 1)
		}
		if n.variational() {
			kl += y.frequencyDivergence(x, grad)
		}
	}
	return kl
}

// frequencyDivergence is Divergence of the frequencies of a layer: Ω_kj ~ N(μ, v), a priori N(0, 2τ_k).
func (y *layer) frequencyDivergence(x, grad []float64) (kl float64) {
	for k := range y.in {
		t := y.rate(k)
		prior := math.Ln2 + x[t] // log variance
		for j := range y.freq {
			a, b := y.mu+k*y.freq+j, y.beta+k*y.freq+j
			ratio, mean := math.Exp(x[b]-prior), x[a]*math.Exp(-prior)
			kl += 0.5 * (ratio + x[a]*mean - 1 - x[b] + prior)
			grad[a] -= mean
			grad[b] -= 0.5 * (ratio - 1)
			grad[t] += 0.5 * (ratio + x[a]*mean - 1)
		}
	}
	return kl
}
