package job

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func approximated(approximation, more string) string {
	return fmt.Sprintf("name: a\ndata: {synthetic: {n: 80, d: 2, sigma: 1, tau: 1, lambda: 0.1, seed: 3}, holdout: 0.25}\nmodel: {approximation: %s%s}\n", approximation, more)
}

func TestBadApproximation(t *testing.T) {
	for _, x := range []struct{ approximation, more, want string }{
		{"{}", "", "model.approximation.kind: which one is not said: use one of sgpr, fitc, dtc, svgp, sgpmc, subset, random-features, deep"},
		{"{kind: sgrp}", "", `model.approximation.kind: "sgrp" is not one of sgpr, fitc, dtc, svgp, sgpmc, subset, random-features, deep: did you mean "sgpr"?`},
		{"{kind: sgpr, inducing: 0}", "", "model.approximation.inducing: 0, but must be at least 1"},
		{"{kind: fitc, inducing: 6000}", "", "model.approximation.inducing: 6000, but matrices of as many rows and columns are stored: at most 5000"},
		{"{kind: dtc, place: grid}", "", `model.approximation.place: "grid" is not one of kmeans, rows`},
		{"{kind: subset, place: rows}", "", "model.approximation: a subset is rows drawn at random: leave place and optimise out"},
		{"{kind: subset, optimise: true}", "", "model.approximation: a subset is rows drawn at random"},
		{"{kind: subset, inducing: 1}", "", "model.approximation.inducing: 1, but must be at least 2 rows"},
		{"{kind: sgpmc, optimise: true}", "", "model.approximation.optimise: the inducing inputs of sgpmc stay where they are placed"},
		{"{kind: sgpmc}", "}\nsampler: {method: fisher", "sampler.method: fisher draws from the exact posterior"},
		{"{kind: sgpr}", "}\nsampler: {method: sgpmc", "sampler.method: sgpmc draws the inducing variables of an approximation"},
		{"{kind: sgpmc}", "}\nsampler: {certify: true", "sampler.certify: a certificate is of draws from the exact posterior"},
		{"{kind: sgpr, layers: 3}", "", "model.approximation: layers, features, hidden, covariance, frequencies, steps, minibatch and step are of random-features and deep, not of sgpr"},
		{"{kind: deep, inducing: 3}", "", "model.approximation: inducing, place and optimise are of inducing inputs, and deep has none"},
		{"{kind: random-features, layers: 1}", "", "model.approximation: random-features is of one layer"},
		{"{kind: deep, layers: 31}", "", "model.approximation.layers: 31, but must be from 1 to 30"},
		{"{kind: deep, features: 0}", "", "model.approximation.features: 0, but must be from 1 to 10000"},
		{"{kind: deep, hidden: 101}", "", "model.approximation.hidden: 101, but must be from 1 to 100"},
		{"{kind: deep, steps: 0}", "", "model.approximation.steps: 0, but must be from 1 to 10000000"},
		{"{kind: deep, minibatch: 0}", "", "model.approximation.minibatch: 0, but must be from 1 to 100000"},
		{"{kind: deep, step: 0}", "", "model.approximation.step: 0, but must be above 0 and at most 1"},
		{"{kind: deep, covariance: matern32}", "", `model.approximation.covariance: "matern32" is not one of rbf, arc-cosine`},
		{"{kind: deep, frequencies: free}", "", `model.approximation.frequencies: "free" is not one of prior-fixed, variational-fixed, resampled`},
		{"{kind: deep}", ", likelihood: student-t", "model.approximation.kind: deep is for Gaussian noise of one variance and for bernoulli, categorical, binomial, poisson"},
		{"{kind: sgpr, inducin: 3}", "", `model.approximation.inducin: unknown field: did you mean "inducing"?`},
	} {
		if _, err := ParseString(approximated(x.approximation, x.more)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s:\n got %v\nwant %s", x.approximation, err, x.want)
		}
	}
	spec := "name: a\ndata: {path: x.csv, target: y}\nmodel: {likelihood: bernoulli, approximation: {kind: sgpr}}\n"
	if _, err := ParseString(spec); err == nil || !strings.Contains(err.Error(), "model.approximation.kind: sgpr is for Gaussian noise: under model.likelihood: bernoulli use svgp, sgpmc or subset") {
		t.Errorf("classes: %v", err)
	}
	if _, err := ParseString(strings.Replace(spec, "sgpr", "svgp", 1)); err != nil {
		t.Error(err)
	}
	spec = "name: a\ndata: {path: x.csv, target: y}\nmodel: {likelihood: student-t, approximation: {kind: svgp}}\n"
	if _, err := ParseString(spec); err == nil || !strings.Contains(err.Error(), "svgp is for gaussian, bernoulli, binomial, negative-binomial, poisson, which are smooth and log-concave, not for student-t") {
		t.Errorf("heavy tails: %v", err)
	}
}

