// Command precond measures preconditioners: how many iterations of CG they
// save and what they cost.
//
//	go run ./bench/precond -data DIR                 house8l, all rows, at the posterior
//	go run ./bench/precond -data DIR -study grid     a grid of length-scales and noise variances
//
// The first prints iterations to relative residuals of 1e-2 and 1e-4 for five
// right-hand sides. The second is Figure 1 of Cutajar et al. (2016) on Concrete,
// Power and Protein: it prints a table and, with -svg FILE, draws the heat map.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// settings are the flags.
type settings struct {
	data, study, kinds, sets, svg, json string
	rows, limit, threads                int
	cache                               bool
	budget                              *parallel.Budget
}

func main() {
	var s settings
	flag.StringVar(&s.data, "data", os.Getenv("ULISSE_DATA"), "folder of the data sets (default $ULISSE_DATA)")
	flag.StringVar(&s.study, "study", "house8l", "house8l or grid")
	flag.StringVar(&s.kinds, "kinds", "", "kinds to measure, as in none,rpcholesky:300 (default: those of the study)")
	flag.StringVar(&s.sets, "sets", "concrete,power,protein", "grid: data sets")
	flag.IntVar(&s.rows, "rows", 0, "use this number of random rows of a larger data set (0: all)")
	flag.IntVar(&s.limit, "limit", 0, "iterations at which a solve is given up (default 600; grid: 2000)")
	flag.IntVar(&s.threads, "threads", 0, "threads (default: all cores)")
	flag.BoolVar(&s.cache, "cache", true, "keep K in memory, 4n² bytes")
	flag.StringVar(&s.svg, "svg", "", "grid: draw the heat map into this file")
	flag.StringVar(&s.json, "json", "", "grid: read the results of earlier runs from this file, and keep those of this one there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "precond:", err)
		os.Exit(1)
	}
}

func (s *settings) run(ctx context.Context) error {
	if s.data == "" {
		return errors.New("no data: give -data DIR or set ULISSE_DATA")
	}
	s.budget = parallel.NewBudget(s.threads)
	if err := s.budget.Acquire(ctx); err != nil {
		return err
	}
	defer s.budget.Release()
	switch s.study {
	case "house8l":
		return s.house(ctx)
	case "grid":
		return s.grid(ctx)
	}
	return fmt.Errorf("unknown study %q: use house8l or grid", s.study)
}

// targets are the columns to predict.
var targets = map[string]string{"house8l": "price", "concrete": "strength", "power": "PE", "protein": "RMSD"}

// load reads a data set, standardised; at most rows of its rows, at random.
func (s *settings) load(name string) (*dataset.Dataset, error) {
	path := filepath.Join(s.data, name+".csv")
	if _, err := os.Stat(path); err != nil {
		path += ".gz"
	}
	t, err := dataset.ReadFile(path, nil, dataset.Select{Target: targets[name]}, dataset.DefaultLimits)
	if err != nil {
		return nil, err
	}
	opt := dataset.Options{Standardize: true, Seed: 1}
	if n := len(t.Y); s.rows > 0 && s.rows < n {
		opt.Holdout = 1 - float64(s.rows)/float64(n)
	}
	return dataset.New(t, opt)
}

// rightHandSides are y and random signs.
func rightHandSides(y []float64, s int) [][]float64 {
	b := [][]float64{y}
	for c := 1; c < s; c++ {
		w := make([]float64, len(y))
		random.Rademacher(random.Key{Seed: 1}.Stream(random.Calibration, c), w)
		b = append(b, w)
	}
	return b
}
