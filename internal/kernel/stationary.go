package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Stationary is the leaf g(u) of a family, u = Σ_k τ_k (x_k−y_k)². Its features
// are some of the inputs, each scaled by the root of its rate.
type Stationary struct {
	Family Family
	Inputs []int         // from 0
	Rates  []param.Param // one for all inputs, or one for each
	Fixed  []float64     // the rates, where they are numbers and not parameters: Rates is empty
}

// Params returns the rates, with their inputs.
func (s *Stationary) Params() []param.Param {
	out := slices.Clone(s.Rates)
	for i := range out {
		out[i].Inputs = s.Inputs
		if len(out) > 1 {
			out[i].Inputs = s.Inputs[i : i+1]
		}
	}
	return out
}

// Profile returns the family.
func (s *Stationary) Profile() Family { return s.Family }

// NumFeatures returns the number of inputs.
func (s *Stationary) NumFeatures() int { return len(s.Inputs) }

// RateOf returns the place of the rate of a feature.
func (s *Stationary) RateOf(feature int) int { return min(feature, len(s.Rates)-1) }

// Warp returns -1: the features are the inputs.
func (s *Stationary) Warp() int { return -1 }

// String returns the leaf in the canonical text: rbf(1-3:tau).
func (s *Stationary) String() string {
	var parts []string
	for i := 0; i < len(s.Inputs); {
		j := i + 1
		for j < len(s.Inputs) && s.Inputs[j] == s.Inputs[j-1]+1 && s.rateText(j) == s.rateText(i) {
			j++
		}
		text := fmt.Sprint(s.Inputs[i] + 1)
		if j > i+1 {
			text += fmt.Sprintf("-%d", s.Inputs[j-1]+1)
		}
		parts = append(parts, text+":"+s.rateText(i))
		i = j
	}
	return s.Family.String() + "(" + strings.Join(parts, ",") + ")"
}

// rateText returns the rate of feature i in the canonical text.
func (s *Stationary) rateText(i int) string {
	if len(s.Fixed) > 0 {
		return constant(s.Fixed[min(i, len(s.Fixed)-1)])
	}
	return quoted(s.Rates[s.RateOf(i)].Name())
}

func (s *Stationary) check(dim int) error {
	switch {
	case s.Family < 0 || s.Family >= NumFamilies:
		return fmt.Errorf("%v is no covariance family", s.Family)
	case len(s.Inputs) == 0:
		return fmt.Errorf("the %v has no inputs", s.Family)
	case len(s.Rates) > 0 && len(s.Fixed) > 0:
		return fmt.Errorf("the %v has rates that are fixed and others", s.Family)
	case len(s.Rates)+len(s.Fixed) != 1 && len(s.Rates)+len(s.Fixed) != len(s.Inputs):
		return fmt.Errorf("the %v has %d rates for %d inputs", s.Family, len(s.Rates)+len(s.Fixed), len(s.Inputs))
	case slices.ContainsFunc(s.Fixed, func(tau float64) bool { return !(tau > 0) || math.IsInf(tau, 1) }):
		return fmt.Errorf("the %v has the rates %v: they must be positive", s.Family, s.Fixed)
	}
	for i, k := range s.Inputs {
		if k < 0 || k >= dim {
			return fmt.Errorf("%v is over input %d of %d", s, k+1, dim)
		}
		if slices.Contains(s.Inputs[:i], k) {
			return fmt.Errorf("%v is over input %d twice", s, k+1)
		}
	}
	for _, p := range s.Rates {
		if p.Role != param.Rate {
			return fmt.Errorf("the rate %s has another role", p.Name())
		}
	}
	if len(s.Rates) > 1 && s.sameRates() {
		return fmt.Errorf("the rates of %v are one: give it once", s)
	}
	return nil
}

func (s *Stationary) sameRates() bool {
	return !slices.ContainsFunc(s.Rates, func(p param.Param) bool { return p.Name() != s.Rates[0].Name() })
}

func (s *Stationary) at(theta []float64) LeafAt {
	if len(s.Fixed) > 0 {
		theta = s.Fixed
	}
	return &stationaryAt{s, theta}
}

// stationaryAt is a stationary leaf at given rates.
type stationaryAt struct {
	*Stationary
	tau []float64
}

func (s *stationaryAt) Rate(feature int) float64 { return s.tau[min(feature, len(s.tau)-1)] }

func (s *stationaryAt) Feature(feature int, x []float64, typical *Inputs) float64 {
	k := s.Inputs[feature]
	return x[k] - typical.Centre(k)
}

func (s *stationaryAt) Slope(int, []float64, *Inputs) float64 {
	panic("kernel: a stationary leaf has inputs as features")
}

// dist returns u.
func (s *stationaryAt) dist(x, y []float64) float64 {
	var u float64
	for i, k := range s.Inputs {
		d := x[k] - y[k]
		u += s.Rate(i) * d * d
	}
	return u
}

func (s *stationaryAt) value(x, y []float64) float64 { return s.Family.Value(s.dist(x, y)) }

func (s *stationaryAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	if len(s.Rates) == 0 {
		return
	}
	u := s.dist(x, y)
	w *= s.Family.Deriv(u)
	// A rate with an index is one of several, though there may be one input only.
	if len(s.Rates) == 1 && s.Rates[0].Index == "" {
		g[at[0]] += w * u
		return
	}
	for i, k := range s.Inputs {
		d := x[k] - y[k]
		g[at[min(i, len(at)-1)]] += w * s.Rate(i) * d * d
	}
}

func (s *stationaryAt) addRates(dst []float64, weight float64) {
	for i, k := range s.Inputs {
		dst[k] += weight * s.Rate(i)
	}
}

// addFrequency adds a frequency of the family's spectral density: Gaussian for
// RBF, and Student's t with 2ν degrees of freedom for a Matérn of smoothness ν.
func (s *stationaryAt) addFrequency(r *rand.Rand, w []float64) {
	stretch := 1.0
	if s.Family != RBF {
		nu2 := s.Family.Rate() / 2
		chi := distuv.ChiSquared{K: nu2, Src: r}.Rand()
		stretch = math.Sqrt(nu2 / chi)
	}
	for i, k := range s.Inputs {
		w[k] += stretch * r.NormFloat64() / Lengthscale(s.Rate(i))
	}
}
