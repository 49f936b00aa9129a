// Command sbc calibrates the whole pipeline by simulation: rank histograms of
// the true parameters among the draws, on data generated from the prior.
//
//	go run ./bench/sbc [-reps 200] [-n 80] [-seed 1] [-only exact]
//	go run ./bench/sbc -expressions auto|exact|cholesky [-reps 100] [-n 40] [-seed 1] [-thin 20] [-only season]
//	go run ./bench/sbc -likelihoods [-reps 100] [-n 40] [-seed 1] [-thin 20] [-warmup 100] [-only probit]
//	go run ./bench/sbc -elliptical [-reps 100] [-n 30] [-seed 1] [-thin 20] [-only categorical]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/calibration"
)

func main() {
	reps := flag.Int("reps", 200, "data sets for each sampler")
	n := flag.Int("n", 80, "rows of each")
	seed := flag.Uint64("seed", 1, "seed of the data sets")
	only := flag.String("only", "", "one sampler only, or the expressions or likelihoods whose names begin so")
	expressions := flag.String("expressions", "", "calibrate this sampler, auto, exact or cholesky, on sums and products of covariances instead")
	likelihoods := flag.Bool("likelihoods", false, "calibrate likelihoods with auxiliary variables instead")
	elliptical := flag.Bool("elliptical", false, "calibrate likelihoods under elliptical slices instead, with their latent functions")
	thin := flag.Int("thin", 20, "of expressions and likelihoods: iterations between the draws that are ranked")
	warmup := flag.Int("warmup", 0, "of likelihoods: iterations of each chain, 0 for the sampler's own number")
	flag.Parse()
	lo, hi := calibration.Band(*reps, bins, 0.99)
	fmt.Printf("%d data sets of %d rows; %.0f expected in a bin, %d to %d with probability 0.99\n\n", *reps, *n, float64(*reps)/bins, lo, hi)
	fmt.Println("| what | parameter | ranks, in tenths | p (chi-squared) |")
	fmt.Println("|---|---|---|---|")
	config := calibration.Config{N: *n, Reps: *reps, Kept: kept, Seed: *seed, Solver: "{preconditioner: {kind: rpcholesky}}"}
	calibrated := models
	switch {
	case *likelihoods:
		*expressions, calibrated = "gibbs", withLikelihoods
	case *elliptical:
		*expressions, calibrated, config.Functions = "elliptical", underElliptical, true
	}
	if *expressions != "" {
		config.Method, config.Thin, config.Warmup = *expressions, *thin, *warmup
		for _, m := range calibrated {
			if strings.HasPrefix(m.name, *only) {
				config.Model, config.Levels = m.text, m.levels
				if *likelihoods || *elliptical {
					config.Levels, config.Classes = 0, m.levels
				}
				show(m.name, config)
			}
		}
		return
	}
	for _, m := range []struct {
		method string
		thin   int
	}{{"fisher", 3}, {"leimkuhler-matthews", 6}, {"exact", 6}} {
		if *only == "" || *only == m.method {
			config.Method, config.Thin = m.method, m.thin
			show(m.method, config)
		}
	}
}

// kept draws are ranked, in bins of equal numbers of ranks.
const kept, bins = 19, 10

// priors are of all terms: by default they would be too vague for data of every kind to be simulated.
const priors = `sigma: "lognormal(0,0.5)", lambda: "lognormal(-2,0.5)", tau: "lognormal(-1,0.7)"`

// vague are priors that say little: of few rows posteriors are skewed, and have several maxima.
const vague = `sigma: "lognormal(0,1.5)", lambda: "lognormal(-1,1.5)", tau: "lognormal(-1,1.5)"`

// model is one that is calibrated: levels are those of its category, 0 if it has none; under a likelihood of classes, those of the
// target.
type model struct {
	name, text string
	levels     int
}

