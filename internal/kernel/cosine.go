package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Cosine is the leaf cos(2π(x−y)/p) of one input: one less half the squared distance of the features
// cos(2πx/p) and sin(2πx/p). Times a leaf that falls off slowly it is a component of a spectral
// mixture (Wilson and Adams 2013, eq. 12).
type Cosine struct {
	Input int // from 0
	// Unit is the difference of the input, in the unit that the period is told in, where the
	// standardised one is 1: its standard deviation.
	Unit        float64
	Period      param.Param // where it has no name, it is FixedPeriod
	FixedPeriod float64
}

const cosineName = "cosine"

// periodic returns the periodic leaf of the same features, whose rate is a half.
func (c *Cosine) periodic() *Periodic {
	return &Periodic{Input: c.Input, Unit: c.Unit, Period: c.Period, FixedPeriod: c.FixedPeriod, FixedRate: 0.5}
}

// Params returns the period, unless it is fixed.
func (c *Cosine) Params() []param.Param { return c.periodic().Params() }

// String returns the leaf in the canonical text, input, period and unit: cosine(1:=1:13.2).
func (c *Cosine) String() string {
	return fmt.Sprintf("%s(%d:%s:%v)", cosineName, c.Input+1, fixedOr(c.Period, c.FixedPeriod), c.Unit)
}

// Profile returns Circular.
func (c *Cosine) Profile() Family { return Circular }

// NumFeatures returns 2.
func (c *Cosine) NumFeatures() int { return 2 }

// RateOf returns -1.
func (c *Cosine) RateOf(int) int { return -1 }

// WarpsOf returns the place of the period.
func (c *Cosine) WarpsOf(feature int) []int { return c.periodic().WarpsOf(feature) }

// Shape returns -1.
func (c *Cosine) Shape() int { return -1 }

func (c *Cosine) check(dim int) error {
	switch {
	case c.Input < 0 || c.Input >= dim:
		return fmt.Errorf("%v is over input %d of %d", c, c.Input+1, dim)
	case !positive(c.Unit):
		return fmt.Errorf("%v has the unit %g: it must be positive", c, c.Unit)
	case c.Period.Symbol == "" && !positive(c.FixedPeriod):
		return fmt.Errorf("%v has the period %g: it must be positive", c, c.FixedPeriod)
	case c.Period.Symbol != "" && c.Period.Role != param.Period:
		return fmt.Errorf("a parameter of %v has another role", c)
	}
	return nil
}

func (c *Cosine) at(theta []float64) LeafAt {
	return &cosineAt{c.periodic().at(theta).(*periodicAt)}
}

// cosineAt is a cosine leaf at given parameters. It has the features of the periodic leaf.
type cosineAt struct{ *periodicAt }

func (c *cosineAt) value(x, y []float64) float64 {
	u, _ := c.dist(x, y)
	return 1 - u
}

func (c *cosineAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	for _, i := range c.WarpsOf(0) {
		_, a := c.dist(x, y)
		g[at[i]] += w * a * math.Sin(a)
	}
}

// addFrequency adds 2π/p or −2π/p.
func (c *cosineAt) addFrequency(r *rand.Rand, w []float64) {
	if r.Float64() < 0.5 {
		w[c.Input] += c.angular()
	} else {
		w[c.Input] -= c.angular()
	}
}

func (c *cosineAt) addSlopes(dst []float64, w float64, x, y []float64) {
	_, a := c.dist(x, y)
	dst[c.Input] -= w * c.angular() * math.Sin(a)
}
