package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Periodic is the leaf exp(−4τ·sin²(π(x−y)/p)) of one input (MacKay 1998, with τ = 1/(2ℓ²)):
// an RBF of the features cos(2πx/p) and sin(2πx/p).
type Periodic struct {
	Input int // from 0
	// Unit is the difference of the input, in the unit that the period is told in, where the
	// standardised one is 1: its standard deviation.
	Unit float64
	// Rate and Period are parameters; where they have no name, they are these numbers.
	Rate, Period           param.Param
	FixedRate, FixedPeriod float64
}

// Params returns the rate, then the period, as far as they are not fixed. The rate is of
// differences on the circle, not of the input's.
func (p *Periodic) Params() (out []param.Param) {
	if p.Rate.Symbol != "" {
		out = append(out, p.Rate)
	}
	if q := p.Period; q.Symbol != "" {
		q.Inputs = []int{p.Input}
		out = append(out, q)
	}
	return out
}

// String returns the leaf in the canonical text, input, rate, period and unit:
// periodic(1:tau:=1:13.2).
func (p *Periodic) String() string {
	return fmt.Sprintf("%s(%d:%s:%s:%v)", periodicName, p.Input+1, fixedOr(p.Rate, p.FixedRate), fixedOr(p.Period, p.FixedPeriod), p.Unit)
}

const periodicName = "periodic"

// fixedOr returns a parameter in the canonical text, or the number that it is fixed at.
func fixedOr(p param.Param, fixed float64) string {
	if p.Symbol != "" {
		return quoted(p.Name())
	}
	return constant(fixed)
}

// Profile returns RBF.
func (p *Periodic) Profile() Family { return RBF }

// NumFeatures returns 2.
func (p *Periodic) NumFeatures() int { return 2 }

// RateOf returns the place of the rate, which the features share.
func (p *Periodic) RateOf(int) int {
	if p.Rate.Symbol == "" {
		return -1
	}
	return 0
}

// WarpsOf returns the place of the period, on which both features depend.
func (p *Periodic) WarpsOf(int) []int {
	if p.Period.Symbol == "" {
		return nil
	}
	return []int{p.RateOf(0) + 1}
}

// Shape returns -1.
func (p *Periodic) Shape() int { return -1 }

func (p *Periodic) check(dim int) error {
	switch {
	case p.Input < 0 || p.Input >= dim:
		return fmt.Errorf("%v is over input %d of %d", p, p.Input+1, dim)
	case !positive(p.Unit):
		return fmt.Errorf("%v has the unit %g: it must be positive", p, p.Unit)
	case p.Rate.Symbol == "" && !positive(p.FixedRate):
		return fmt.Errorf("%v has the rate %g: it must be positive", p, p.FixedRate)
	case p.Period.Symbol == "" && !positive(p.FixedPeriod):
		return fmt.Errorf("%v has the period %g: it must be positive", p, p.FixedPeriod)
	case p.Rate.Symbol != "" && p.Rate.Role != param.Rate || p.Period.Symbol != "" && p.Period.Role != param.Period:
		return fmt.Errorf("a parameter of %v has another role", p)
	}
	return nil
}

func (p *Periodic) at(theta []float64) LeafAt {
	at := &periodicAt{p, p.FixedRate, p.FixedPeriod}
	if i := p.RateOf(0); i >= 0 {
		at.tau = theta[i]
	}
	for _, i := range p.WarpsOf(0) {
		at.period = theta[i]
	}
	return at
}

// periodicAt is a periodic leaf at given parameters.
type periodicAt struct {
	*Periodic
	tau, period float64
}

// angular returns 2π/p for differences of the standardised input.
func (p *periodicAt) angular() float64 { return 2 * math.Pi * p.Unit / p.period }

func (p *periodicAt) angle(x []float64, typical *Inputs) float64 {
	return p.angular() * (x[p.Input] - typical.Centre(p.Input))
}

func (p *periodicAt) Rate(int) float64 { return p.tau }

func (p *periodicAt) Shape() float64 { return 0 }

func (p *periodicAt) Feature(feature int, x []float64, typical *Inputs) float64 {
	sin, cos := math.Sincos(p.angle(x, typical))
	return [2]float64{cos, sin}[feature]
}

// Slope is with respect to log p: the angle falls as the period grows.
func (p *periodicAt) Slope(feature, _ int, x []float64, typical *Inputs) float64 {
	a := p.angle(x, typical)
	sin, cos := math.Sincos(a)
	return [2]float64{a * sin, -a * cos}[feature]
}

// dist returns u = 4τ·sin²(a/2), a the difference of the angles.
func (p *periodicAt) dist(x, y []float64) (u, a float64) {
	a = p.angular() * (x[p.Input] - y[p.Input])
	sin := math.Sin(a / 2)
	return 4 * p.tau * sin * sin, a
}

func (p *periodicAt) value(x, y []float64) float64 {
	u, _ := p.dist(x, y)
	return RBF.Value(u)
}

func (p *periodicAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	u, a := p.dist(x, y)
	w *= RBF.Deriv(u)
	if i := p.RateOf(0); i >= 0 {
		g[at[i]] += w * u
	}
	for _, i := range p.WarpsOf(0) {
		g[at[i]] -= w * 2 * p.tau * a * math.Sin(a)
	}
}

// addRates adds the rate of near points: u ≈ τ·a².
func (p *periodicAt) addRates(dst []float64, weight float64) {
	dst[p.Input] += weight * p.tau * p.angular() * p.angular()
}

func (p *periodicAt) spectral() bool { return true }

// addFrequency adds a multiple of 2π/p. That of order j has the weight e^(−2τ)·I_j(2τ), the
// coefficient of the leaf's Fourier series (Abramowitz and Stegun 9.6.34), which is the
// distribution of the difference of two Poisson variables of mean τ (Skellam 1946).
func (p *periodicAt) addFrequency(r *rand.Rand, w []float64) {
	d := distuv.Poisson{Lambda: p.tau, Src: r}
	w[p.Input] += p.angular() * (d.Rand() - d.Rand())
}
