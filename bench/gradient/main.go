// Command gradient times gradients of a job's log posterior with instruction
// sets, numbers of threads, precisions and caches side by side, in one run and
// with the same probes:
//
//	go run ./bench/gradient -isa portable,avx512 -threads 1,2 examples/house8l.yaml
//
// Rounds of one gradient each are interleaved, and medians are printed, so that
// other work on the machine falls on all of them alike.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

type config struct {
	spec                          string
	isas, precisions, caches, psi []string
	tolerances, sds               []string
	threads                       []int
	probes, repeat                int
}

func main() {
	var c config
	list := func(name, value, usage string, dst *[]string) {
		flag.Func(name, usage+" (default "+value+")", func(s string) error { *dst = strings.Split(s, ","); return nil })
		if value != "" {
			*dst = strings.Split(value, ",")
		}
	}
	isa, _ := cmvp.ISA()
	var threads []string
	list("isa", isa, "instruction sets", &c.isas)
	list("threads", strconv.Itoa(runtime.GOMAXPROCS(0)), "numbers of threads", &threads)
	list("precision", "float64", "solver precisions", &c.precisions)
	list("cache", "off", "solver caches", &c.caches)
	list("psi", "", "log parameters to take the gradient at: the mode of 512 rows if none are given", &c.psi)
	list("tolerance", "", "solver tolerances: the specification's if none are given", &c.tolerances)
	list("sd", "", "posterior sds of the log parameters: then the error of a gradient against the least tolerance's is printed as a shift, sd by sd", &c.sds)
	flag.IntVar(&c.probes, "probes", 8, "trace probes")
	flag.IntVar(&c.repeat, "repeat", 3, "gradients of each kind to take the median of")
	worker := flag.Bool("worker", false, "print measurements as JSON for the instruction set of this process")
	flag.Parse()
	err := func() error {
		if flag.NArg() != 1 {
			return errors.New("give one specification")
		}
		c.spec = flag.Arg(0)
		for _, t := range threads {
			n, err := strconv.Atoi(t)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of threads", t)
			}
			c.threads = append(c.threads, n)
		}
		if *worker {
			return c.measure(context.Background())
		}
		return c.compare()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gradient:", err)
		os.Exit(1)
	}
}

// row is what was measured of one kind of gradient.
type row struct {
	N, D             int
	ISA, Precision   string
	Cache            string
	Tolerance        float64
	Threads          int
	Seconds          float64 // median
	CPU              float64 // processor seconds of all threads, mean
	Iterations       float64 // of a solve
	Products         int     // of the last gradient
	Singles          int
	Pairs, Residual  float64
	Unconverged      int
	Shift            float64   // largest sd·|error of the mean gradient|, 0 without sds
	gradient         []float64 // sum over the runs
	secondsOfEachRun []float64
}

// compare measures in one process for each instruction set.
func (c *config) compare() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	var first *row
	for _, isa := range c.isas {
		cmd := exec.Command(exe, append([]string{"-worker"}, os.Args[1:]...)...)
		cmd.Env = append(os.Environ(), "ULISSE_ISA="+isa)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("with %s: %w", isa, err)
		}
		var rows []row
		if err := json.Unmarshal(out, &rows); err != nil {
			return err
		}
		for _, r := range rows {
			if first == nil {
				first = &r
				fmt.Printf("%s: n=%d d=%d, %d probes, median of %d gradients\n\n", c.spec, r.N, r.D, c.probes, c.repeat)
				fmt.Fprintln(tw, "isa\tprecision\tcache\ttolerance\tthreads\ts/gradient\tfaster\tcpu s\titerations\tproducts\tsingle\tcpu ns/pair\tresidual\tunconverged\tshift, sd\t")
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%g\t%d\t%.4g\t%.2f\t%.4g\t%.1f\t%d\t%d\t%.3g\t%.1e\t%d\t%.2g\t\n", r.ISA, r.Precision, r.Cache, r.Tolerance, r.Threads, r.Seconds, first.Seconds/r.Seconds, r.CPU,
				r.Iterations, r.Products, r.Singles, 1e9*r.CPU/r.Pairs, r.Residual, r.Unconverged, r.Shift)
		}
	}
	return tw.Flush()
}

