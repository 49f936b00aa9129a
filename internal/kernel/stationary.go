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

// Stationary is the leaf g(u) of a family, of Rational or of one of Wendland's functions, u = Σ_k τ_k (x_k−y_k)².
// Its features are some of the inputs, each scaled by the root of its rate.
type Stationary struct {
	Family Family
	Inputs []int         // from 0
	Rates  []param.Param // one for all inputs, or one for each
	Fixed  []float64     // the rates, where they are numbers and not parameters: Rates is empty
	// Alpha is the shape of Rational; where it has no name, it is this number.
	Alpha      param.Param
	FixedAlpha float64
}

// Params returns the rates, with their inputs, then Alpha, as far as they are not fixed.
func (s *Stationary) Params() []param.Param {
	out := slices.Clone(s.Rates)
	for i := range out {
		out[i].Inputs = s.Inputs
		if len(out) > 1 {
			out[i].Inputs = s.Inputs[i : i+1]
		}
	}
	if s.Alpha.Symbol != "" {
		out = append(out, s.Alpha)
	}
	return out
}

// Profile returns the family.
func (s *Stationary) Profile() Family { return s.Family }

// NumFeatures returns the number of inputs.
func (s *Stationary) NumFeatures() int { return len(s.Inputs) }

// RateOf returns the place of the rate of a feature.
func (s *Stationary) RateOf(feature int) int { return min(feature, len(s.Rates)-1) }

// WarpsOf returns none: the features are the inputs.
func (s *Stationary) WarpsOf(int) []int { return nil }

// Shape returns the place of Alpha.
func (s *Stationary) Shape() int {
	if s.Alpha.Symbol == "" {
		return -1
	}
	return len(s.Rates)
}

// String returns the leaf in the canonical text: rbf(1-3:tau), rq(1-3:tau;alpha).
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
	text := s.Family.String() + "(" + strings.Join(parts, ",")
	if s.Family == Rational {
		text += ";" + fixedOr(s.Alpha, s.FixedAlpha)
	}
	return text + ")"
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
	case s.Family < 0 || s.Family > Rational && !s.Family.Compact():
		return fmt.Errorf("%v is no covariance family", s.Family)
	case s.Family == Rational && s.Alpha.Symbol == "" && !positive(s.FixedAlpha):
		return fmt.Errorf("the rq has the shape %g: it must be positive", s.FixedAlpha)
	case s.Alpha.Symbol != "" && s.Alpha.Role != param.Shape:
		return fmt.Errorf("the shape %s has another role", s.Alpha.Name())
	case s.Family != Rational && (s.Alpha.Symbol != "" || s.FixedAlpha != 0):
		return fmt.Errorf("the %v has the shape of an rq", s.Family)
	case len(s.Inputs) == 0:
		return fmt.Errorf("the %v has no inputs", s.Family)
	case len(s.Rates) > 0 && len(s.Fixed) > 0:
		return fmt.Errorf("the %v has rates that are fixed and others", s.Family)
	case len(s.Rates)+len(s.Fixed) != 1 && len(s.Rates)+len(s.Fixed) != len(s.Inputs):
		return fmt.Errorf("the %v has %d rates for %d inputs", s.Family, len(s.Rates)+len(s.Fixed), len(s.Inputs))
	case slices.ContainsFunc(s.Fixed, func(tau float64) bool { return !positive(tau) }):
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

// positive reports whether x is a positive number.
func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

func (s *Stationary) at(theta []float64) LeafAt {
	at := &stationaryAt{Stationary: s, tau: theta[:len(s.Rates)]}
	if len(s.Fixed) > 0 {
		at.tau = s.Fixed
	}
	switch i := s.Shape(); {
	case i >= 0:
		at.shape = theta[i]
	case s.Family == Rational:
		at.shape = s.FixedAlpha
	case s.Family.Compact():
		at.shape = s.Family.wendlandShape(len(s.Inputs))
	}
	return at
}

// stationaryAt is a stationary leaf at given parameters.
type stationaryAt struct {
	*Stationary
	tau   []float64
	shape float64
}

func (s *stationaryAt) Shape() float64 { return s.shape }

func (s *stationaryAt) Rate(feature int) float64 { return s.tau[min(feature, len(s.tau)-1)] }

func (s *stationaryAt) Feature(feature int, x []float64, typical *Inputs) float64 {
	k := s.Inputs[feature]
	return x[k] - typical.Centre(k)
}

func (s *stationaryAt) Slope(int, int, []float64, *Inputs) float64 {
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

func (s *stationaryAt) value(x, y []float64) float64 {
	u := s.dist(x, y)
	if s.Family < NumFamilies {
		return s.Family.Value(u)
	}
	g, _, _ := s.Family.Shaped(u, s.shape)
	return g
}

// deriv returns dg/du.
func (s *stationaryAt) deriv(u float64) float64 {
	if s.Family < NumFamilies {
		return s.Family.Deriv(u)
	}
	_, du, _ := s.Family.Shaped(u, s.shape)
	return du
}

func (s *stationaryAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	if len(at) == 0 {
		return
	}
	u := s.dist(x, y)
	if i := s.Stationary.Shape(); i >= 0 {
		_, _, da := s.Family.Shaped(u, s.shape)
		g[at[i]] += w * da
	}
	if len(s.Rates) == 0 {
		return
	}
	w *= s.deriv(u)
	// A rate with an index is one of several, though there may be one input only.
	if len(s.Rates) == 1 && s.Rates[0].Index == "" {
		g[at[0]] += w * u
		return
	}
	for i, k := range s.Inputs {
		d := x[k] - y[k]
		g[at[s.RateOf(i)]] += w * s.Rate(i) * d * d
	}
}

func (s *stationaryAt) addRates(dst []float64, weight float64) {
	for i, k := range s.Inputs {
		dst[k] += weight * s.Rate(i)
	}
}

// spectral is false for Wendland's functions, whose spectral densities are known as integrals only.
func (s *stationaryAt) spectral() bool { return !s.Family.Compact() }

// addFrequency adds a frequency of the family's spectral density: Gaussian for RBF, Student's t
// with 2ν degrees of freedom for a Matérn of smoothness ν, and that of a mixture of RBFs, whose
// rates are multiplied by a gamma variable of shape α and mean 1, for Rational.
func (s *stationaryAt) addFrequency(r *rand.Rand, w []float64) {
	stretch := 1.0
	switch s.Family {
	case RBF:
	case Wendland, Wendland0, Wendland2:
		panic("kernel: no draws from the spectral density of Wendland's function")
	case Rational:
		stretch = math.Sqrt(distuv.Gamma{Alpha: s.shape, Beta: s.shape, Src: r}.Rand())
	default:
		nu2 := s.Family.Rate() / 2
		chi := distuv.ChiSquared{K: nu2, Src: r}.Rand()
		stretch = math.Sqrt(nu2 / chi)
	}
	for i, k := range s.Inputs {
		w[k] += stretch * r.NormFloat64() / Lengthscale(s.Rate(i))
	}
}
