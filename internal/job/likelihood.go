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

// gapPrior is the prior of the gap between two thresholds of an ordinal likelihood where none is given: 95 % within
// 0.14 and 7.1 standard deviations of what is between the latent function and the class.
const gapPrior = "lognormal(0,1)"

// spreadPrior is the prior of how many times larger the standard deviation of outliers is, where none is given: 95 % within 1.3 and 53.
const spreadPrior = "lognormal(2,1)"

// sharePrior is the prior of the share of rows that are not ordinary, where none is given: a fifth on average, and nine of ten below a half.
const sharePrior = "beta(1,4)"

// likelihoods are all there are, by the names that specifications have for them.
var likelihoods = map[string]func(m *Model) likelihood.Likelihood{
	gaussian:            func(*Model) likelihood.Likelihood { return likelihood.Gaussian{} },
	"student-t":         studentT,
	"laplace":           func(*Model) likelihood.Likelihood { return likelihood.Laplace{} },
	"quantile":          func(m *Model) likelihood.Likelihood { return likelihood.Quantile{Level: m.Level.Or(defaultLevel)} },
	"bernoulli":         bernoulli,
	"binomial":          func(*Model) likelihood.Likelihood { return likelihood.Binomial{} },
	"ordinal":           func(*Model) likelihood.Likelihood { return likelihood.Ordinal{} },
	"negative-binomial": func(*Model) likelihood.Likelihood { return likelihood.NegativeBinomial{} },
	"poisson":           func(*Model) likelihood.Likelihood { return likelihood.Poisson{} },

	"stochastic-volatility": func(*Model) likelihood.Likelihood { return likelihood.Volatility{} },
	"categorical":           func(*Model) likelihood.Likelihood { return likelihood.Categorical{} },
	"heteroscedastic":       func(*Model) likelihood.Likelihood { return likelihood.Heteroscedastic{} },
	"twinned":               func(*Model) likelihood.Likelihood { return likelihood.Twinned{} },
	"noisy-labels":          func(*Model) likelihood.Likelihood { return likelihood.NoisyLabels{} },
}

func studentT(m *Model) likelihood.Likelihood {
	if m.learnsDF() {
		return likelihood.StudentT{}
	}
	return likelihood.StudentT{DF: m.DF.Or(defaultDF)}
}

// learnsDF reports whether the degrees of freedom are a parameter: they have a prior.
func (m *Model) learnsDF() bool { return m.Priors.Of["df"] != "" }

// defaultLevel is the quantile that is learnt where none is given: the median.
const defaultLevel = 0.5

// links are the words for how a probability comes from the latent function; the first is the default.
var links = []string{"logit", "probit"}

// unordered are the names that the likelihood of classes without an order has elsewhere.
var unordered = []string{"multinomial", "softmax"}

func bernoulli(m *Model) likelihood.Likelihood {
	if m.Link == "probit" {
		return likelihood.Probit{}
	}
	return likelihood.Bernoulli{}
}

// LikelihoodNames returns the names of all likelihoods, in order.
func LikelihoodNames() []string { return slices.Sorted(maps.Keys(likelihoods)) }

// Conditional returns the likelihood of a model whose name is one of LikelihoodNames: what targets are given the latent
// function. Of one that differs between rows it is that of none, and of classes in order it has none.
func (m *Model) Conditional() likelihood.Likelihood { return likelihoods[m.Likelihood](m) }

// likelihood returns that of data of the given description, of no rows yet.
func (s *Spec) likelihood(d *dataset.Info) likelihood.Likelihood {
	if s.Model.Gaussian() {
		return s.noise(d)
	}
	l := s.Model.Conditional()
	switch {
	case likelihood.OfOrder(l):
		return likelihood.Ordinal{Classes: d.Classes}
	case likelihood.OfCategories(l):
		return likelihood.Categorical{Classes: d.Classes}
	}
	return l
}

// guessedClasses is how many classes a target is taken to have before it is read.
const guessedClasses = 3

// LatentFunctions returns the number of latent functions, as far as that is known before there are data: of classes that are not named a guess.
func (s *Spec) LatentFunctions() int {
	l := s.Model.Conditional()
	if !likelihood.OfCategories(l) {
		return likelihood.Functions(l)
	}
	if named := len(s.Data.Levels[s.Data.Target]); named > 0 {
		return named
	}
	return guessedClasses
}

// Several reports whether the likelihood is there and has several latent functions.
func (m *Model) Several() bool {
	of := likelihoods[m.Likelihood]
	if of == nil {
		return false
	}
	_, ok := of(m).(likelihood.Several)
	return ok
}

// Gaussian reports whether targets are Gaussian given the latent function.
func (m *Model) Gaussian() bool { return m.Likelihood == gaussian }

