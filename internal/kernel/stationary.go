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

// String returns the leaf in the canonical text: rbf(1-3:tau).
func (s *Stationary) String() string {
	var parts []string
	for i := 0; i < len(s.Inputs); {
		j := i + 1
		for j < len(s.Inputs) && s.Inputs[j] == s.Inputs[j-1]+1 && s.rate(j).Name() == s.rate(i).Name() {
			j++
		}
		text := fmt.Sprint(s.Inputs[i] + 1)
		if j > i+1 {
			text += fmt.Sprintf("-%d", s.Inputs[j-1]+1)
		}
		parts = append(parts, text+":"+quoted(s.rate(i).Name()))
		i = j
	}
	return s.Family.String() + "(" + strings.Join(parts, ",") + ")"
}

// rate returns the rate of feature i.
func (s *Stationary) rate(i int) param.Param {
	if len(s.Rates) == 1 {
		return s.Rates[0]
	}
	return s.Rates[i]
}

func (s *Stationary) check(dim int) error {
	switch {
	case s.Family < 0 || s.Family >= NumFamilies:
		return fmt.Errorf("%v is no covariance family", s.Family)
	case len(s.Inputs) == 0:
		return fmt.Errorf("the %v has no inputs", s.Family)
	case len(s.Rates) != 1 && len(s.Rates) != len(s.Inputs):
		return fmt.Errorf("the %v has %d rates for %d inputs", s.Family, len(s.Rates), len(s.Inputs))
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

func (s *Stationary) at(theta []float64) leafAt {
	return &stationaryAt{s, theta}
}

// stationaryAt is a stationary leaf at given rates.
type stationaryAt struct {
	*Stationary
	tau []float64
}

func (s *stationaryAt) tauOf(i int) float64 {
	if len(s.tau) == 1 {
		return s.tau[0]
	}
	return s.tau[i]
}

// dist returns u.
func (s *stationaryAt) dist(x, y []float64) float64 {
	var u float64
	for i, k := range s.Inputs {
		d := x[k] - y[k]
		u += s.tauOf(i) * d * d
	}
	return u
}

func (s *stationaryAt) value(x, y []float64) float64 { return s.Family.Value(s.dist(x, y)) }

func (s *stationaryAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	u := s.dist(x, y)
	w *= s.Family.Deriv(u)
	// A rate with an index is one of several, though there may be one input only.
	if len(s.Rates) == 1 && s.Rates[0].Index == "" {
		g[at[0]] += w * u
		return
	}
	for i, k := range s.Inputs {
		d := x[k] - y[k]
		g[at[min(i, len(at)-1)]] += w * s.tauOf(i) * d * d
	}
}

func (s *stationaryAt) addRates(dst []float64, weight float64) {
	for i, k := range s.Inputs {
		dst[k] += weight * s.tauOf(i)
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
		w[k] += stretch * r.NormFloat64() / Lengthscale(s.tauOf(i))
	}
}
