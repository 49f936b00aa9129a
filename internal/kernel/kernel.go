// Package kernel holds the covariance functions: their shapes, parameters,
// the names of those parameters in every output, and the map between the
// natural scale θ and the log scale ψ = log θ on which they are sampled.
//
// A covariance is k(x,x') = σ·g(u) with u = Σ_k τ_k (x_k−x'_k)². The inverse
// squared length-scales are τ = 1/(2ℓ²) for every family, so that the same ℓ
// means the same length-scale in all of them.
package kernel

import (
	"fmt"
	"math"
	"strings"
)

// Family is the shape g of a stationary covariance function.
type Family int

// The families. RBF is the squared exponential of Filippone and Engler (2015,
// eq. 1, with the minus sign the print drops).
const (
	RBF      Family = iota // exp(−u)
	Matern12               // exp(−a), a = √(2u)
	Matern32               // (1+a)·exp(−a), a = √(6u)
	Matern52               // (1+a+a²/3)·exp(−a), a = √(10u)
	numFamilies
)

var familyNames = [numFamilies]string{"rbf", "matern12", "matern32", "matern52"}

// Families returns all families in order.
func Families() []Family { return []Family{RBF, Matern12, Matern32, Matern52} }

// FamilyNames returns the names that ParseFamily accepts.
func FamilyNames() []string { return familyNames[:] }

// String returns the family's name in specs, flags and outputs.
func (f Family) String() string {
	if f < 0 || f >= numFamilies {
		return fmt.Sprintf("Family(%d)", int(f))
	}
	return familyNames[f]
}

// ParseFamily returns the family of the given name.
func ParseFamily(name string) (Family, error) {
	for i, s := range familyNames {
		if s == name {
			return Family(i), nil
		}
	}
	return 0, fmt.Errorf("unknown kernel %q: use one of %s", name, strings.Join(familyNames[:], ", "))
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

// Params are covariance parameters on the natural scale.
type Params struct {
	Sigma  float64   `json:"sigma"`  // marginal variance of the latent function
	Tau    []float64 `json:"tau"`    // inverse squared length-scales 1/(2ℓ²): one shared, or one for each input
	Lambda float64   `json:"lambda"` // noise variance
}

// TauAt returns τ of input k whether it is shared or not.
func (p Params) TauAt(k int) float64 {
	if len(p.Tau) == 1 {
		return p.Tau[0]
	}
	return p.Tau[k]
}

// Dist returns u = Σ_k τ_k (x_k−y_k)².
func (p Params) Dist(x, y []float64) float64 {
	var u float64
	for k, xk := range x {
		d := xk - y[k]
		u += p.TauAt(k) * d * d
	}
	return u
}

// Lengthscale returns ℓ = 1/√(2τ).
func Lengthscale(tau float64) float64 { return 1 / math.Sqrt(2*tau) }

// Model is a covariance function with its parameters left open: what is
// sampled. The parameter vector is ψ = log(σ, τ_1…τ_m, λ).
type Model struct {
	Family Family
	Dim    int  // number of inputs d
	ARD    bool // one τ for each input (m = d) rather than one shared (m = 1)
}

// NumTau returns m, the number of inverse squared length-scales.
func (m Model) NumTau() int {
	if m.ARD {
		return m.Dim
	}
	return 1
}

// NumParams returns the length of ψ.
func (m Model) NumParams() int { return m.NumTau() + 2 }

// Names returns the parameters' names in the order of ψ: sigma, tau or
// tau[1]…tau[d], lambda.
func (m Model) Names() []string {
	names := []string{"sigma"}
	if m.ARD {
		for k := range m.Dim {
			names = append(names, fmt.Sprintf("tau[%d]", k+1))
		}
	} else {
		names = append(names, "tau")
	}
	return append(names, "lambda")
}

// Params returns θ = exp(ψ). It panics if ψ has the wrong length.
func (m Model) Params(psi []float64) Params {
	if len(psi) != m.NumParams() {
		panic(fmt.Sprintf("kernel: %d parameters, want %d", len(psi), m.NumParams()))
	}
	last := len(psi) - 1
	p := Params{Sigma: math.Exp(psi[0]), Lambda: math.Exp(psi[last]), Tau: make([]float64, last-1)}
	for k := range p.Tau {
		p.Tau[k] = math.Exp(psi[1+k])
	}
	return p
}

// Psi returns ψ = log θ.
func (m Model) Psi(p Params) []float64 {
	psi := make([]float64, 0, m.NumParams())
	psi = append(psi, math.Log(p.Sigma))
	for _, t := range p.Tau {
		psi = append(psi, math.Log(t))
	}
	return append(psi, math.Log(p.Lambda))
}
