package kernel

import (
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// plain is what leaves of the profile Dot have in common, and those of them without parameters besides.
type plain struct{}

// Params returns none.
func (plain) Params() []param.Param { return nil }

// Profile returns Dot.
func (plain) Profile() Family { return Dot }

// RateOf returns -1: features have no rates.
func (plain) RateOf(int) int { return -1 }

// WarpsOf returns none: the features depend on no parameter.
func (plain) WarpsOf(int) []int { return nil }

// Shape returns -1: nor does the profile.
func (plain) Shape() int { return -1 }

// Rate returns 1.
func (plain) Rate(int) float64 { return 1 }

// Slope panics: the features depend on no parameter.
func (plain) Slope(int, int, []float64, *Inputs) float64 {
	panic("kernel: a leaf without parameters")
}

func (plain) addGradient([]float64, []int, float64, []float64, []float64) {}

func (plain) addRates([]float64, float64) {}

func (plain) spectral() bool { return true }

func (plain) addFrequency(*rand.Rand, []float64) {}

func (plain) differentiable() bool { return true }
