package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Poisson is the likelihood of counts of mean e^f, and of that variance. It has no parameters of its own.
//
// As a function of f it is exp(yf − e^f)/y!, which is nearly a mixture of normals (normalMixtures).
type Poisson struct{}

var _ ClosedForm = Poisson{}

// Name returns poisson.
func (Poisson) Name() string { return "poisson" }

// Params returns nothing.
func (Poisson) Params() param.List { return nil }

// Check returns an error if a target is not a count.
func (Poisson) Check(y []float64) error {
	for i, v := range y {
		if !(v >= 0 && v <= maxCount && v == math.Round(v)) {
			return fmt.Errorf("the target of row %d is %g: model.likelihood: poisson needs counts, whole numbers from 0 to %g", i+1, v, float64(maxCount))
		}
	}
	return nil
}

// Standardized returns false.
func (Poisson) Standardized() bool { return false }

// LogDensity returns log p(y|f) and its derivatives in f.
func (Poisson) LogDensity(_ []float64, y, f float64) (value, score, curvature float64) {
	rate := math.Exp(f)
	l, _ := math.Lgamma(y + 1)
	return y*f - rate - l, y - rate, rate
}

// Expectation returns y·m − e^(m+v/2) − log y!, with its derivatives.
func (Poisson) Expectation(_ []float64, y, mean, variance float64) (value, score, weight float64) {
	rate := math.Exp(mean + variance/2)
	l, _ := math.Lgamma(y + 1)
	return y*mean - rate - l, y - rate, rate
}

// Augmentation returns that by components of mixtures of normals.
func (Poisson) Augmentation() Augmentation {
	return normalMixtures{func(y float64) site { return site{curveOf(y), 0, 1} }}
}

// Draw draws a count.
func (Poisson) Draw(r *rand.Rand, _ []float64, mean, variance float64) float64 {
	return distuv.Poisson{Lambda: math.Exp(mean + math.Sqrt(variance)*r.NormFloat64()), Src: r}.Rand()
}

// Predict returns the mixture over the draws, and over a quadrature of f at each, of Poisson distributions. A quadrature's
// step is that of the normal density or, where it is less, the width 1/√rate of p(y|f), as far as there are not too many
// parts: those of many draws lie between each other.
func (Poisson) Predict(_ [][]float64, mean, variance []float64) Predictive {
	const (
		reach  = 6.0
		widest = 0.5
		most   = 6000 // parts
		fewest = 61   // of a draw
	)
	least := 2 * reach / max(fewest, most/float64(len(mean)))
	c := &counts{}
	for t, m := range mean {
		sd := math.Sqrt(variance[t])
		step := max(least, min(widest, math.Exp(-m/2-sd)/sd))
		var total float64
		for z := -reach; z <= reach; z += step {
			total += math.Exp(-z * z / 2)
		}
		for z := -reach; z <= reach; z += step {
			w := math.Exp(-z*z/2) / (total * float64(len(mean)))
			c.parts = append(c.parts, countPart{weight: w, size: math.Inf(1), mean: math.Exp(m + sd*z)})
		}
	}
	c.tabulate()
	return c
}
