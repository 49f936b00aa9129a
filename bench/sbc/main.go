// Command sbc calibrates the whole pipeline by simulation: rank histograms of
// the true parameters among the draws, on data generated from the prior.
//
//	go run ./bench/sbc [-reps 200] [-n 80] [-seed 1] [-only exact]
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
	only := flag.String("only", "", "one sampler only")
	flag.Parse()
	const kept, bins = 19, 10
	lo, hi := calibration.Band(*reps, bins, 0.99)
	fmt.Printf("%d data sets of %d rows; %.0f expected in a bin, %d to %d with probability 0.99\n\n", *reps, *n, float64(*reps)/bins, lo, hi)
	fmt.Println("| sampler | parameter | ranks, in tenths | p (chi-squared) |")
	fmt.Println("|---|---|---|---|")
	pcg := "{preconditioner: {kind: rpcholesky}}"
	for _, c := range []struct {
		method, solver string
		thin           int
	}{{"fisher", pcg, 3}, {"leimkuhler-matthews", pcg, 6}, {"exact", pcg, 6}} {
		if *only != "" && *only != c.method {
			continue
		}
		names, ranks, err := calibration.Ranks(context.Background(), calibration.Config{Method: c.method, Solver: c.solver,
			N: *n, Reps: *reps, Kept: kept, Thin: c.thin, Seed: *seed})
		if err != nil {
			log.Fatal(err)
		}
		for i, name := range names {
			h := calibration.Histogram(ranks[i], kept, bins)
			fmt.Printf("| %s | %s | %s | %.2g |\n", c.method, name, strings.Trim(fmt.Sprint(h), "[]"), calibration.PValue(h))
		}
	}
}
