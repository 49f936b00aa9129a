package job

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// second is the latent function that a likelihood has beside the first, with a covariance of its own.
type second struct {
	name string // of its term, and how the names of its terms begin if there are several
	what string // it is, for people
	text string // its covariance as it was given
}

// seconds are all there are, by the names of their likelihoods.
var seconds = map[string]second{
	"heteroscedastic": {name: "log_variance", what: "the log variance"},
	"twinned":         {name: "gate", what: "the gate"},
	"noisy-labels":    {name: "gate", what: "the gate"},
}

// defaultSecond is the covariance of a second function where none is given.
const defaultSecond = "rbf"

// second returns that of the likelihood, nil if it has none of this kind.
func (m *Model) second() *second {
	out, ok := seconds[m.Likelihood]
	if !ok {
		return nil
	}
	out.text = cmp.Or(m.Noise.covariances()[out.name], defaultSecond)
	return &out
}

// covariances returns those of second functions that are given, by their names.
func (n *Noise) covariances() map[string]string {
	if n == nil {
		return nil
	}
	return map[string]string{"log_variance": n.LogVariance, "gate": n.Gate}
}

// path returns the field of the covariance.
func (f *second) path() string { return "model.noise." + f.name }

// names returns the names that its parameters can begin with, none of no function; or what is wrong with its covariance.
func (f *second) names() (names []string, path, msg string) {
	if f == nil {
		return nil, "", ""
	}
	e, err := expression.Parse(f.text)
	if err != nil {
		return nil, f.path(), err.Error()
	}
	return e.Under(f.name).Names(), "", ""
}

// has reports whether a term is one of the function.
func (f *second) has(term string) bool {
	return f != nil && (term == f.name || strings.HasPrefix(term, f.name+"_"))
}

// withSecond returns a covariance and the terms of the second latent function, if there is one.
func (s *Spec) withSecond(c *kernel.Covariance, d *dataset.Info) (*kernel.Covariance, error) {
	f := s.Model.second()
	if f == nil {
		return c, nil
	}
	text := f.text
	if !expression.Is(text) {
		text = expression.OfAll(text, false, inputsOf(d))
	}
	e, err := expression.Parse(text)
	if err == nil {
		var own *kernel.Covariance
		if own, err = e.Under(f.name).Covariance(inputsOf(d)); err == nil {
			c, err = c.Plus(own.All()...)
		}
	}
	if err != nil {
		return nil, &FieldError{Path: f.path(), Msg: err.Error()}
	}
	return c, nil
}

// functionTerms returns the terms of each latent function, nil where all functions have all.
func (s *Spec) functionTerms(c *kernel.Covariance) [][]int {
	f := s.Model.second()
	if f == nil {
		return nil
	}
	terms := make([][]int, 2)
	for t := range c.Terms() {
		of := 0
		if f.has(c.TermName(t)) {
			of = 1
		}
		terms[of] = append(terms[of], t)
	}
	return terms
}

// faultOfSecond is fault for what is said of the noise where a second latent function says what it is.
func (s *Spec) faultOfSecond() (path, msg string) {
	n, f := s.Model.Noise, s.Model.second()
	switch {
	case n == nil:
	case n.LogVariance != "" && (f == nil || f.name != "log_variance"):
		return "model.noise.log_variance", fmt.Sprintf("the covariance of the log variance is of model.likelihood: heteroscedastic, not of %s: leave it out", s.Model.Likelihood)
	case n.Gate != "" && (f == nil || f.name != "gate"):
		return "model.noise.gate", fmt.Sprintf("the covariance of the gate is of model.likelihood: twinned and noisy-labels, not of %s: leave it out", s.Model.Likelihood)
	case f != nil && (n.Column != "" || n.As != "" || n.By != "" || n.Extra != ""):
		return "model.noise", fmt.Sprintf("under model.likelihood: %s the noise is a function of the inputs: give %s alone", s.Model.Likelihood, f.name)
	}
	return "", ""
}