// measure prints the measurements of this process.
func (c *config) measure(ctx context.Context) error {
	isa, err := cmvp.ISA()
	if err != nil {
		return err
	}
	spec, problem, err := c.load(ctx)
	if err != nil {
		return err
	}
	psi, err := c.at(ctx, problem, spec.Seed)
	if err != nil {
		return err
	}
	p := len(psi)
	settings := chains.Settings{C: make([]float64, p*p), ProbeCov: make([]float64, p*p), Probes: c.probes, Step: 0.8}
	for i := range p {
		settings.C[i*p+i] = 1e-8 // a step that goes nowhere
	}
	plan := spec.Plan(problem.Model.Names(), len(problem.Y))

	var rows []*row
	var gradients []func(iter int) error
	for _, threads := range c.threads {
		budget := parallel.NewBudget(threads)
		for _, precision := range c.precisions {
			for _, memory := range c.caches {
				spec := *spec
				spec.Solver.Precision = precision
				if spec.Solver.Cache, err = job.ParseMemory(memory); err != nil {
					return err
				}
				if err := spec.Validate(); err != nil {
					return err
				}
				cache, err := driver.PlanCache(ctx, &spec, problem, budget)
				if err != nil {
					return err
				}
				var last runlog.Observation
				d := driver.New(driver.Config{Spec: &spec, Problem: problem, Plan: &plan, Budget: budget,
					Observe: func(o runlog.Observation) { last = o },
					Operator: func(int) driver.Operator {
						op := cmvp.New(problem.Inputs, problem.Covariance, budget)
						if cache != nil {
							cache.Apply(op)
						}
						return op
					}})
				tolerances, err := numbers(c.tolerances)
				if err != nil {
					return err
				}
				if len(tolerances) == 0 {
					tolerances = []float64{spec.Solver.Tolerance.Or(1e-6)}
				}
				for _, tolerance := range tolerances {
					// The preconditioner is the driver's, whatever the tolerance; a
					// chain takes it from the specification at its first gradient.
					ch, err := d.NewChain(ctx, &chains.Prepared{Psi: psi}, 1)
					if err != nil {
						return err
					}
					r := &row{N: len(problem.Y), D: problem.Inputs.Dim(), ISA: isa, Precision: precision, Cache: memory,
						Tolerance: tolerance, Threads: threads, gradient: make([]float64, p)}
					if cache != nil && !cache.Use {
						r.Cache += " (not used)"
					}
					rows = append(rows, r)
					gradients = append(gradients, func(iter int) error {
						if err := budget.Acquire(ctx); err != nil {
							return err
						}
						defer budget.Release()
						spec.Solver.Tolerance = job.Fixed(tolerance)
						start := cputime.Seconds()
						_, err := ch.Advance(ctx, chains.Task{Chain: 1, From: chains.State{Psi: slices.Clone(psi), Iter: iter}, Settings: settings, Iterations: 1})
						r.CPU += (cputime.Seconds() - start) / float64(c.repeat)
						r.secondsOfEachRun = append(r.secondsOfEachRun, last.Seconds)
						r.Iterations, r.Products, r.Singles = last.Iterations, last.Products, last.Singles
						r.Pairs, r.Residual, r.Unconverged = last.Pairs, max(r.Residual, last.Residual), r.Unconverged+last.Unconverged
						floats.Add(r.gradient, last.Gradient)
						return err
					})
				}
			}
		}
	}
	for iter := range c.repeat {
		for _, gradient := range gradients {
			if err := gradient(iter); err != nil {
				return err
			}
		}
	}
	for _, r := range rows {
		slices.Sort(r.secondsOfEachRun)
		r.Seconds = r.secondsOfEachRun[c.repeat/2]
	}
	if err := c.shifts(rows); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

// shifts compares the gradients with those of the least tolerance. Near the mode
// an error of the gradient moves the posterior by the covariance times it.
func (c *config) shifts(rows []*row) error {
	sd, err := numbers(c.sds)
	if err != nil || len(sd) == 0 {
		return err
	}
	best := slices.MinFunc(rows, func(a, b *row) int { return cmp.Compare(a.Tolerance, b.Tolerance) })
	if len(sd) != len(best.gradient) {
		return fmt.Errorf("-sd has %d numbers, the parameters are %d", len(sd), len(best.gradient))
	}
	for _, r := range rows {
		for i, g := range r.gradient {
			r.Shift = max(r.Shift, sd[i]*math.Abs(g-best.gradient[i])/float64(c.repeat))
		}
	}
	return nil
}

func numbers(text []string) ([]float64, error) {
	out := make([]float64, len(text))
	for i, s := range text {
		var err error
		if out[i], err = strconv.ParseFloat(s, 64); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// load reads the specification and its data, which lie beside it.
func (c *config) load(ctx context.Context) (*job.Spec, *posterior.Problem, error) {
	text, err := os.ReadFile(c.spec)
	if err != nil {
		return nil, nil, err
	}
	spec, err := job.Parse(bytes.NewReader(text), c.spec)
	if err != nil {
		return nil, nil, err
	}
	if p := spec.Data.Path; p != "" && !filepath.IsAbs(p) {
		spec.Data.Path = filepath.Join(filepath.Dir(c.spec), p)
	}
	data, err := spec.Load(ctx, nil, parallel.NewBudget(0))
	if err != nil {
		return nil, nil, err
	}
	problem, err := spec.Problem(data)
	return spec, problem, err
}

// at returns where to take gradients.
func (c *config) at(ctx context.Context, p *posterior.Problem, seed uint64) ([]float64, error) {
	if len(c.psi) == 0 {
		pt, _, err := mode.Dense(ctx, p.Subset(mode.Subset(len(p.Y), min(len(p.Y), 512), random.Key{Seed: seed})), parallel.NewBudget(0))
		if err != nil {
			return nil, err
		}
		return pt.Psi, nil
	}
	return numbers(c.psi)
}
