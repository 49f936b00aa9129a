// Command sbc calibrates the whole pipeline by simulation: rank histograms of
// the true parameters among the draws, on data generated from the prior.
//
//	go run ./bench/sbc [-reps 200] [-n 80] [-seed 1] [-only exact]
//	go run ./bench/sbc -expressions auto|exact|cholesky [-reps 100] [-n 40] [-seed 1] [-thin 20] [-only season]
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
	only := flag.String("only", "", "one sampler, or one expression, only")
	expressions := flag.String("expressions", "", "calibrate this sampler, auto, exact or cholesky, on sums and products of covariances instead")
	thin := flag.Int("thin", 20, "of expressions: iterations between the draws that are ranked")
	flag.Parse()
	lo, hi := calibration.Band(*reps, bins, 0.99)
	fmt.Printf("%d data sets of %d rows; %.0f expected in a bin, %d to %d with probability 0.99\n\n", *reps, *n, float64(*reps)/bins, lo, hi)
	fmt.Println("| what | parameter | ranks, in tenths | p (chi-squared) |")
	fmt.Println("|---|---|---|---|")
	config := calibration.Config{N: *n, Reps: *reps, Kept: kept, Seed: *seed, Solver: "{preconditioner: {kind: rpcholesky}}"}
	if *expressions != "" {
		config.Method, config.Thin = *expressions, *thin
		for _, m := range models {
			if *only == "" || *only == m.name {
				config.Model, config.Levels = m.text, m.levels
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

// models are what expressions are made of: sums, products, brackets, fixed parameters, each leaf.
var models = []struct {
	name, text string
	levels     int // of the category
}{
	{"season", `{kernel: "trend: rbf(t) + season: periodic(t, period=2.5)", priors: {` + priors + `}}`, 0},
	{"decay", `{kernel: "season: periodic(t) * rbf(t, lengthscale=4)", priors: {season.periodic.period: "lognormal(0.9,0.05)", ` + priors + `}}`, 0},
	{"additive", `{kernel: "a: rbf(t) + b: matern32(x)", priors: {` + priors + `}}`, 0},
	{"product", `{kernel: "matern52(t) * rbf(x) + matern12(t)", priors: {` + priors + `}}`, 0},
	{"bracket", `{kernel: "(rbf(t) + matern32(x)) * rbf(x, lengthscale=2)", priors: {` + priors + `}}`, 0},
	{"shape", `{kernel: "rq(t) + linear(x)", priors: {` + priors + `}}`, 0},
	{"wave", `{kernel: "cosine(t, period=3) * wendland(t) + sigmoid(x, at=0, width=0.2) * rbf(x)", mean: linear(t), priors: {` + priors + `}}`, 0},
	{"outputs", `{kernel: "f: coregion(c) * rbf(t)", priors: {` + priors + `}}`, 2},
	{"three", `{kernel: "f: coregion(c, scale=1) * matern52(t)", priors: {f.coregion.correlation: "lkj(1)", ` + priors + `}}`, 3},
	{"factor", `{kernel: "f: coregion(c, rank=1) * rbf(t)", priors: {` + priors + `}}`, 4},
	{"change", `{kernel: "before: sigmoid(t, at=c, falling) * rbf(x) + after: sigmoid(t, at=c) + polynomial(x, degree=1)", priors: {c.place: "normal(5,2)", c.width: "lognormal(-1,0.5)", ` + priors + `}}`, 0},
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
