package kernel

import "math"

// The profiles of leaves that are not a covariance by their name alone. Each but Circular depends
// on a number a, its shape. Wendland's functions are φ_{D,q} of Rasmussen and Williams (2006, eq. 4.21), q = 0, 1 and 2, scaled so that they begin like
// a Matérn 1/2 and, the others, like an RBF.
const (
	Rational    Family = NumFamilies + iota // (1+u/a)^(−a): rational quadratic
	Wendland                                // (1−r)^a·(1+a·r), 0 from r = 1 on, r = √(2u/(a(a+1))), a whole number a
	Circular                                // 1−u: the cosine of an angle, where u is 1 less it
	Mismatch                                // exp(−a·u), u the number of features that differ
	Wendland0                               // (1−r)^a, 0 from r = 1 on, r = √(2u)/a, a whole number a
	Wendland2                               // (1−r)^a·(1+a·r+(a²−1)/3·r²), 0 from r = 1 on, r = √(6u/((a+1)(a+2))), a whole number a
	NumProfiles = NumFamilies + iota
)

// Profiles returns all profiles, those of the families first.
func Profiles() []Family {
	return append(Families(), Rational, Wendland, Circular, Mismatch, Wendland0, Wendland2)
}

// Shaped returns g(u) of a profile of the shape a, dg/du, and a·∂g/∂a. The profiles of families
// have no shape.
func (f Family) Shaped(u, a float64) (g, du, da float64) {
	switch f {
	case Rational:
		l, s := a*math.Log1p(u/a), 1+u/a
		g = math.Exp(-l)
		return g, -g / s, g * (u/s - l)
	case Wendland, Wendland0, Wendland2:
		g, du = f.wendland(u, a)
		return g, du, 0
	case Circular:
		return 1 - u, -1, 0
	case Mismatch:
		g = math.Exp(-a * u)
		return g, -a * g, -a * u * g
	}
	return f.Value(u), f.Deriv(u), 0
}

// Compact reports whether the profile is one of Wendland's functions, which are 0 from some distance on.
func (f Family) Compact() bool { return f == Wendland0 || f == Wendland || f == Wendland2 }

// wendland returns g and dg/du of one of Wendland's functions. The derivative of that of smoothness C⁰ is infinite at u = 0, where
// it only ever appears multiplied by 0, and 0 stands for it, as in Deriv.
func (f Family) wendland(u, a float64) (g, du float64) {
	var r float64
	switch f {
	case Wendland0:
		r = math.Sqrt(2*u) / a
	case Wendland:
		r = math.Sqrt(2 * u / (a * (a + 1)))
	case Wendland2:
		r = math.Sqrt(6 * u / ((a + 1) * (a + 2)))
	}
	if r >= 1 {
		return 0, 0
	}
	p := 1.0
	for range int(a) - 1 {
		p *= 1 - r
	}
	switch {
	case f == Wendland:
		return p * (1 - r) * (1 + a*r), -p
	case f == Wendland2:
		return p * (1 - r) * (1 + r*(a+r*(a*a-1)/3)), -p * (1 + (a-1)*r)
	case u == 0:
		return 1, 0
	}
	return p * (1 - r), -p / math.Sqrt(2*u)
}

// wendlandShape returns the least exponent for which one of Wendland's functions is positive definite over d inputs (Wendland 1995; 2005,
// table 9.1: ⌊d/2⌋+2q+1 for smoothness C^2q).
func (f Family) wendlandShape(d int) float64 {
	switch f {
	case Wendland0:
		return float64(d/2 + 1)
	case Wendland:
		return float64(d/2 + 3)
	}
	return float64(d/2 + 5)
}
