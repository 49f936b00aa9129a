package job

import (
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// MeanSD is the standard deviation of the normal prior of each coefficient of the mean, in standard deviations
// of the target and, of a slope, for each one of the input. The coefficients are integrated out, as a term of the
// covariance of that variance (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.40).
// Where the data know a coefficient to ±v, the prior draws it to 0 by the fraction v²/(v²+100): for v = 0.3 by a
// thousandth.
const MeanSD = 10

// meanName is the name of the mean's constant term, and how those of its slopes begin.
const meanName = "mean"

// withMean returns a covariance and the terms of the mean, one for each coefficient: that of the constant is
// called mean, that of an input mean_ and its name.
func (s *Spec) withMean(c *kernel.Covariance, d *dataset.Info) (*kernel.Covariance, error) {
	m, err := expression.ParseMean(s.Mean())
	if err != nil {
		return nil, &FieldError{Path: "model.mean", Msg: err.Error()}
	}
	if m.None() {
		return c, nil
	}
	lines, err := m.Inputs(inputsOf(d))
	if err != nil {
		return nil, &FieldError{Path: "model.mean", Msg: err.Error()}
	}
	terms := []kernel.Term{coefficient(meanName, &kernel.Linear{Constant: true})}
	for _, k := range lines {
		terms = append(terms, coefficient(meanName+"_"+d.InputNames[k], &kernel.Linear{Inputs: []int{k}, Centres: []float64{0}}))
	}
	c, err = c.Plus(terms...)
	if err != nil {
		return nil, &FieldError{Path: "model.mean", Msg: err.Error()}
	}
	return c, nil
}

// Mean returns what the specification says of the mean. Classes in order have a constant unless it says otherwise: their first
// threshold is 0.
func (s *Spec) Mean() string {
	if s.Model.Mean == "" && likelihood.OfOrder(s.Model.Conditional()) {
		return "constant"
	}
	return s.Model.Mean
}

// hasMean reports whether the model has one.
func (s *Spec) hasMean() bool {
	m, err := expression.ParseMean(s.Mean())
	return err == nil && !m.None()
}

// OfMean reports whether a term of a covariance is one of the mean. No term of a kernel has such a name.
func OfMean(term string) bool { return term == meanName || strings.HasPrefix(term, meanName+"_") }

// slopeOf returns the input that a term of the mean is the slope of, -1 for the constant.
func slopeOf(term string, d *dataset.Info) int {
	name, ok := strings.CutPrefix(term, meanName+"_")
	if !ok {
		return -1
	}
	return slices.Index(d.InputNames, name)
}

// Coefficient returns what a term of the mean is called among results, and how its coefficient becomes one in the
// units of the data: shift + scale·β. The constant is the mean where all inputs are at their averages.
func Coefficient(term string, d *dataset.Info) (name string, shift, scale float64) {
	if k := slopeOf(term, d); k >= 0 {
		return "slope[" + d.InputNames[k] + "]", 0, d.YScale.SD / d.XScale[k].SD
	}
	return "constant", d.YScale.Mean, d.YScale.SD
}

// HasMean reports whether a covariance has terms of the mean.
func HasMean(c *kernel.Covariance) bool {
	for t := range c.Terms() {
		if OfMean(c.TermName(t)) {
			return true
		}
	}
	return false
}

func coefficient(name string, l kernel.Leaf) kernel.Term {
	return kernel.Term{Variance: param.Param{Term: name}, Fixed: MeanSD * MeanSD, Leaves: []kernel.Leaf{l}}
}
