package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// gaussian is the likelihood of a specification that names none.
const gaussian = "gaussian"

// defaultDF are the degrees of freedom of Student's t where none are given: heavy tails, with a
// variance and a skewness.
const defaultDF = 4

// sizePrior is the prior of the size of a negative binomial distribution where none is given: from
// counts that are hardly more often large than none at all, to Poisson's nearly.
const sizePrior = "lognormal(1,1.5)"

// likelihoods are all there are, by the names that specifications have for them.
var likelihoods = map[string]func(m *Model) likelihood.Likelihood{
	gaussian:            func(*Model) likelihood.Likelihood { return likelihood.Gaussian{} },
	"student-t":         func(m *Model) likelihood.Likelihood { return likelihood.StudentT{DF: m.DF.Or(defaultDF)} },
	"bernoulli":         func(*Model) likelihood.Likelihood { return likelihood.Bernoulli{} },
	"negative-binomial": func(*Model) likelihood.Likelihood { return likelihood.NegativeBinomial{} },
}

// LikelihoodNames returns the names of all likelihoods, in order.
func LikelihoodNames() []string { return slices.Sorted(maps.Keys(likelihoods)) }

// likelihood returns that of a model whose name is one of LikelihoodNames.
func (m *Model) likelihood() likelihood.Likelihood { return likelihoods[m.Likelihood](m) }

// likelihood returns that of data of the given description, of no rows yet.
func (s *Spec) likelihood(d *dataset.Info) likelihood.Likelihood {
	if s.Model.Gaussian() {
		return s.noise(d)
	}
	return s.Model.likelihood()
}

// Gaussian reports whether targets are Gaussian given the latent function.
func (m *Model) Gaussian() bool { return m.Likelihood == gaussian }

// Classes reports whether targets are classes.
func (m *Model) Classes() bool { return likelihood.OfClasses(m.likelihood()) }

// Tells says in pictures what is predicted of a target: what it is expected to be, and what the latent function is.
func (s *Spec) Tells(d *dataset.Info) (expected, latent string) {
	l := s.Model.likelihood()
	switch link := likelihood.Link(l); {
	case l.Standardized():
		return d.Target, d.Learnt()
	case likelihood.OfClasses(l):
		one := "1"
		if d.Classes != nil {
			one = d.Classes[1]
		}
		expected = fmt.Sprintf("P(%s = %s)", d.Target, one)
		return expected, fmt.Sprintf("%s %s", link.Kind, expected)
	case link.Kind != likelihood.None:
		expected = fmt.Sprintf("E(%s)", d.Target)
		return expected, fmt.Sprintf("%s %s", link.Kind, expected)
	}
	latent = "latent function of " + d.Target
	return latent, latent
}

// faultOfLikelihood is fault for the likelihood, and for what goes with it.
func (s *Spec) faultOfLikelihood() (path, msg string) {
	m := &s.Model
	if likelihoods[m.Likelihood] == nil {
		msg := fmt.Sprintf("%q is not one of %s", m.Likelihood, strings.Join(LikelihoodNames(), ", "))
		if near, ok := nearest.Word(m.Likelihood, LikelihoodNames()); ok {
			msg += fmt.Sprintf(": did you mean %q?", near)
		}
		return "model.likelihood", msg
	}
	augments := m.likelihood().Augmentation().Width() > 0
	method, err := sampler.ByName(s.Sampler.Method)
	switch {
	case err != nil:
		return "sampler.method", err.Error()
	case m.DF.Set && m.Likelihood != "student-t":
		return "model.df", fmt.Sprintf("degrees of freedom are of model.likelihood: student-t, not of %s: leave them out", m.Likelihood)
	case !(m.DF.Or(defaultDF) > 2):
		return "model.df", fmt.Sprintf("%g, but must be above 2: with fewer degrees of freedom the noise has no variance", m.DF.Value)
	case s.Data.Synthetic != nil && !m.likelihood().Standardized():
		return "model.likelihood", fmt.Sprintf("synthetic data are numbers with Gaussian noise, which %s cannot have made: use data.path", m.Likelihood)
	case s.NoiseColumns() != nil && !m.Gaussian():
		return "model.likelihood", fmt.Sprintf("model.noise and data.weights are of Gaussian noise: leave them out under %s", m.Likelihood)
	case s.Data.transform() != "" && !m.likelihood().Standardized():
		return "model.likelihood", fmt.Sprintf("targets of %s are what they are: leave data.transform out", m.Likelihood)
	case augments != method.Needs().Augments && augments:
		return "sampler.method", fmt.Sprintf("%s is for Gaussian targets: under model.likelihood: %s use %s, or leave the method out", s.Sampler.Method, m.Likelihood, sampler.Augmenting)
	case augments != method.Needs().Augments:
		return "sampler.method", fmt.Sprintf("%s draws the auxiliary variables of a likelihood, and a Gaussian one has none: use exact", s.Sampler.Method)
	}
	return "", ""
}