func TestApproximate(t *testing.T) {
	for _, x := range []struct{ approximation, kernel, want string }{
		{"{kind: sgpr, inducing: 7}", "rbf", ""},
		{"{kind: fitc, inducing: 7, place: rows, optimise: true}", "matern32", ""},
		{"{kind: sgpr, inducing: 7}", "matern12", ""},
		{"{kind: sgpr, inducing: 7, optimise: true}", "matern12", "model.approximation.optimise: inducing inputs are moved along gradients"},
	} {
		s, err := ParseString(approximated(x.approximation, ", kernel: "+x.kernel))
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Load(context.Background(), nil, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Problem(d)
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Approximate(p, nil, parallel.NewBudget(1))
		switch {
		case x.want != "":
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: %v, want %s", x.approximation, err, x.want)
			}
		case err != nil || a.Inducing().Len() != 7:
			t.Errorf("%s: %v", x.approximation, err)
		}
		if err := s.Samplable(); err == nil || !strings.Contains(err.Error(), "give the specification to 'ulisse fit'") {
			t.Errorf("%s is sampled: %v", x.approximation, err)
		}
	}
}

// A subset is of the rows that are not held out, which stay the same ones.
func TestSubset(t *testing.T) {
	whole, err := ParseString(strings.Replace(approximated("{kind: sgpr}", ""), ", model: {approximation: {kind: sgpr}}", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseString(approximated("{kind: subset, inducing: 20}", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Samplable(); err != nil {
		t.Error(err)
	}
	all, err := whole.Load(t.Context(), nil, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Load(t.Context(), nil, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	rows := d.TrainingRows()
	if d.N() != 20 || len(d.Y) != 20 || !slices.IsSorted(rows) || !slices.Equal(d.HoldoutRows, all.HoldoutRows) || d.SHA256 == all.SHA256 {
		t.Errorf("%d rows, %d targets, held out %v", d.N(), len(d.Y), d.HoldoutRows)
	}
	for i, row := range rows {
		at, known := slices.BinarySearch(all.TrainingRows(), row)
		if !known || absolute(d.YScale.Undo(d.Y[i])-all.YScale.Undo(all.Y[at])) > 1e-12 {
			t.Errorf("row %d has the target %g", row, d.Y[i])
		}
	}
	if !slices.ContainsFunc(d.Notes, func(n string) bool { return n == "20 of 60 rows are learnt from, drawn at random" }) {
		t.Errorf("notes %q", d.Notes)
	}
}

func absolute(x float64) float64 { return max(x, -x) }

// A network is what the specification says, and refuses what it cannot stand for.
func TestNetwork(t *testing.T) {
	for _, x := range []struct{ approximation, more, want string }{
		{"{kind: random-features, features: 10}", "", ""},
		{"{kind: deep, layers: 3, hidden: 2, frequencies: resampled, covariance: arc-cosine}", ", ard: true", ""},
		{"{kind: deep}", ", kernel: matern32", "model.approximation: random features are of one term over all inputs"},
		{"{kind: deep}", ", mean: linear", "model.approximation: random features are of one term over all inputs, without a mean"},
		{"{kind: deep, features: 10000, hidden: 100}", "", "model.approximation: a network of"},
	} {
		s, err := ParseString(approximated(x.approximation, x.more))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Samplable(); err == nil || !strings.Contains(err.Error(), "is for point estimates: give the specification to 'ulisse fit'") {
			t.Errorf("%s is sampled: %v", x.approximation, err)
		}
		d, err := s.Load(t.Context(), nil, parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Problem(d)
		if err != nil {
			t.Fatal(err)
		}
		n, o, err := s.Network(p, parallel.NewBudget(1))
		switch {
		case x.want != "":
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s%s: %v, want %s", x.approximation, x.more, err, x.want)
			}
		case err != nil:
			t.Errorf("%s: %v", x.approximation, err)
		default:
			psi := make([]float64, len(p.Params))
			for i := range psi {
				psi[i] = float64(i) + 0.5
			}
			if got := n.Psi(n.StartAt(psi)); !slices.Equal(got, psi) || o.Steps != 5000 || o.Minibatch != 200 || o.Step != 0.01 {
				t.Errorf("%s: begins at %v, %+v", x.approximation, got, o)
			}
		}
	}
}
