package main

import (
	"context"
	"fmt"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/accuracy/study"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// constructed runs the sampler auto as a whole, with seeds first, first + 1, …, on the constructed posteriors, and holds
// means and standard deviations to the truth by the errors that the runs state.
func constructed(w study.Whole, only string, first uint64, runs int) error {
	b := parallel.NewBudget(0)
	fmt.Println("| posterior | estimate | mean error | largest error | stated error, rms | rms of error over stated error | beyond 3 stated |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, t := range study.Targets() {
		if !strings.Contains(t.Name, only) {
			continue
		}
		var tallies []tally
		var names []string
		met, draws := 0, 0
		var cost chains.Cost
		began := cputime.Seconds()
		for seed := range runs {
			r, results, err := w.Run(context.Background(), t, first+uint64(seed), b)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", t.Name, first+uint64(seed), err)
			}
			if r.Stopped.Reason == chains.Converged {
				met++
			}
			cost.Add(r.Cost())
			draws += r.MinDraws()
			if tallies == nil {
				tallies, names = make([]tally, len(results)), make([]string, len(results))
			}
			for i, x := range results {
				sd := t.SD(i / 2)
				names[i] = x.Name
				tallies[i].add((x.Estimate-x.Truth)/sd, x.Errors.Total()/sd)
			}
		}
		for i, y := range tallies {
			fmt.Printf("| %s | %s | %+.4f | %.4f | %.4f | %.2f | %d |\n", t.Name, names[i], stat.Mean(y.errors, nil), y.largest(), rms(y.stated), y.ratio(), y.beyond(3))
		}
		fmt.Printf("| %s | all; %d of %d converged, %d draws of each chain, %d densities, %d products and %.1f processor seconds a run | | | | %.2f | |\n", t.Name, met, runs,
			draws/runs, cost.Densities/runs, cost.Products/runs, (cputime.Seconds()-began)/float64(runs), together(tallies))
	}
	return nil
}
