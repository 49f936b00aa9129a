// Command plan holds plans against reality: it plans jobs, runs them, and prints the time
// that was told over the time that it took.
//
//	go run ./bench/plan [-rows 500,1000,2000,4000,8000] [-only NAME]
//
// Each job is of generated data with 4 inputs, four chains and 200 draws of each; it ends
// at those draws, so that its length is the specification's and not the judge's.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/server"
	"github.com/ulisse-gp/ulisse/internal/worker"
)

// kinds are the jobs of each number of rows.
var kinds = []struct{ name, model, sampler string }{
	{"rbf", "{kernel: rbf}", "fisher"},
	{"rbf, ARD", "{kernel: rbf, ard: true}", "fisher"},
	{"matern32", "{kernel: matern32}", "fisher"},
	{"matern12, ARD", "{kernel: matern12, ard: true}", "fisher"},
	{"rbf, leimkuhler-matthews", "{kernel: rbf}", "leimkuhler-matthews"},
	{"rbf, auto", "{kernel: rbf}", "auto"},
	{"rbf, ARD, auto", "{kernel: rbf, ard: true}", "auto"},
}

func main() {
	rows := flag.String("rows", "500,1000,2000,4000,8000", "numbers of rows")
	only := flag.String("only", "", "only jobs whose name contains this")
	draws := flag.Int("draws", 200, "draws of each chain")
	flag.Parse()
	if err := run(*rows, *only, *draws); err != nil {
		log.Fatal(err)
	}
}

func run(rows, only string, draws int) error {
	fmt.Println("| job | rows | planned s | took s | planned / took | a gradient | probes | iterations |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	var errors []float64
	for _, text := range strings.Split(rows, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			if !strings.Contains(k.name, only) {
				continue
			}
			factor, err := compare(k.name, n, fmt.Sprintf("name: plan\nseed: 3\ndata: {synthetic: {n: %d, d: 4, sigma: 1, tau: 0.5, lambda: 0.1, seed: 7}}\n"+
				"model: %s\nsampler: {method: %s, draws: %d}\nstop: {max_draws: %d, max_time: 0s}\n", n, k.model, k.sampler, draws, draws))
			if err != nil {
				return fmt.Errorf("%s, %d rows: %w", k.name, n, err)
			}
			errors = append(errors, math.Abs(math.Log(factor)))
		}
	}
	slices.Sort(errors)
	fmt.Printf("\nfactor between plan and run: median %.2f, largest %.2f\n", math.Exp(errors[len(errors)/2]), math.Exp(errors[len(errors)-1]))
	return nil
}

// compare plans and runs a job, and returns the quotient of the times.
func compare(name string, n int, text string) (float64, error) {
	ctx := context.Background()
	s, err := job.ParseString(text)
	if err != nil {
		return 0, err
	}
	budget := parallel.NewBudget(runtime.NumCPU())
	data, err := s.Load(ctx, nil, budget)
	if err != nil {
		return 0, err
	}
	p, err := s.Problem(data)
	if err != nil {
		return 0, err
	}
	e, err := driver.NewEstimate(ctx, s, p, budget)
	if err != nil {
		return 0, err
	}

	began := time.Now()
	dir, err := os.MkdirTemp("", "plan")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	cache, err := driver.PlanCache(ctx, s, p, budget)
	if err != nil {
		return 0, err
	}
	plan := s.Plan(p.Model.Names(), n)
	d := driver.New(driver.Config{Spec: s, Problem: p, Plan: &plan, Budget: budget, Operator: func(int) driver.Operator {
		op := cmvp.New(p.Inputs, p.Covariance, budget)
		if cache != nil {
			cache.Apply(op)
		}
		return op
	}})
	r, _, err := server.Embedded{Dir: filepath.Join(dir, "state"), Budget: budget,
		Job: worker.Preloaded{Spec: s, Data: data, Problem: p, Plan: &plan, Driver: d}}.Run(ctx)
	if err != nil {
		return 0, err
	}
	took := time.Since(began).Seconds()
	cost := r.Cost()
	probes, tried := 0, "-"
	if r.Settings != nil {
		probes = r.Settings.Probes
	}
	if e.Trial != nil {
		tried = fmt.Sprintf("%d / %d", e.Trial.Probes, probes)
	}
	iterations := float64(cost.Iterations) / float64(cost.Solves)
	told := "-"
	if e.Trial != nil {
		told = fmt.Sprintf("%.1f / %.1f", e.Trial.Iterations, iterations)
	}
	fmt.Printf("| %s | %d | %.1f | %.1f | %.2f | %.2g / %.2g s | %s | %s |\n", name, n, e.SecondsEstimated, took, e.SecondsEstimated/took,
		e.SecondsGradient, took/float64(max(1, cost.Gradients)), tried, told)
	return e.SecondsEstimated / took, nil
}
