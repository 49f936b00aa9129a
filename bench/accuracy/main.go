// Command accuracy holds the errors that are stated for means, standard deviations, quantiles
// and masses of modes against the true ones, on constructed posteriors whose answers are
// known.
//
//	go run ./bench/accuracy [-runs 200] [-only banana] [-noise 2] [-gradients 120] [-draws 2000]
//
//	go run ./bench/accuracy -whole [-rows 100] [-density auto] [-runs 200] [-seed 1] [-only banana]
//
// runs the sampler auto as a whole on them, as on the posterior of so many rows: up to 500 its density is
// exact, beyond a part of it is learnt (-density learnt: always).
//
//	go run ./bench/accuracy -spec SPEC -against FILE [-runs 200] [-seed 1]
//
// runs a specification as a whole, with the seeds 1, 2, … or others, against a reference that
// bench/posteriors made.
//
// For every estimate it prints the root mean square, over the runs, of the true error over
// the stated one: 1 if the stated errors are right, give or take 0.05 with 200 runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/accuracy/study"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func main() {
	c := study.Default
	runs := flag.Int("runs", 200, "runs of each posterior")
	only := flag.String("only", "", "one posterior: a part of its name")
	flag.IntVar(&c.Gradients, "gradients", c.Gradients, "gradients that the unknown function is learned from")
	flag.IntVar(&c.Draws, "draws", c.Draws, "draws of all chains")
	flag.Float64Var(&c.Noise, "noise", c.Noise, "standard deviation of a probe, in units of the posterior's")
	flag.BoolVar(&c.Known, "known", false, "do not learn but know the function: the error of the draws alone")
	spec := flag.String("spec", "", "specification to run as a whole, in place of the constructed posteriors")
	against := flag.String("against", "", "with -spec: reference, a file that bench/posteriors wrote")
	asWhole := flag.Bool("whole", false, "run the sampler auto as a whole")
	first := flag.Uint64("seed", 1, "with -whole or -spec: the first seed")
	w := study.DefaultWhole
	flag.IntVar(&w.Rows, "rows", w.Rows, "with -whole: rows that the posterior is said to be of")
	flag.StringVar(&w.Density, "density", w.Density, "with -whole: auto.density")
	flag.Float64Var(&w.Error, "error", w.Error, "with -whole: stop.error")
	flag.Parse()
	if *asWhole {
		if err := constructed(w, *only, *first, *runs); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *spec != "" {
		if err := whole(*spec, *against, *first, *runs); err != nil {
			log.Fatal(err)
		}
		return
	}
	b := parallel.NewBudget(0)
	fmt.Println("| posterior | estimate | rms of error over stated error | shares of the stated variance: draws, density | bias in stated errors |")
	fmt.Println("|---|---|---|---|---|")
	for _, t := range study.Targets() {
		if !strings.Contains(t.Name, *only) {
			continue
		}
		began := time.Now()
		var names []string
		var square, bias, mc, density []float64
		for seed := range *runs {
			results, err := study.Run(context.Background(), t, c, uint64(seed), b)
			if err != nil {
				log.Fatal(err)
			}
			if names == nil {
				n := len(results)
				names = make([]string, n)
				square, bias, mc, density = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
			}
			for i, r := range results {
				names[i] = r.Name
				square[i] += r.Z() * r.Z() / float64(*runs)
				bias[i] += r.Z() / float64(*runs)
				total := r.Errors.Total()
				mc[i] += r.Errors.MonteCarlo * r.Errors.MonteCarlo / (total * total * float64(*runs))
				density[i] += r.Errors.Density * r.Errors.Density / (total * total * float64(*runs))
			}
		}
		var all float64
		for i, name := range names {
			all += square[i] / float64(len(names))
			fmt.Printf("| %s | %s | %.2f | %.2f, %.2f | %+.2f |\n", t.Name, name, math.Sqrt(square[i]), mc[i], density[i], bias[i])
		}
		fmt.Printf("| %s | all, %.1f s a run | %.2f | | |\n", t.Name, time.Since(began).Seconds()/float64(*runs), math.Sqrt(all))
	}
}
