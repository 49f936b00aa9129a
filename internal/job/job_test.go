package job

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

const good = `
name: concrete
data: {path: concrete.csv, target: strength, standardize: true, rows: 0, holdout: 0}
model: {kernel: rbf, ard: false, priors: {sigma: "gamma(1,1)", tau: "gamma(1,1)", lambda: "gamma(1,1)"}}
sampler: {method: auto, chains: 4, warmup: auto, draws: 500, probes: auto}
solver: {method: pcg, tolerance: auto, preconditioner: {kind: rpcholesky, rank: auto}}
stop: {rhat: 1.01, ess: 400, max_draws: 5000, max_time: 1h}
seed: 1
`

func parse(text string) (*Spec, error) { return Parse(strings.NewReader(text), "s.yaml") }

// Where none is named the method is auto, but for what it does not know, and what is stored names it: a later version with another
// default goes on with the same.
func TestMethodWhereNoneIsNamed(t *testing.T) {
	for fields, want := range map[string]string{
		"": "auto",
		"sampler: {chains: 2, draws: 100, checkpoint: 5, warmup: auto, step: auto, probes: auto, probe_kind: auto}": "auto",
		"sampler: {certify: true, auto: {starts: 9}}":                                                               "auto",
		"solver: {method: pcg, tolerance: 1e-4, preconditioner: {kind: svd}}":                                       "auto",
		"solver: {preconditioner: {kind: auto}}":                                                                    "auto",
		"model: {kernel: \"a: rbf(x) + b: matern32(z)\"}":                                                           "auto",
		"sampler: {warmup: 20}":                         "fisher",
		"sampler: {step: 0.5}":                          "fisher",
		"sampler: {probes: 4}":                          "fisher",
		"sampler: {probe_kind: whitened}":               "fisher",
		"solver: {method: ulisse}":                      "fisher",
		"solver: {preconditioner: {kind: regularized}}": "fisher",
		"solver: {method: cg, preconditioner: {kind: none}}\nsampler: {probe_kind: rademacher}": "fisher",
		"sampler: {method: auto, warmup: 20}":                                                   "auto",
		"sampler: {method: exact}":                                                              "exact",
		"model: {likelihood: student-t}":                                                        "gibbs",
		"model: {likelihood: student-t}\nsampler: {warmup: 20}":                                 "gibbs",
		"model: {approximation: {kind: sgpmc}}":                                                 "sgpmc",
		"model: {approximation: {kind: fitc}}":                                                  "auto",
	} {
		s, err := parse("name: a\ndata: {path: a.csv, target: y}\n" + fields)
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		text, err := s.YAML()
		if err != nil || s.Sampler.Method != want || !strings.Contains(string(text), "method: "+want+"\n") {
			t.Errorf("%s: %s, %v; stored as\n%s", fields, s.Sampler.Method, err, text)
		}
	}
}

// The specification of the documentation is the default, and what is printed
// reads back as it was.
func TestDefaultsAndRoundTrip(t *testing.T) {
	s, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Name = "concrete"
	want.Data.Path, want.Data.Target = "concrete.csv", "strength"
	if !reflect.DeepEqual(*s, want) {
		t.Errorf("got  %+v\nwant %+v", *s, want)
	}
	for _, text := range []string{good, `
name: a
data: {synthetic: {n: 10, d: 2, sigma: 1, tau: [1, 2], lambda: 0.1, seed: 4}}
model: {ard: true, kernel: matern32, priors: {tau: "lognormal(-1,2)"}}
sampler: {method: leimkuhler-matthews, warmup: 7, probes: 4, step: 0.5, subset: 9, probe_kind: rademacher}
solver: {method: ulisse, preconditioner: {kind: none}, max_iterations: 50, cache: 1.5GiB}
stop: {max_time: 1m30s}
`, `
name: a
data: {path: x.csv, target: y}
solver: {cache: off}
`, `
name: a
data: {path: x.csv, target: y, categories: [season, "a: b"], levels: {"a: b": ["1", "no", x y]}, dates: {day: "days %d.%m.%Y"}, missing: impute-median, constant: drop}
`, `
name: a
data: {path: x.csv, points: [x, y], window: {x: [-5, 5], y: [-8, 2.5]}, grid: 64x32}
model: {likelihood: poisson}
`, `
name: a
data: {path: x.csv, points: [t], window: {t: [0, 1e3]}, grid: 50}
model: {likelihood: negative-binomial}
`} {
		s, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(bytes.NewReader(out), "out")
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if !reflect.DeepEqual(s, back) {
			t.Errorf("got  %+v\nwant %+v\nfrom\n%s", back, s, out)
		}
		j, err := json.Marshal(s) // JSON is a specification too
		if err != nil {
			t.Fatal(err)
		}
		if back, err = Parse(bytes.NewReader(j), "out"); err != nil || !reflect.DeepEqual(s, back) {
			t.Errorf("JSON: %v\n%s", err, j)
		}
	}
}

