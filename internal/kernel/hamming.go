package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Hamming is the leaf exp(−τ·#{k: x_k ≠ y_k}) over categories, whose values are whole numbers: points
// have the correlation e^(−τ) for each input in which they differ, whatever the levels.
type Hamming struct {
	Inputs []int // from 0
	// Tau is a parameter of the role Mismatch; where it has no name, it is FixedTau.
	Tau      param.Param
	FixedTau float64
}

const hammingName = "hamming"

// Params returns Tau, unless it is fixed.
func (h *Hamming) Params() []param.Param {
	if h.Tau.Symbol == "" {
		return nil
	}
	tau := h.Tau
	tau.Inputs = h.Inputs
	return []param.Param{tau}
}

// String returns the leaf in the canonical text: hamming(1-3:tau).
func (h *Hamming) String() string {
	s := Stationary{Family: Mismatch, Inputs: h.Inputs, Rates: []param.Param{h.Tau}}
	if h.Tau.Symbol == "" {
		s.Rates, s.Fixed = nil, []float64{h.FixedTau}
	}
	return s.String()
}

// hammingOf returns the leaf that was read as if it were stationary.
func hammingOf(s *Stationary) (*Hamming, error) {
	h := &Hamming{Inputs: s.Inputs}
	switch {
	case len(s.Rates)+len(s.Fixed) != 1:
		return nil, errors.New("a hamming has one parameter: give each input a leaf of its own")
	case len(s.Rates) == 1:
		h.Tau = s.Rates[0]
		h.Tau.Role = param.Mismatch
	default:
		h.FixedTau = s.Fixed[0]
	}
	return h, nil
}

// Profile returns Mismatch.
func (h *Hamming) Profile() Family { return Mismatch }

// NumFeatures returns the number of inputs, which are the features.
func (h *Hamming) NumFeatures() int { return len(h.Inputs) }

// RateOf returns -1: the profile counts features that differ.
func (h *Hamming) RateOf(int) int { return -1 }

// WarpsOf returns none.
func (h *Hamming) WarpsOf(int) []int { return nil }

// Shape returns the place of Tau.
func (h *Hamming) Shape() int { return len(h.Params()) - 1 }

func (h *Hamming) check(dim int) error {
	s := Stationary{Inputs: h.Inputs, Fixed: []float64{1}}
	switch {
	case h.Tau.Symbol == "" && !positive(h.FixedTau):
		return fmt.Errorf("%v has the tau %g: it must be positive", h, h.FixedTau)
	case h.Tau.Symbol != "" && h.Tau.Role != param.Mismatch:
		return fmt.Errorf("the tau %s has another role", h.Tau.Name())
	}
	return s.check(dim)
}

func (h *Hamming) at(theta []float64) LeafAt {
	if len(theta) > 0 {
		return &hammingAt{h, theta[0]}
	}
	return &hammingAt{h, h.FixedTau}
}

// hammingAt is a hamming leaf at given parameters.
type hammingAt struct {
	*Hamming
	tau float64
}

func (h *hammingAt) Rate(int) float64 { return 1 }

func (h *hammingAt) Shape() float64 { return h.tau }

// Feature is the level: its place, from 0, so that it is exact in either precision.
func (h *hammingAt) Feature(feature int, x []float64, _ *Inputs) float64 { return x[h.Inputs[feature]] }

func (h *hammingAt) Slope(int, int, []float64, *Inputs) float64 {
	panic("kernel: a hamming leaf has inputs as features")
}

// dist returns u, the number of inputs in which x and y differ.
func (h *hammingAt) dist(x, y []float64) (u float64) {
	for _, k := range h.Inputs {
		if x[k] != y[k] {
			u++
		}
	}
	return u
}

func (h *hammingAt) value(x, y []float64) float64 { return math.Exp(-h.tau * h.dist(x, y)) }

func (h *hammingAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	if len(at) > 0 {
		_, _, da := Mismatch.Shaped(h.dist(x, y), h.tau)
		g[at[0]] += w * da
	}
}

// addRates adds τ, so that rows of one level are near, and those of two are not.
func (h *hammingAt) addRates(dst []float64, weight float64) {
	for _, k := range h.Inputs {
		dst[k] += weight * h.tau
	}
}

func (h *hammingAt) spectral() bool { return true }

// addFrequency adds, for each input, 0 with probability e^(−τ), or else a uniform angle: the mean of its
// cosine over whole numbers is 1 at 0 and 0 elsewhere.
func (h *hammingAt) addFrequency(r *rand.Rand, w []float64) {
	for _, k := range h.Inputs {
		if r.Float64() >= math.Exp(-h.tau) {
			w[k] += 2 * math.Pi * r.Float64()
		}
	}
}

// differentiable is true: there is nothing to differentiate in, and other leaves of the term may be
// over inputs that have slopes.
func (h *hammingAt) differentiable() bool { return true }

func (h *hammingAt) addSlopes([]float64, float64, []float64, []float64) {}

func (h *hammingAt) addSlopeVariances([]float64, float64, []float64) {}
