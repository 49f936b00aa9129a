package kernel

import "math"

// The profiles of leaves that are not a covariance by their name alone. Each but Circular depends
// on a number a, its shape.
const (
	Rational    Family = NumFamilies + iota // (1+u/a)^(−a): rational quadratic
	Wendland                                // (1−r)^a·(1+a·r), 0 from r = 1 on, r = √(2u/(a(a+1)))
	Circular                                // 1−u: the cosine of an angle, where u is 1 less it
	Mismatch                                // exp(−a·u), u the number of features that differ
	NumProfiles = NumFamilies + iota
)

// Profiles returns all profiles, those of the families first.
func Profiles() []Family { return append(Families(), Rational, Wendland, Circular, Mismatch) }

// Shaped returns g(u) of a profile of the shape a, dg/du, and a·∂g/∂a. The profiles of families
// have no shape.
func (f Family) Shaped(u, a float64) (g, du, da float64) {
	switch f {
	case Rational:
		l, s := a*math.Log1p(u/a), 1+u/a
		g = math.Exp(-l)
		return g, -g / s, g * (u/s - l)
	case Wendland:
		r := math.Sqrt(2 * u / (a * (a + 1)))
		if r >= 1 {
			return 0, 0, 0
		}
		p := 1.0
		for range int(a) - 1 {
			p *= 1 - r
		}
		return p * (1 - r) * (1 + a*r), -p, 0
	case Circular:
		return 1 - u, -1, 0
	case Mismatch:
		g = math.Exp(-a * u)
		return g, -a * g, -a * u * g
	}
	return f.Value(u), f.Deriv(u), 0
}

// wendlandShape returns the least exponent for which Wendland's function of smoothness C² is
// positive definite over d inputs (Wendland 1995; 2005, table 9.1: ⌊d/2⌋+3).
func wendlandShape(d int) float64 { return float64(d/2 + 3) }