// Every mistake and the exact message it gets.
func TestBadSpecifications(t *testing.T) {
	const data = "name: a\ndata: {path: x.csv, target: y}\n"
	for _, c := range []struct{ text, want string }{
		{"", `s.yaml: the specification is empty`},
		{"# nothing\n", `s.yaml: the specification is empty`},
		{"a: [", `s.yaml: line 1: not YAML: did not find expected node content`},
		{"just words", `s.yaml: line 1, column 1: "just words" stands where fields should: a specification has name:, data: and more, see docs/job-spec.md; a table goes under data: path:, or --data`},
		{data + "---\n" + data, `s.yaml: more than one YAML document: a specification is one`},
		{data + "sampelr: {}\n", `s.yaml: line 3, column 1: sampelr: unknown field: did you mean "sampler"?`},
		{data + "sampler: {method: fisher, methd: sgld}\n", `s.yaml: line 3, column 27: sampler.methd: unknown field: did you mean "method"?`},
		{data + "model: {likelihood: cauchy}\n", `s.yaml: line 3, column 21: model.likelihood: "cauchy" is not one of bernoulli, binomial, categorical, gaussian, heteroscedastic, laplace, negative-binomial, noisy-labels, ordinal, poisson, quantile, stochastic-volatility, student-t, twinned`},
		{data + "model: {likelihood: softmax}\n", `s.yaml: line 3, column 21: model.likelihood: there is no softmax: if the classes have an order use ordinal, if not categorical`},
		{data + "model: {likelihood: categorical}\nsampler: {method: gibbs}\n", `s.yaml: line 4, column 19: sampler.method: gibbs is for one latent function, and model.likelihood: categorical has several: use elliptical, or leave the method out`},
		{data + "model: {likelihood: heteroscedastic, noise: {by: s}}\n", `s.yaml: line 3, column 45: model.noise: under model.likelihood: heteroscedastic the noise is a function of the inputs: give log_variance alone`},
		{data + "model: {likelihood: twinned, noise: {gate: rbf, column: s}}\n", `s.yaml: line 3, column 37: model.noise: under model.likelihood: twinned the noise is a function of the inputs: give gate alone`},
		{data + "model: {likelihood: heteroscedastic, noise: {gate: rbf}}\n", `s.yaml: line 3, column 52: model.noise.gate: the covariance of the gate is of model.likelihood: twinned and noisy-labels, not of heteroscedastic: leave it out`},
		{data + "model: {likelihood: twinned, kernel: \"gate: rbf(x) + rbf(z)\"}\n", `s.yaml: line 3, column 38: model.kernel: a term has the name gate, as those of the gate have: give it another`},
		{data + "model: {noise: {log_variance: rbf}}\n", `s.yaml: line 3, column 31: model.noise.log_variance: the covariance of the log variance is of model.likelihood: heteroscedastic, not of gaussian: leave it out`},
		{data + "model: {likelihood: heteroscedastic, noise: {log_variance: \"rbf(\"}}\n", `s.yaml: line 3, column 60: model.noise.log_variance: character 5: the expression ends where it goes on: a leaf such as rbf(x), or a bracket, is missing`},
		{data + "model: {likelihood: heteroscedastic, kernel: \"log_variance: rbf(x) + rbf(z)\"}\n", `s.yaml: line 3, column 46: model.kernel: a term has the name log_variance, as those of the log variance have: give it another`},
		{data + "model: {likelihood: heteroscedastic, priors: {log_varance.lengthscale: \"lognormal(0,1)\"}}\n", `s.yaml: line 3, column 72: model.priors.log_varance.lengthscale: the covariance has no term log_varance`},
		{data + "model: {likelihood: students-t}\n", `s.yaml: line 3, column 21: model.likelihood: "students-t" is not one of bernoulli, binomial, categorical, gaussian, heteroscedastic, laplace, negative-binomial, noisy-labels, ordinal, poisson, quantile, stochastic-volatility, student-t, twinned: did you mean "student-t"?`},
		{data + "model: {family: bernoulli}\n", `s.yaml: line 3, column 9: model.family: unknown field: the distribution of the target given the latent function is model.likelihood`},
		{data + "model: {likelihood: negative-binomial, priors: {size: \"lognormal(0,1)\"}}\nsampler: {chains: 1, step: 2}\n", `s.yaml: line 4, column 28: sampler.step: gibbs has no step: leave it out`},
		{data + "model: {df: 3}\n", `s.yaml: line 3, column 13: model.df: degrees of freedom are of model.likelihood: student-t, not of gaussian: leave them out`},
		{data + "model: {likelihood: student-t, df: 2}\n", `s.yaml: line 3, column 36: model.df: 2, but must be above 2: with fewer degrees of freedom the noise has no variance`},
		{"name: a\ndata: {path: x.csv, target: y, levels: {y: [low, high]}}\n", `s.yaml: line 2, column 44: data.levels.y: the target's classes are named for model.likelihood: ordinal and categorical, not for gaussian: leave them out`},
		{data + "model: {likelihood: ordinal, link: probit}\n", `s.yaml: line 3, column 36: model.link: the link is of model.likelihood: bernoulli, not of ordinal: leave it out`},
		{data + "model: {likelihood: student-t, df: 4, priors: {df: \"gamma(2,0.1)\"}}\n", `s.yaml: line 3, column 36: model.df: degrees of freedom that have a prior, priors.df, are a parameter: leave one of the two out`},
		{"name: a\ndata: {path: x.csv, points: [x, w], window: {x: [0, 1], w: [0, 1]}, grid: 64}\nmodel: {likelihood: poisson}\n", `s.yaml: line 2, column 75: data.grid: "64" are not the numbers of cells along x and w: write one for each, with x between them, such as 64x64`},
		{"name: a\ndata: {path: x.csv, points: [t], window: {t: [1, 0]}, grid: 64}\nmodel: {likelihood: poisson}\n", `s.yaml: line 2, column 42: data.window: of t a window needs where it begins and where it ends, in that order: where no event was seen outside of it says nothing, where none was seen inside does`},
		{"name: a\ndata: {path: x.csv, points: [t], window: {t: [0, 1]}, grid: 64}\n", `s.yaml: model.likelihood: events in cells are counts, which gaussian cannot have made: use poisson, or negative-binomial`},
		{"name: a\ndata: {path: x.csv, points: [t], target: t, window: {t: [0, 1]}, grid: 64}\n", `s.yaml: line 2, column 29: data.points: events have coordinates alone, and what is learnt from are their numbers in the cells of the grid: beside points:, window: and grid: there are path:, dates:, holdout: and standardize:`},
		{data + "model: {likelihood: binomial}\n", `s.yaml: line 3, column 21: model.likelihood: binomial needs the numbers of trials: name their column, data.trials; of one trial each use bernoulli`},
		{"name: a\ndata: {path: x.csv, target: y, trials: m}\n", `s.yaml: line 2, column 40: data.trials: trials are of model.likelihood: binomial, not of gaussian: leave them out`},
		{"name: a\ndata: {path: x.csv, target: y, trials: y}\nmodel: {likelihood: binomial}\n", `s.yaml: line 2, column 40: data.trials: this is the target: name another column`},
		{"name: a\ndata: {path: x.csv, target: y, transform: log}\nmodel: {likelihood: student-t}\n", `s.yaml: line 3, column 21: model.likelihood: data.transform is for Gaussian noise: under student-t the target that is transformed back may have no mean; leave one of them out, or transform the target in the table`},
		{data + "model: {level: 0.9}\n", `s.yaml: line 3, column 16: model.level: the level is of model.likelihood: quantile, not of gaussian: leave it out`},
		{data + "model: {likelihood: quantile, level: 90}\n", `s.yaml: line 3, column 38: model.level: 90, but must be between 0 and 1: 0.9 is the quantile that nine of ten targets lie below`},
		{data + "model: {likelihood: laplace, link: probit}\n", `s.yaml: line 3, column 36: model.link: the link is of model.likelihood: bernoulli, not of laplace: leave it out`},
		{data + "model: {likelihood: bernoulli, link: cloglog}\n", `s.yaml: line 3, column 38: model.link: "cloglog" is not one of logit, probit`},
		{data + "model: {likelihood: bernoulli}\nsampler: {method: auto}\n", `s.yaml: line 4, column 19: sampler.method: auto is for Gaussian targets: under model.likelihood: bernoulli use gibbs, or leave the method out`},
		{data + "model: {likelihood: quantile}\nsampler: {method: elliptical}\n", `s.yaml: line 4, column 19: sampler.method: elliptical is for likelihoods that are log-concave and smooth, in one latent function, which quantile is not: use gibbs, or leave the method out`},
		{data + "sampler: {method: elliptical}\n", `s.yaml: line 3, column 19: sampler.method: elliptical is for likelihoods that are not Gaussian: use exact`},
		{data + "sampler: {method: gibbs}\n", `s.yaml: line 3, column 19: sampler.method: gibbs is for likelihoods that are not Gaussian: use exact`},
		{data + "sampler: {method: pseudo-marginal}\n", `s.yaml: line 3, column 19: sampler.method: pseudo-marginal is for likelihoods that are log-concave and not Gaussian: bernoulli, binomial, ordinal, negative-binomial, poisson; gaussian is not one of them: leave the method out`},
		{data + "model: {likelihood: student-t}\nsampler: {method: pseudo-marginal}\n", `s.yaml: line 4, column 19: sampler.method: pseudo-marginal is for likelihoods that are log-concave and not Gaussian: bernoulli, binomial, ordinal, negative-binomial, poisson; student-t is not one of them: leave the method out`},
		{data + "model: {likelihood: bernoulli}\nsampler: {method: pseudo-marginal, pseudo-marginal: {samples: 0}}\n", `s.yaml: line 4, column 63: sampler.pseudo-marginal.samples: 0, but must be from 1 to 100000`},
		{data + "model: {likelihood: bernoulli}\nsampler: {method: pseudo-marginal, pseudo-marginal: {approximation: vb}}\n", `s.yaml: line 4, column 69: sampler.pseudo-marginal.approximation: "vb" is not one of ep, laplace`},
		{data + "model: {likelihood: student-t}\nsampler: {certify: true}\n", `s.yaml: line 4, column 20: sampler.certify: gibbs is exact already: there is nothing to certify`},
		{"name: a\ndata: {synthetic: {n: 20, d: 1, sigma: 1, tau: 1, lambda: 1}}\nmodel: {likelihood: bernoulli}\n", `s.yaml: line 3, column 21: model.likelihood: synthetic data are numbers with Gaussian noise, which bernoulli cannot have made: use data.path`},
		{data + "weights: w\n", `s.yaml: line 3, column 1: weights: unknown field: a column of weights, which the variance of the noise is divided by, is data.weights`},
		{data + "model: {mean: linaer}\n", `s.yaml: line 3, column 15: model.mean: character 1: there is no covariance "linaer": did you mean linear?`},
		{data + "sampler: {colour: red}\n", `s.yaml: line 3, column 11: sampler.colour: unknown field: the fields here are method, chains, warmup, draws, probes, probe_kind, step, subset, checkpoint, certify, auto, pseudo-marginal, sgld`},
		{"name: a\ndata: {path: x, target: y, categories: [y]}\n", `s.yaml: line 2, column 40: data.categories: "y" is the target, which is a number`},
		{"name: a\ndata: {path: x, target: y, exclude: [k], categories: [k]}\n", `s.yaml: line 2, column 54: data.categories: "k" is excluded: take it out of one of the two`},
		{"name: a\ndata: {path: x, target: y, inputs: [a], dates: {k: days}}\n", `s.yaml: line 2, column 52: data.dates.k: "k" is not among the inputs: add it to inputs:`},
		{"name: a\ndata: {path: x, target: y, categories: [k, k]}\n", `s.yaml: line 2, column 40: data.categories: "k" is named twice`},
		{"name: a\ndata: {path: x, target: y, categories: [k], dates: {k: days}}\n", `s.yaml: line 2, column 56: data.dates.k: it is among the categories, too: take it out of one of the two`},
		{"name: a\ndata: {path: x, target: y, levels: {k: [a, b]}}\n", `s.yaml: line 2, column 40: data.levels.k: it is no category: name it under categories: too`},
		{"name: a\ndata: {path: x, target: y, categories: [k], levels: {k: [a]}}\n", `s.yaml: line 2, column 57: data.levels.k: 1 levels: a category has from 2 to 500`},
		{"name: a\ndata: {path: x, target: y, categories: [k], levels: {k: [a, a]}}\n", `s.yaml: line 2, column 57: data.levels.k: the level "a" is named twice`},
		{"name: a\ndata: {path: x, target: y, dates: {k: day}}\n", `s.yaml: line 2, column 39: data.dates.k: "day" is no unit of time: did you mean days?`},
		{"name: a\ndata: {path: x, target: y, dates: days}\n", `s.yaml: line 2, column 35: data.dates: "days" stands where names should, each with what it is to be: write {name: value}`},
		{"name: a\ndata: {path: x, target: y, dates: {k: days, k: days}}\n", `s.yaml: line 2, column 45: data.dates.k: the name is given twice`},
		{"name: a\ndata: {path: x, target: y, missing: dorp}\n", `s.yaml: line 2, column 37: data.missing: "dorp" is not one of error, drop, impute-median: did you mean "drop"?`},
		{"name: a\ndata: {path: x, target: y, constant: keep}\n", `s.yaml: line 2, column 38: data.constant: "keep" is not one of error, drop`},
		{"name: a\ndata: {synthetic: {n: 5, d: 1, sigma: 1, tau: 1, lambda: 1}, missing: drop}\n", `s.yaml: line 2, column 7: data: categories:, levels:, dates:, missing: and constant: are of a table; synthetic: has none`},
		{data + "seed: 1\nseed: 2\n", `s.yaml: line 4, column 1: seed: the field is given twice`},
		{data + "seed: -1\n", `s.yaml: line 3, column 7: seed: "-1" is not a whole number from 0`},
		{data + "sampler: {chains: four}\n", `s.yaml: line 3, column 19: sampler.chains: "four" is not a whole number`},
		{data + "sampler: {warmup: some}\n", `s.yaml: line 3, column 19: sampler.warmup: "some" is not a whole number or auto`},
		{data + "sampler: {step: big}\n", `s.yaml: line 3, column 17: sampler.step: "big" is not a number or auto`},
		{data + "model: {ard: maybe}\n", `s.yaml: line 3, column 14: model.ard: "maybe" is not true or false`},
		{data + "solver: {tolerance: .nan}\n", `s.yaml: line 3, column 21: solver.tolerance: ".nan" is not a number or auto`},
		{data + "stop: {max_time: 5}\n", `s.yaml: line 3, column 18: stop.max_time: "5" is not a time span: write it as 90s, 30m or 1h30m`},
		{data + "sampler: fisher\n", `s.yaml: line 3, column 10: sampler: "fisher" stands where fields should`},
		{"name: [a]\n", `s.yaml: line 1, column 7: name: a list is not text`},
		{"name: a b\ndata: {path: x, target: y}\n", `s.yaml: line 1, column 7: name: a job needs a name of letters, digits, '.', '_' and '-', 100 at most`},
		{"name: a\n", `s.yaml: data: no data: give path: or synthetic:`},
		{"name: a\ndata: {path: x}\n", `s.yaml: line 2, column 7: data.target: no target: name the column to predict`},
		{"name: a\ndata: {path: x, target: y, synthetic: {n: 5, d: 1, sigma: 1, tau: 1, lambda: 1}}\n", `s.yaml: line 2, column 7: data: path: and synthetic: exclude each other`},
		{"name: a\ndata: {synthetic: {n: 5, d: 2, sigma: 1, tau: [1, 2, 3], lambda: 1}}\n", `s.yaml: line 2, column 47: data.synthetic.tau: 3 values for d = 2: give one, or one for each input`},
		{"name: a\ndata: {synthetic: {n: 5, d: 2, sigma: 0, tau: 1, lambda: 1}}\n", `s.yaml: line 2, column 39: data.synthetic.sigma: 0, but must be positive`},
		{"name: a\ndata: {path: x, target: y, inputs: a}\n", `s.yaml: line 2, column 36: data.inputs: "a" stands where a list should: write [a, b]`},
		{"name: a\ndata: {path: x, target: y, holdout: 1}\n", `s.yaml: line 2, column 37: data.holdout: 1, but must be a fraction from 0 to below 1`},
		{data + "model: {kernel: rfb}\n", `s.yaml: line 3, column 17: model.kernel: character 1: there is no covariance "rfb": did you mean rbf?`},
		{data + "model: {priors: {tau: \"gama(1,1)\"}}\n", `s.yaml: line 3, column 23: model.priors.tau: prior "gama(1,1)": unknown distribution: did you mean gamma(shape,rate)?`},
		{data + "model: {priors: {tau: \"Inv_Gamma(1,1)\"}}\n", `s.yaml: line 3, column 23: model.priors.tau: prior "Inv_Gamma(1,1)": unknown distribution: did you mean invgamma(shape,scale)?`},
		{data + "model: {priors: {tau: \"cauchy(1,1)\"}}\n", `s.yaml: line 3, column 23: model.priors.tau: prior "cauchy(1,1)": unknown distribution: use one of gamma(shape,rate), invgamma(shape,scale), lognormal(mu,sd), halfnormal(sd), pc(u,alpha), normal(mean,sd), uniform(lo,hi), beta(a,b)`},
		{data + "model: {priors: {sigma: gamma(1,1)}}\n", `s.yaml: line 3, column 33: model.priors: a text with a comma needs quotes between braces: write "gamma(1,1)"`},
		{data + "seed: " + strings.Repeat("9", 100) + "\n", `s.yaml: line 3, column 7: seed: "` + strings.Repeat("9", 60) + `"… is not a whole number from 0`},
		{data + "sampler: {method: nuts}\n", `s.yaml: line 3, column 19: sampler.method: "nuts" is not one of auto, fisher, leimkuhler-matthews, exact, gibbs, elliptical, sgld, cholesky, sgpmc, pseudo-marginal`},
		{data + "sampler: {draws: 6000}\n", `s.yaml: stop.max_draws: 5000, but must be at least sampler.draws, 6000`},
		{data + "sampler: {step: 1.5}\n", `s.yaml: line 3, column 17: sampler.step: 1.5, but must be above 0 and at most 1`},
		{data + "sampler: {method: sgld, checkpoint: 30}\n", `s.yaml: line 3, column 37: sampler.checkpoint: 30, but must be a multiple of sampler.sgld.redraw, 20: warm starts end at checkpoints`},
		{data + "solver: {method: pcg, preconditioner: {kind: none}}\n", `s.yaml: line 3, column 46: solver.preconditioner.kind: pcg needs a preconditioner: use cg`},
		{data + "solver: {method: cg, preconditioner: {kind: none}}\n", `s.yaml: sampler.probe_kind: whitened probes are made from the preconditioner: choose another kind of probes, or a preconditioner`},
		{data + "sampler: {probe_kind: whitened}\nsolver: {preconditioner: {kind: ski}}\n", `s.yaml: line 3, column 23: sampler.probe_kind: whitened probes are made from a factor of the preconditioner, and ski has none: choose rademacher or pathwise probes, or another preconditioner`},
		{data + "solver: {method: ulisse, precision: mixed}\n", `s.yaml: line 3, column 37: solver.precision: stopping early (ulisse, auto) needs float64: its solutions are not verified`},
		{data + "solver: {law: geometric, beta: 2}\n", `s.yaml: line 3, column 32: solver.beta: 2, but the geometric law takes a probability below 1`},
		{data + "solver: {cache: 4GB}\n", `s.yaml: line 3, column 17: solver.cache: "4GB" is not an amount of memory: write it as 512MiB or 4GiB, or auto, or off`},
		{data + "solver: {cache: [1GiB]}\n", `s.yaml: line 3, column 17: solver.cache: a list stands where an amount of memory should: write it as 512MiB or 4GiB, or auto, or off`},
		{data + "stop: {error: -0.1}\n", `s.yaml: line 3, column 15: stop.error: -0.1, but must be from 0, for any error, to less than 1`},
		{data + "stop: {rhat: 1}\n", `s.yaml: line 3, column 14: stop.rhat: 1, but R-hat is never below 1`},
	} {
		if _, err := parse(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestValidateChecksWhatAProgramMade(t *testing.T) {
	s, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	s.Sampler.Chains = 0
	if err := s.Validate(); err == nil || err.Error() != "sampler.chains: 0, but must be at least 1" {
		t.Errorf("got %v", err)
	}
}

func TestPrecision(t *testing.T) {
	for _, c := range []struct {
		precision    string
		early, mixed bool
	}{{"auto", false, true}, {"auto", true, false}, {"float64", false, false}, {"mixed", true, true}} {
		if got := (&Solver{Precision: c.precision}).Mixed(c.early); got != c.mixed {
			t.Errorf("%+v: mixed is %v", c, got)
		}
	}
}

// The laws that specifications may name are those of package solve.
func TestWordsAgree(t *testing.T) {
	for law, want := range map[string]solve.Law{"paper": solve.PaperLaw{Beta: 2}, "geometric": solve.GeometricLaw{P: 2}} {
		if got := (&Solver{Law: law, Beta: 2}).StoppingLaw(); got != want {
			t.Errorf("%s: %v", law, got)
		}
	}
}

func TestLoadAndProblem(t *testing.T) {
	budget := parallel.NewBudget(1)
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(path, []byte("a,b,y\n1,2,3\n4,5,7\n7,9,10\n8,1,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := parse("name: a\ndata: {path: " + path + ", target: y, exclude: [b], rows: 3}\nmodel: {ard: true}\n")
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Load(context.Background(), nil, budget)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(d)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Y) != 3 || p.Inputs.Dim() != 1 || len(p.Model.Names()) != 3 {
		t.Errorf("%d rows, %d inputs, parameters %v", len(p.Y), p.Inputs.Dim(), p.Model.Names())
	}

	s, err = parse("name: a\ndata: {synthetic: {n: 60, d: 2, sigma: 2, tau: 0.5, lambda: 0.1, seed: 4}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if d, err = s.Load(context.Background(), nil, budget); err != nil {
		t.Fatal(err)
	}
	v := d.YScale.SD * d.YScale.SD
	if d.Truth == nil || math.Abs(d.Truth.Sigma-2/v) > 1e-12 || len(d.Truth.Tau) != 1 {
		t.Errorf("truth %+v", d.Truth)
	}
	s.Sampler.Method = "cholesky"
	s.Data.Synthetic.N = maxDense + 1
	if d, err = s.Load(context.Background(), nil, budget); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Problem(d); err == nil || !strings.Contains(err.Error(), "at most 10000 rows") {
		t.Errorf("got %v", err)
	}
	s.Sampler.Method = "pseudo-marginal"
	if _, err := s.Problem(d); err == nil || !strings.Contains(err.Error(), "at most 5000 rows") {
		t.Errorf("got %v", err)
	}
}

// Rows are arranged where the specification wants it, or, with auto, where there is something to be had from it.
func TestSparsity(t *testing.T) {
	for _, c := range []struct {
		sparsity, model string
		n, d            int
		arranged        bool
		err             string
	}{
		{"", "{kernel: rbf}", SparseRows, 2, false, ""},
		{"off", "{kernel: rbf}", SparseRows, 2, false, ""},
		{"auto", "{kernel: matern32}", SparseRows, 2, true, ""},
		{"auto", "{kernel: rbf}", SparseRows - 1, 2, false, ""},
		{"auto", "{kernel: rbf}", SparseRows, 4, false, ""},
		{"on", "{kernel: rbf}", 60, 4, true, ""},
		{"on", "{kernel: rbf, mean: linear}", 60, 4, true, ""},
		{"always", "{kernel: rbf}", 60, 4, false, `"always" is not one of off, auto, on`},
	} {
		text := fmt.Sprintf("name: a\ndata: {synthetic: {n: %d, d: %d, sigma: 1, tau: 1, lambda: 0.1}}\nmodel: %s\n", c.n, c.d, c.model)
		if c.sparsity != "" {
			text += "solver: {sparsity: " + c.sparsity + "}\n"
		}
		s, err := parse(text)
		if err != nil {
			if c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		in := kernel.NewInputs(c.n, c.d, make([]float64, c.n*c.d))
		cov, err := s.Covariance(&dataset.Info{Rows: c.n, InputNames: make([]string, c.d), XScale: slices.Repeat([]dataset.Scale{{SD: 1}}, c.d)})
		if err != nil {
			t.Fatal(err)
		}
		if in, err = s.arranged(in, cov); err != nil {
			t.Fatal(err)
		}
		if _, order := in.Arranged(); (order != nil) != c.arranged {
			t.Errorf("%q of %d rows and %d inputs: arranged %v", c.sparsity, c.n, c.d, order != nil)
		}
	}
	cov, err := kernel.Parse("a*rbf(1:u)+b*periodic(1:v:p:1)", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := Default()
	s.Solver.Sparsity = "on"
	if _, err := s.arranged(kernel.NewInputs(2, 1, []float64{1, 2}), cov); err == nil || !strings.Contains(err.Error(), "does not come to nothing") {
		t.Errorf("got %v", err)
	}
	if _, err := parse("name: a\ndata: {synthetic: {n: 60, d: 1, sigma: 1, tau: 1, lambda: 1}}\nsolver: {sparsity: on, cache: 1GiB}\n"); err == nil || !strings.Contains(err.Error(), "keep no elements") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("name: a\ndata: {synthetic: {n: 5, d: 2, sigma: 1, tau: [1, 2], lambda: 1}}\n")
	f.Add("{a: &x [*x]}")
	f.Add("? [a]: b")
	f.Add("a: !!binary x\n<<: {b: c}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of more than one line: %q", err)
			}
			return
		}
		out, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(bytes.NewReader(out), "out")
		if err != nil || !reflect.DeepEqual(s, back) {
			t.Errorf("%v: got %+v, want %+v", err, back, s)
		}
	})
}
