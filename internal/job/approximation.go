package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// Approximation says what stands for the exact Gaussian process, which is what there is without one.
type Approximation struct {
	Kind     string    `yaml:"kind" json:"kind"`
	Inducing Auto[int] `yaml:"inducing,omitempty" json:"inducing,omitzero"` // inducing inputs, or rows of a subset
	Place    string    `yaml:"place,omitempty" json:"place,omitempty"`      // of inducing inputs; empty is the first of sparse.Places
	Optimise bool      `yaml:"optimise,omitempty" json:"optimise,omitempty"`
	Network  `yaml:",inline"`
}

// Subset is the approximation that learns from some of the rows alone, drawn by the seed.
const Subset = "subset"

// smooth are the likelihoods of one latent function that are log-concave, without a kink that quadrature does not see.
var smooth = []string{gaussian, "bernoulli", "binomial", "negative-binomial", "poisson"}

// Bounds of inducing: matrices of as many rows and columns are stored, of a subset only where the exact model is.
const (
	defaultInducing = 500
	maxInducing     = 5000
)

// approximations returns the words for approximations.
func approximations() []string {
	var out []string
	for _, k := range sparse.Kinds() {
		out = append(out, string(k))
	}
	return append(out, string(sparse.SVGP), string(sparse.SGPMC), Subset, RandomFeatures, DeepFeatures)
}

// Sparse reports whether inducing inputs stand for the rows.
func (m *Model) Sparse() bool {
	return m.Approximation != nil && m.Approximation.Kind != Subset && !m.Features()
}

// Subset returns how many of the rows are learnt from at most, 0 for all.
func (m *Model) Subset() int {
	if m.Approximation == nil || m.Approximation.Kind != Subset {
		return 0
	}
	return m.Approximation.Inducing.Or(defaultInducing)
}

// Samplable returns an error if there is no sampler for the model.
func (s *Spec) Samplable() error {
	if !s.Model.Sparse() && !s.Model.Features() || s.Needs().Inducing {
		return nil
	}
	return &FieldError{Path: "model.approximation", Msg: fmt.Sprintf("%s is for point estimates: give the specification to 'ulisse fit', use sgpmc, or leave this out to draw from the exact posterior", s.Model.Approximation.Kind)}
}

// Induced returns the inducing inputs where the specification puts them. It panics unless the model is Sparse.
func (s *Spec) Induced(p *posterior.Problem, b *parallel.Budget) *kernel.Inputs {
	a, levels := s.Model.Approximation, p.Levels
	if levels == nil {
		levels = make([]bool, p.Inputs.Dim())
	}
	return sparse.Induce(cmp.Or(sparse.Place(a.Place), sparse.KMeans), p.Inputs, a.Inducing.Or(defaultInducing), levels, random.Key{Seed: s.Seed}, b)
}

// Approximate returns the approximation of a problem at the inducing inputs z, or where the specification
// puts them if z is nil. It panics unless the model is Sparse.
func (s *Spec) Approximate(p *posterior.Problem, z *kernel.Inputs, b *parallel.Budget) (*posterior.Sparse, error) {
	a := s.Model.Approximation
	if a.Optimise {
		if err := p.Covariance.Differentiable(); err != nil {
			return nil, &FieldError{Path: "model.approximation.optimise", Msg: fmt.Sprintf("inducing inputs are moved along gradients: %v; or leave this out", err)}
		}
	}
	if z == nil {
		z = s.Induced(p, b)
	}
	if z.Dim() != p.Inputs.Dim() {
		return nil, errors.New("the inducing inputs are of other data")
	}
	return posterior.NewSparse(p, sparse.Kind(a.Kind), z, b), nil
}

// faultOfApproximation is fault for the approximation.
func (s *Spec) faultOfApproximation() (path, msg string) {
	a := s.Model.Approximation
	if draws := s.Needs().Inducing; draws && (a == nil || a.Kind != string(sparse.SGPMC)) {
		return "sampler.method", fmt.Sprintf("%s draws the inducing variables of an approximation: give model.approximation: {kind: sgpmc}, or leave the method out", s.Sampler.Method)
	} else if a != nil && a.Kind == string(sparse.SGPMC) && !draws {
		return "sampler.method", fmt.Sprintf("%s draws from the exact posterior: under model.approximation: {kind: sgpmc} leave the method out", s.Sampler.Method)
	}
	if a == nil {
		return "", ""
	}
	var places []string
	for _, p := range sparse.Places() {
		places = append(places, string(p))
	}
	m := a.Inducing.Or(defaultInducing)
	bound := a.Kind == string(sparse.SVGP) || a.Kind == string(sparse.SGPMC)
	switch {
	case a.Kind == "":
		return "model.approximation.kind", "which one is not said: use one of " + strings.Join(approximations(), ", ")
	case !slices.Contains(approximations(), a.Kind):
		msg := fmt.Sprintf("%q is not one of %s", a.Kind, strings.Join(approximations(), ", "))
		if near, ok := nearest.Word(a.Kind, approximations()); ok {
			msg += fmt.Sprintf(": did you mean %q?", near)
		}
		return "model.approximation.kind", msg
	}
	if path, msg := s.faultOfNetwork(); msg != "" || s.Model.Features() {
		return path, msg
	}
	switch {
	case a.Kind == Subset && (a.Place != "" || a.Optimise):
		return "model.approximation", "a subset is rows drawn at random: leave place and optimise out"
	case a.Kind == Subset && m < 2:
		return "model.approximation.inducing", fmt.Sprintf("%d, but must be at least 2 rows", m)
	case m < 1:
		return "model.approximation.inducing", fmt.Sprintf("%d, but must be at least 1", m)
	case a.Kind != Subset && m > maxInducing:
		return "model.approximation.inducing", fmt.Sprintf("%d, but matrices of as many rows and columns are stored: at most %d", m, maxInducing)
	case a.Place != "" && !slices.Contains(places, a.Place):
		return "model.approximation.place", fmt.Sprintf("%q is not one of %s", a.Place, strings.Join(places, ", "))
	case bound && !slices.Contains(smooth, s.Model.Likelihood):
		return "model.approximation.kind", fmt.Sprintf("%s is for %s, which are smooth and log-concave, not for %s: use subset, or leave the approximation out", a.Kind, strings.Join(smooth, ", "), s.Model.Likelihood)
	case a.Kind == string(sparse.SGPMC) && a.Optimise:
		return "model.approximation.optimise", "the inducing inputs of sgpmc stay where they are placed: leave this out"
	case a.Kind == string(sparse.SGPMC) && s.Sampler.Certify:
		return "sampler.certify", "a certificate is of draws from the exact posterior, not of those from an approximation: leave it out"
	case a.Kind != Subset && !bound && !s.Model.Gaussian():
		return "model.approximation.kind", fmt.Sprintf("%s is for Gaussian noise: under model.likelihood: %s use svgp, sgpmc or subset, or leave the approximation out", a.Kind, s.Model.Likelihood)
	}
	return "", ""
}
