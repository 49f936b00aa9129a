package job

import (
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func TestTransformOfASpecification(t *testing.T) {
	for _, x := range []struct{ data, noise, want string }{
		{", transform: none", "", ""},
		{", transform: log", "", ""},
		{", transform: yeo-johnson, weights: w", "", ""},
		{", transform: logg", "", `data.transform: "logg" is not one of none, log, logit, yeo-johnson: did you mean "log"?`},
		{", transform: logit", "", `the target "y" of row 1: 3 has no logit: the targets have to be between 0 and 1, and neither of them`},
		{", transform: log", ", noise: {column: sd}", "data.transform: noise that is known of the target is not that of its transform"},
	} {
		s, err := ParseString(noiseSpec(", exclude: [station]"+x.data, x.noise, ""))
		if err == nil {
			d, e := s.Load(t.Context(), strings.NewReader(noisy), parallel.NewBudget(1))
			if err = e; e == nil && (d.Transform.Kind == "") != strings.Contains(x.data, "none") {
				t.Errorf("%s: %+v", x.data, d.Transform)
			}
		}
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s%s:\n got %v\nwant %s", x.data, x.noise, err, x.want)
		}
	}
	if _, err := ParseString("name: m\ndata: {synthetic: {n: 9, d: 1, sigma: 1, tau: 1, lambda: 1}, transform: log}\n"); err == nil || !strings.Contains(err.Error(), "data.transform: generated targets are normal as they are") {
		t.Errorf("generated data: %v", err)
	}
}

// Pictures name what they show of a target.
func TestTells(t *testing.T) {
	for _, c := range []struct {
		likelihood       string
		info             dataset.Info
		expected, latent string
	}{
		{"gaussian", dataset.Info{Target: "y", Transform: likelihood.Transform{Kind: "log"}}, "y", "log(y)"},
		{"student-t", dataset.Info{Target: "y"}, "y", "y"},
		{"bernoulli", dataset.Info{Target: "y"}, "P(y = 1)", "logit P(y = 1)"},
		{"bernoulli", dataset.Info{Target: "sick", Classes: []string{"no", "yes"}}, "P(sick = yes)", "logit P(sick = yes)"},
		{"negative-binomial", dataset.Info{Target: "y"}, "E(y)", "log E(y)"},
		{"poisson", dataset.Info{Target: "y"}, "E(y)", "log E(y)"},
		{"stochastic-volatility", dataset.Info{Target: "y"}, "y", "log sd(y)"},
	} {
		s := Default()
		s.Model.Likelihood = c.likelihood
		if expected, latent := s.Tells(&c.info); expected != c.expected || latent != c.latent {
			t.Errorf("%s: %q and %q", c.likelihood, expected, latent)
		}
	}
}