// Tells says in pictures what is predicted of a target: what it is expected to be, and what the latent function is.
func (s *Spec) Tells(d *dataset.Info) (expected, latent string) {
	l := s.Model.Conditional()
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
	case likelihood.OfCategories(l):
		expected = fmt.Sprintf("P(%s)", d.Target)
		return expected, expected
	case l.Name() == likelihood.Volatility{}.Name():
		return d.Target, fmt.Sprintf("log sd(%s)", d.Target)
	case l.Name() == likelihood.Binomial{}.Name():
		expected = fmt.Sprintf("P(success, %s)", d.Target)
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
	if slices.Contains(unordered, m.Likelihood) {
		return "model.likelihood", fmt.Sprintf("there is no %s: if the classes have an order use ordinal, if not categorical", m.Likelihood)
	}
	if likelihoods[m.Likelihood] == nil {
		msg := fmt.Sprintf("%q is not one of %s", m.Likelihood, strings.Join(LikelihoodNames(), ", "))
		if near, ok := nearest.Word(m.Likelihood, LikelihoodNames()); ok {
			msg += fmt.Sprintf(": did you mean %q?", near)
		}
		return "model.likelihood", msg
	}
	several := m.Several()
	augments := likelihood.Width(m.Conditional()) > 0
	method, err := sampler.ByName(s.Sampler.Method)
	switch {
	case err != nil:
		return "sampler.method", err.Error()
	case m.DF.Set && m.Likelihood != "student-t":
		return "model.df", fmt.Sprintf("degrees of freedom are of model.likelihood: student-t, not of %s: leave them out", m.Likelihood)
	case m.DF.Set && m.learnsDF():
		return "model.df", "degrees of freedom that have a prior, priors.df, are a parameter: leave one of the two out"
	case !(m.DF.Or(defaultDF) > likelihood.LeastDF):
		return "model.df", fmt.Sprintf("%g, but must be above 2: with fewer degrees of freedom the noise has no variance", m.DF.Value)
	case m.Level.Set && m.Likelihood != "quantile":
		return "model.level", fmt.Sprintf("the level is of model.likelihood: quantile, not of %s: leave it out", m.Likelihood)
	case !(m.Level.Or(defaultLevel) > 0 && m.Level.Or(defaultLevel) < 1):
		return "model.level", fmt.Sprintf("%g, but must be between 0 and 1: 0.9 is the quantile that nine of ten targets lie below", m.Level.Value)
	case m.Link != "" && m.Likelihood != "bernoulli":
		return "model.link", fmt.Sprintf("the link is of model.likelihood: bernoulli, not of %s: leave it out", m.Likelihood)
	case m.Link != "" && !slices.Contains(links, m.Link):
		return "model.link", fmt.Sprintf("%q is not one of %s", m.Link, strings.Join(links, ", "))
	case s.Data.Levels[s.Data.Target] != nil && m.Likelihood != "ordinal" && m.Likelihood != "categorical":
		return "data.levels." + s.Data.Target, fmt.Sprintf("the target's classes are named for model.likelihood: ordinal and categorical, not for %s: leave them out", m.Likelihood)
	case s.Data.Synthetic != nil && !m.Conditional().Standardized():
		return "model.likelihood", fmt.Sprintf("synthetic data are numbers with Gaussian noise, which %s cannot have made: use data.path", m.Likelihood)
	case m.Likelihood == "binomial" && s.Data.Trials == "":
		return "model.likelihood", "binomial needs the numbers of trials: name their column, data.trials; of one trial each use bernoulli"
	case m.Likelihood != "binomial" && s.Data.Trials != "":
		return "data.trials", fmt.Sprintf("trials are of model.likelihood: binomial, not of %s: leave them out", m.Likelihood)
	case (m.Noise != nil || s.Data.Weights != "") && !m.Gaussian() && !(m.second() != nil && s.Data.Weights == ""):
		return "model.likelihood", fmt.Sprintf("model.noise and data.weights are of Gaussian noise: leave them out under %s", m.Likelihood)
	case s.Data.transform() != "" && !m.Conditional().Standardized():
		return "model.likelihood", fmt.Sprintf("targets of %s are what they are: leave data.transform out", m.Likelihood)
	case s.Data.transform() != "" && !m.Gaussian():
		return "model.likelihood", fmt.Sprintf("data.transform is for Gaussian noise: under %s the target that is transformed back may have no mean; leave one of them out, or transform the target in the table", m.Likelihood)
	case several && s.Data.Offset != "":
		return "data.offset", fmt.Sprintf("an offset is of one latent function, and %s has several: leave it out", m.Likelihood)
	case several && !method.Needs().Several:
		return "sampler.method", fmt.Sprintf("%s is for one latent function, and model.likelihood: %s has several: use %s, or leave the method out", s.Sampler.Method, m.Likelihood, sampler.Slicing)
	case several:
	case method.Needs().Inducing: // of what approximations are for, these say
	case method.Needs().Estimated && (!augments || !likelihood.Integrable(m.Conditional())):
		return "sampler.method", fmt.Sprintf("%s is for likelihoods that are log-concave and not Gaussian: bernoulli, binomial, ordinal, negative-binomial, poisson; %s is not one of them: leave the method out", s.Sampler.Method, m.Likelihood)
	case augments != method.Needs().Augments && augments:
		return "sampler.method", fmt.Sprintf("%s is for Gaussian targets: under model.likelihood: %s use %s, or leave the method out", s.Sampler.Method, m.Likelihood, sampler.Augmenting)
	case augments && method.Needs().Laplace && !likelihood.Concave(m.Conditional()):
		return "sampler.method", fmt.Sprintf("%s is for likelihoods that are log-concave and smooth, in one latent function, which %s is not: use %s, or leave the method out", s.Sampler.Method, m.Likelihood, sampler.Augmenting)
	case augments != method.Needs().Augments:
		return "sampler.method", fmt.Sprintf("%s is for likelihoods that are not Gaussian: use exact", s.Sampler.Method)
	}
	return "", ""
}
