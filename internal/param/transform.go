package param

import (
	"fmt"
	"math"
)

// Transform is the map between a parameter's natural scale θ and the one on which it is sampled, ψ. The
// zero Transform is Log.
type Transform struct {
	kind kind
	a, b float64 // the centre and the unit, or the ends of the interval, or what it is above
}

type kind int

const (
	positive kind = iota
	anywhere
	within
	above
)

// Log is for parameters that are positive: ψ = log θ.
var Log = Transform{}

// Real is for parameters that may be any number: ψ = (θ−centre)/unit, so that steps in ψ are about as
// large as those of others.
func Real(centre, unit float64) Transform { return Transform{anywhere, centre, unit} }

// Interval is for parameters between two numbers: ψ = log((θ−lo)/(hi−θ)).
func Interval(lo, hi float64) Transform { return Transform{within, lo, hi} }

// Above is for parameters above a number: ψ = log(θ−lo).
func Above(lo float64) Transform { return Transform{above, lo, 0} }

// Natural returns θ.
func (t Transform) Natural(psi float64) float64 {
	switch t.kind {
	case anywhere:
		return t.a + t.b*psi
	case within:
		return t.a + (t.b-t.a)*share(psi)
	}
	return t.a + math.Exp(psi)
}

// Sampled returns ψ.
func (t Transform) Sampled(theta float64) float64 {
	switch t.kind {
	case anywhere:
		return (theta - t.a) / t.b
	case within:
		return math.Log(theta-t.a) - math.Log(t.b-theta)
	}
	return math.Log(theta - t.a)
}

// Slope returns dθ/dψ.
func (t Transform) Slope(psi float64) float64 {
	switch t.kind {
	case anywhere:
		return t.b
	case within:
		return (t.b - t.a) * share(psi) * share(-psi)
	}
	return math.Exp(psi)
}

// share returns the logistic function.
func share(psi float64) float64 { return 1 / (1 + math.Exp(-psi)) }

// usable reports whether θ is finite, and inside of where it may be.
func (t Transform) usable(theta float64) bool {
	switch {
	case math.IsNaN(theta) || math.IsInf(theta, 0):
		return false
	case t.kind == within:
		return t.a < theta && theta < t.b
	}
	return t.kind == anywhere || theta != t.a
}

// Label returns the name of ψ for people, given that of θ.
func (t Transform) Label(name string) string {
	switch t.kind {
	case anywhere:
		return name + ", standardised"
	case within:
		return "logit " + name
	case above:
		return fmt.Sprintf("log (%s − %g)", name, t.a)
	}
	return "log " + name
}

// Name returns the name of ψ, given that of θ: log_tau, logit_place, place_std, log_excess_df.
func (t Transform) Name(symbol string) string {
	switch t.kind {
	case anywhere:
		return symbol + "_std"
	case within:
		return "logit_" + symbol
	case above:
		return "log_excess_" + symbol
	}
	return "log_" + symbol
}
