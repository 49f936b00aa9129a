// Package kernel holds covariance functions. A Covariance is an expression with
// its parameters left open, a sum of terms:
//
//	k(x,x') = Σ_t σ_t Π_ℓ g_ℓ(x,x')
//
// Each term has one variance and a product of leaves. A Stationary leaf is a
// Family g(u) of the squared distance u = Σ_k τ_k (x_k−x'_k)² over some of the
// inputs; other leaves have other features than the inputs, or another profile g. The inverse squared length-scales are τ = 1/(2ℓ²) for every family, so
// that the same ℓ means the same length-scale in all of them.
//
// A Function is a Covariance at given parameters. It evaluates single elements,
// one at a time; package cmvp multiplies by the whole matrix.
package kernel

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Family is the shape g of a stationary covariance function.
type Family int

// The families. RBF is the squared exponential of Filippone and Engler (2015,
// eq. 1, with the minus sign the print drops).
const (
	RBF         Family = iota // exp(−u)
	Matern12                  // exp(−a), a = √(2u)
	Matern32                  // (1+a)·exp(−a), a = √(6u)
	Matern52                  // (1+a+a²/3)·exp(−a), a = √(10u)
	NumFamilies = iota
)

// Dot is the profile of leaves that are no function of a distance: the dot product of their
// features, Σ_q a_q(x)·a_q(y). It is not one of the families.
const Dot Family = -1

// Levels is the profile of leaves that are a table over the levels of a category, such as *Coregion. Nor
// is it one of the families.
const Levels Family = -2

var familyNames = [NumProfiles]string{"rbf", "matern12", "matern32", "matern52", "rq", "wendland", cosineName, hammingName, "wendland0", "wendland2"}

// Families returns all families in order.
func Families() []Family { return []Family{RBF, Matern12, Matern32, Matern52} }

// FamilyNames returns the names that ParseFamily accepts.
func FamilyNames() []string { return familyNames[:NumFamilies] }

// String returns the family's name in specs, flags and outputs.
func (f Family) String() string {
	if f < 0 || f >= NumProfiles {
		return fmt.Sprintf("Family(%d)", int(f))
	}
	return familyNames[f]
}

// ParseFamily returns the family of the given name.
func ParseFamily(name string) (Family, error) {
	if i := slices.Index(FamilyNames(), name); i >= 0 {
		return Family(i), nil
	}
	return 0, fmt.Errorf("unknown kernel %q: use one of %s", name, strings.Join(FamilyNames(), ", "))
}

// Rate returns c in a = √(c·u) for the Matérn families, and 0 for RBF.
func (f Family) Rate() float64 {
	switch f {
	case Matern12:
		return 2
	case Matern32:
		return 6
	case Matern52:
		return 10
	}
	return 0
}

// Value returns g(u), u ≥ 0.
func (f Family) Value(u float64) float64 {
	if f == RBF {
		return math.Exp(-u)
	}
	a := math.Sqrt(f.Rate() * u)
	switch f {
	case Matern12:
		return math.Exp(-a)
	case Matern32:
		return (1 + a) * math.Exp(-a)
	case Matern52:
		return (1 + a + a*a/3) * math.Exp(-a)
	}
	panic("kernel: bad family")
}

// Deriv returns dg/du at u ≥ 0. The derivative of Matérn 1/2 is infinite at
// u = 0, but it only ever appears multiplied by a squared distance that is 0
// there, so Deriv returns 0, which makes every such product its limit.
func (f Family) Deriv(u float64) float64 {
	if f == RBF {
		return -math.Exp(-u)
	}
	a := math.Sqrt(f.Rate() * u)
	switch f {
	case Matern12:
		if a == 0 {
			return 0
		}
		return -math.Exp(-a) / a
	case Matern32:
		return -3 * math.Exp(-a)
	case Matern52:
		return -5.0 / 3 * (1 + a) * math.Exp(-a)
	}
	panic("kernel: bad family")
}

// Lengthscale returns ℓ = 1/√(2τ).
func Lengthscale(tau float64) float64 { return 1 / math.Sqrt(2*tau) }
