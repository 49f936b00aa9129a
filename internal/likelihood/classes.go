package likelihood

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// twoClasses is what the likelihoods of two classes, 0 and 1, have in common: no parameters of their own.
type twoClasses struct{}

// Params returns nothing.
func (twoClasses) Params() param.List { return nil }

// Check returns an error if a target is neither 0 nor 1.
func (twoClasses) Check(y []float64) error {
	ones := 0
	for i, v := range y {
		if v != 0 && v != 1 {
			return fmt.Errorf("the target of row %d is %g: the likelihood is of two classes, 0 and 1", i+1, v)
		}
		ones += int(v)
	}
	if ones == 0 || ones == len(y) {
		return fmt.Errorf("the targets of all %d rows are of one class: there is nothing to tell apart", len(y))
	}
	return nil
}

// Standardized returns false.
func (twoClasses) Standardized() bool { return false }

// Width returns 1.
func (twoClasses) Width() int { return 1 }

// Held returns 0: there are no parameters.
func (twoClasses) Held() int { return 0 }

// NoiseGradient returns nothing: there are no parameters.
func (twoClasses) NoiseGradient(_, _ []float64) [][]float64 { return nil }
