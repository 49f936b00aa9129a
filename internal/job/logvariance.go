package job

import (
	"fmt"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// logVariance is the name of the log variance's term, and how the names of its terms begin if there are several.
const logVariance = "log_variance"

// defaultLogVariance is its covariance where none is given.
const defaultLogVariance = "rbf"

// heteroscedastic reports whether the log variance of the noise is a Gaussian process.
func (m *Model) heteroscedastic() bool {
	return m.Likelihood == likelihood.Heteroscedastic{}.Name()
}

// logVarianceText returns the covariance of the log variance as it was given.
func (m *Model) logVarianceText() string {
	if m.Noise == nil || m.Noise.LogVariance == "" {
		return defaultLogVariance
	}
	return m.Noise.LogVariance
}

// logVarianceNames returns the names that parameters of the log variance can begin with, none of another likelihood; or what is wrong with
// its covariance.
func (s *Spec) logVarianceNames() (names []string, path, msg string) {
	if !s.Model.heteroscedastic() {
		return nil, "", ""
	}
	e, err := expression.Parse(s.Model.logVarianceText())
	if err != nil {
		return nil, "model.noise.log_variance", err.Error()
	}
	return e.Under(logVariance).Names(), "", ""
}

// ofLogVariance reports whether a term is one of the log variance, under the heteroscedastic likelihood.
func ofLogVariance(term string) bool {
	return term == logVariance || strings.HasPrefix(term, logVariance+"_")
}

// withLogVariance returns a covariance and the terms of the log variance of the noise, if that is a Gaussian process.
func (s *Spec) withLogVariance(c *kernel.Covariance, d *dataset.Info) (*kernel.Covariance, error) {
	if !s.Model.heteroscedastic() {
		return c, nil
	}
	text := s.Model.logVarianceText()
	if !expression.Is(text) {
		text = expression.OfAll(text, false, inputsOf(d))
	}
	e, err := expression.Parse(text)
	if err == nil {
		var own *kernel.Covariance
		if own, err = e.Under(logVariance).Covariance(inputsOf(d)); err == nil {
			c, err = c.Plus(own.All()...)
		}
	}
	if err != nil {
		return nil, &FieldError{Path: "model.noise.log_variance", Msg: err.Error()}
	}
	return c, nil
}

// functionTerms returns the terms of each latent function, nil where all functions have all.
func (s *Spec) functionTerms(c *kernel.Covariance) [][]int {
	if !s.Model.heteroscedastic() {
		return nil
	}
	terms := make([][]int, 2)
	for t := range c.Terms() {
		of := 0
		if ofLogVariance(c.TermName(t)) {
			of = 1
		}
		terms[of] = append(terms[of], t)
	}
	return terms
}

// faultOfLogVariance is fault for what is said of the noise under the heteroscedastic likelihood.
func (s *Spec) faultOfLogVariance() (path, msg string) {
	n := s.Model.Noise
	switch {
	case n == nil:
	case n.LogVariance != "" && !s.Model.heteroscedastic():
		return "model.noise.log_variance", fmt.Sprintf("the covariance of the log variance is of model.likelihood: heteroscedastic, not of %s: leave it out", s.Model.Likelihood)
	case s.Model.heteroscedastic() && (n.Column != "" || n.As != "" || n.By != "" || n.Extra != ""):
		return "model.noise", "under model.likelihood: heteroscedastic the noise is a function of the inputs: give log_variance alone"
	}
	return "", ""
}
