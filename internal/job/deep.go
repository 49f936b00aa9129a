package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
)

// The approximations by random features: one layer of them, or several.
const (
	RandomFeatures = "random-features"
	DeepFeatures   = "deep"
)

// featured are the likelihoods that random features are for: they have no parameters but one variance of noise.
var featured = []string{gaussian, "bernoulli", "categorical", "binomial", "poisson"}

// Network describes random features and their learning.
type Network struct {
	Layers      Auto[int]     `yaml:"layers,omitempty" json:"layers,omitzero"`
	Features    Auto[int]     `yaml:"features,omitempty" json:"features,omitzero"` // frequencies of a layer
	Hidden      Auto[int]     `yaml:"hidden,omitempty" json:"hidden,omitzero"`     // functions of a hidden layer
	Covariance  string        `yaml:"covariance,omitempty" json:"covariance,omitempty"`
	Frequencies string        `yaml:"frequencies,omitempty" json:"frequencies,omitempty"`
	Steps       Auto[int]     `yaml:"steps,omitempty" json:"steps,omitzero"`
	Minibatch   Auto[int]     `yaml:"minibatch,omitempty" json:"minibatch,omitzero"`
	Step        Auto[float64] `yaml:"step,omitempty" json:"step,omitzero"`
}

// Defaults and bounds of networks.
const (
	defaultLayers    = 2
	defaultFeatures  = 100
	defaultHidden    = 3
	defaultSteps     = 5000
	defaultMinibatch = 200
	defaultAdam      = 0.01

	maxLayers    = 30
	maxFeatures  = 10_000
	maxHidden    = 100
	maxSteps     = 10_000_000
	maxMinibatch = 100_000
)

// Features reports whether random features stand for the Gaussian process.
func (m *Model) Features() bool {
	return m.Approximation != nil && (m.Approximation.Kind == RandomFeatures || m.Approximation.Kind == DeepFeatures)
}

// Network returns the network of a problem, and how it is learnt. It panics unless the model is Features.
func (s *Spec) Network(p *posterior.Problem, b *parallel.Budget) (*posterior.Deep, deep.Options, error) {
	n := &s.Model.Approximation.Network
	layers := 1
	if s.Model.Approximation.Kind == DeepFeatures {
		layers = n.Layers.Or(defaultLayers)
	}
	d, err := posterior.NewDeep(p, deep.Config{Layers: layers, Features: n.Features.Or(defaultFeatures), Hidden: n.Hidden.Or(defaultHidden), Seed: s.Seed,
		Covariance: cmp.Or(deep.Covariance(n.Covariance), deep.RBF), Frequencies: cmp.Or(deep.Frequencies(n.Frequencies), deep.VariationalFixed)}, b)
	if err != nil {
		return nil, deep.Options{}, &FieldError{Path: "model.approximation", Msg: err.Error()}
	}
	return d, deep.Options{Steps: n.Steps.Or(defaultSteps), Minibatch: n.Minibatch.Or(defaultMinibatch), Step: n.Step.Or(defaultAdam)}, nil
}

// faultOfNetwork is fault for random features.
func (s *Spec) faultOfNetwork() (path, msg string) {
	a := s.Model.Approximation
	if !s.Model.Features() {
		if a.Network != (Network{}) {
			return "model.approximation", fmt.Sprintf("layers, features, hidden, covariance, frequencies, steps, minibatch and step are of random-features and deep, not of %s: leave them out", a.Kind)
		}
		return "", ""
	}
	if a.Inducing.Set || a.Place != "" || a.Optimise {
		return "model.approximation", fmt.Sprintf("inducing, place and optimise are of inducing inputs, and %s has none: leave them out", a.Kind)
	}
	if a.Kind == RandomFeatures && (a.Layers.Set || a.Hidden.Set) {
		return "model.approximation", "random-features is of one layer: leave layers and hidden out, or use deep"
	}
	for _, x := range []struct {
		name           string
		value, at, max int
	}{
		{"layers", a.Layers.Or(defaultLayers), 1, maxLayers}, {"features", a.Features.Or(defaultFeatures), 1, maxFeatures}, {"hidden", a.Hidden.Or(defaultHidden), 1, maxHidden},
		{"steps", a.Steps.Or(defaultSteps), 1, maxSteps}, {"minibatch", a.Minibatch.Or(defaultMinibatch), 1, maxMinibatch},
	} {
		if x.value < x.at || x.value > x.max {
			return "model.approximation." + x.name, fmt.Sprintf("%d, but must be from %d to %d", x.value, x.at, x.max)
		}
	}
	if v := a.Step.Or(defaultAdam); !(v > 0 && v <= 1) {
		return "model.approximation.step", fmt.Sprintf("%g, but must be above 0 and at most 1", v)
	}
	if c := deep.Covariance(a.Covariance); c != "" && !slices.Contains(deep.Covariances, c) {
		return "model.approximation.covariance", fmt.Sprintf("%q is not one of %s", c, words(deep.Covariances))
	}
	if f := deep.Frequencies(a.Frequencies); f != "" && !slices.Contains(deep.Treatments, f) {
		return "model.approximation.frequencies", fmt.Sprintf("%q is not one of %s", f, words(deep.Treatments))
	}
	if s.Model.Noise != nil || !slices.Contains(featured, s.Model.Likelihood) {
		return "model.approximation.kind", fmt.Sprintf("%s is for Gaussian noise of one variance and for %s: use another approximation, or leave it out", a.Kind, strings.Join(featured[1:], ", "))
	}
	return "", ""
}

func words[T ~string](list []T) string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}
