package main

import (
	"context"
	"fmt"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/accuracy/study"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// constructed runs the sampler auto as a whole, with seeds 1, 2, …, on the constructed posteriors, and holds
// means and standard deviations to the truth by the errors that the runs state.
func constructed(w study.Whole, only string, runs int) error {
	b := parallel.NewBudget(0)
	fmt.Println("| posterior | estimate | mean error | largest error | stated error, rms | rms of error over stated error | beyond 3 stated |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, t := range study.Targets() {
		if !strings.Contains(t.Name, only) {
			continue
		}
		var tallies []tally
		var names []string
		met, densities, draws := 0, 0, 0
		for seed := range runs {
			r, results, err := w.Run(context.Background(), t, uint64(seed+1), b)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", t.Name, seed+1, err)
			}
			if r.Stopped.Reason == chains.Converged {
				met++
			}
			densities, draws = densities+r.Cost().Densities, draws+r.MinDraws()
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
		fmt.Printf("| %s | all; %d of %d converged, %d draws of each chain and %d densities a run | | | | %.2f | |\n", t.Name, met, runs, draws/runs, densities/runs, together(tallies))
	}
	return nil
}