// models are what expressions are made of: sums, products, brackets, fixed parameters, each leaf.
var models = []model{
	{"season", `{kernel: "trend: rbf(t) + season: periodic(t, period=2.5)", priors: {` + priors + `}}`, 0},
	{"decay", `{kernel: "season: periodic(t) * rbf(t, lengthscale=4)", priors: {season.periodic.period: "lognormal(0.9,0.05)", ` + priors + `}}`, 0},
	{"additive", `{kernel: "a: rbf(t) + b: matern32(x)", priors: {` + priors + `}}`, 0},
	{"product", `{kernel: "matern52(t) * rbf(x) + matern12(t)", priors: {` + priors + `}}`, 0},
	{"bracket", `{kernel: "(rbf(t) + matern32(x)) * rbf(x, lengthscale=2)", priors: {` + priors + `}}`, 0},
	{"shape", `{kernel: "rq(t) + linear(x)", priors: {` + priors + `}}`, 0},
	{"vague", `{kernel: "rbf(t)", priors: {` + vague + `}}`, 0},
	{"vague in two inputs", `{kernel: "rbf(t, x, ard)", priors: {` + vague + `}}`, 0},
	{"wave", `{kernel: "cosine(t, period=3) * wendland(t) + sigmoid(x, at=0, width=0.2) * rbf(x)", mean: linear(t), priors: {` + priors + `}}`, 0},
	{"change", `{kernel: "before: sigmoid(t, at=c, falling) * rbf(x) + after: sigmoid(t, at=c) + polynomial(x, degree=1)", priors: {c.place: "normal(5,2)", c.width: "lognormal(-1,0.5)", ` + priors + `}}`, 0},
	{"outputs", `{kernel: "f: coregion(c) * rbf(t)", priors: {` + priors + `}}`, 2},
	{"three", `{kernel: "f: coregion(c, scale=1) * matern52(t)", priors: {f.coregion.correlation: "lkj(1)", ` + priors + `}}`, 3},
	{"factor", `{kernel: "f: coregion(c, rank=1) * rbf(t)", priors: {` + priors + `}}`, 4},
}

// withLikelihoods are one covariance under each likelihood.
var withLikelihoods = []model{
	{"student-t", `{kernel: rbf(t), likelihood: student-t, priors: {` + priors + `}}`, 0},
	{"student-t, df", `{kernel: rbf(t), likelihood: student-t, priors: {` + priors + `, df: "gamma(2,0.1)"}}`, 0},
	{"ordinal", `{kernel: rbf(t), likelihood: ordinal, mean: none, priors: {` + priors + `, gap: "lognormal(0,0.5)"}}`, 4},
	{"laplace", `{kernel: rbf(t), likelihood: laplace, priors: {` + priors + `}}`, 0},
	{"quantile", `{kernel: rbf(t), likelihood: quantile, level: 0.8, priors: {` + priors + `}}`, 0},
	{"logit", `{kernel: rbf(t), likelihood: bernoulli, priors: {` + priors + `}}`, 0},
	{"probit", `{kernel: rbf(t), likelihood: bernoulli, link: probit, priors: {` + priors + `}}`, 0},
	{"negative-binomial", `{kernel: rbf(t), likelihood: negative-binomial, priors: {` + priors + `, size: "lognormal(1,0.5)"}}`, 0},
	{"poisson", `{kernel: rbf(t), likelihood: poisson, priors: {` + priors + `}}`, 0},
	{"stochastic-volatility", `{kernel: rbf(t), likelihood: stochastic-volatility, priors: {` + priors + `}}`, 0},
}

// underElliptical are those of one latent function and of several that elliptical slices sample.
var underElliptical = []model{
	{"categorical", `{kernel: rbf(t), likelihood: categorical, priors: {` + priors + `}}`, 3},
	{"heteroscedastic", `{kernel: rbf(t), likelihood: heteroscedastic, noise: {log_variance: rbf(t)}, priors: {` + priors + `}}`, 0},
	{"logit", `{kernel: rbf(t), likelihood: bernoulli, priors: {` + priors + `}}`, 0},
	{"poisson", `{kernel: rbf(t), likelihood: poisson, priors: {` + priors + `}}`, 0},
	{"negative-binomial", `{kernel: rbf(t), likelihood: negative-binomial, priors: {` + priors + `, size: "lognormal(1,0.5)"}}`, 0},
	{"ordinal", `{kernel: rbf(t), likelihood: ordinal, mean: none, priors: {` + priors + `, gap: "lognormal(0,0.5)"}}`, 4},
	{"stochastic-volatility", `{kernel: rbf(t), likelihood: stochastic-volatility, priors: {` + priors + `}}`, 0},
}

// show prints the ranks of each parameter.
func show(name string, c calibration.Config) {
	names, ranks, err := calibration.Ranks(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	for i, p := range names {
		h := calibration.Histogram(ranks[i], kept, bins)
		fmt.Printf("| %s | %s | %s | %.2g |\n", name, p, strings.Trim(fmt.Sprint(h), "[]"), calibration.PValue(h))
	}
}
