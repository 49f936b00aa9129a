package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/sizing"
)

// groupFlags say of what workers a plan is.
type groupFlags struct {
	workers, cores, rows, inputs int
	iterations                   float64
	network, memory              string
}

// groupOnly are the flags that need --workers.
var groupOnly = []string{"cores", "network", "memory", "rows", "inputs", "iterations"}

func (g *groupFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&g.workers, "workers", 0, "plan for this `number` of workers, beside 1, 2, 4, 10, 36, 72 and 300")
	f.IntVar(&g.cores, "cores", 0, "cores of each worker, as fast as this machine's (default: as many as here)")
	f.StringVar(&g.network, "network", "10Gbps", "what a worker's network card sends in a second, and receives")
	f.StringVar(&g.memory, "memory", "", "memory of each worker, such as 16GiB (default: not looked at)")
	f.IntVar(&g.rows, "rows", 0, "plan for this `number` of rows: the table has only some of them, or is not read (--inputs)")
	f.IntVar(&g.inputs, "inputs", 0, "plan for this `number` of inputs, without a table; a kernel that is an expression needs some rows of one (--data)")
	f.Float64Var(&g.iterations, "iterations", 0, "iterations of a solve, as the summary of a run tells them (default: those of a trial, or 40 without a table)")
}

// maxPlanned bounds the rows and the workers of a plan.
const (
	maxPlannedRows    = 100_000_000
	maxPlannedWorkers = 10_000
)

// worker returns what each worker has.
func (g *groupFlags) worker(budget *parallel.Budget) (w sizing.Worker, err error) {
	for _, x := range []struct {
		name           string
		value, least   int
		most           int
		mustBePositive bool
	}{
		{"workers", g.workers, 1, maxPlannedWorkers, true}, {"cores", g.cores, 1, 4096, g.cores != 0},
		{"rows", g.rows, 2, maxPlannedRows, g.rows != 0 || g.inputs != 0}, {"inputs", g.inputs, 1, 1000, g.inputs != 0},
	} {
		if x.mustBePositive && (x.value < x.least || x.value > x.most) {
			return w, fmt.Errorf("--%s %d: give a number from %d to %d", x.name, x.value, x.least, x.most)
		}
	}
	if g.iterations < 0 || math.IsNaN(g.iterations) || math.IsInf(g.iterations, 0) {
		return w, fmt.Errorf("--iterations %g: give a positive number", g.iterations)
	}
	w = sizing.Worker{Cores: g.cores}
	if w.Cores == 0 {
		w.Cores = budget.Cores()
	}
	if w.Bandwidth, err = bandwidth(g.network); err != nil {
		return w, fmt.Errorf("--network %q: give bits a second, such as 10Gbps or 400Mbps", g.network)
	}
	if g.memory != "" {
		bytes, err := humanize.ParseBytes(g.memory)
		if err != nil || bytes == 0 || bytes > math.MaxInt64 {
			return w, fmt.Errorf("--memory %q: give an amount, such as 16GiB", g.memory)
		}
		w.Memory = int64(bytes)
	}
	return w, nil
}

// bandwidth reads bits a second, and returns bytes a second.
func bandwidth(text string) (float64, error) {
	bits, unit, err := humanize.ParseSI(text)
	if err == nil && (!(bits > 0) || math.IsInf(bits, 0) || unit != "bps" && unit != "bit/s" && unit != "b/s") {
		err = errors.New("not bits a second")
	}
	return bits / 8, err
}

// sampled makes the specification one of data that are at hand.
func (g *groupFlags) sampled(s *job.Spec) error {
	if g.rows == 0 {
		return nil
	}
	if g.inputs > 0 {
		s.Data = job.Data{Standardize: s.Data.Standardize, Synthetic: &job.Synthetic{N: min(g.rows, sizing.SampleRows), D: g.inputs, Sigma: 1, Tau: job.Floats{1}, Lambda: 0.1, Seed: 1}}
		if err := s.Validate(); err != nil {
			return fmt.Errorf("--inputs cannot stand for the table of this specification, give some rows of one with --data and their full --rows: %w", err)
		}
		return nil
	}
	if d := s.Data.Synthetic; d != nil {
		made := *d
		made.N = min(g.rows, sizing.SampleRows)
		s.Data.Synthetic = &made
	}
	return nil
}

// fewRows is below how many rows products are slower, row by row.
const fewRows = 4096

// groupPlan is a plan for several workers, as --json prints it.
type groupPlan struct {
	Name           string        `json:"name"`
	Work           sizing.Work   `json:"work"`
	Worker         sizing.Worker `json:"worker"`
	IterationsFrom string        `json:"iterations_from"`    // flag, trial or assumed
	TrialRows      int           `json:"trial_rows"`         // 0 without a trial
	Rates          *sizing.Rates `json:"core"`               // null of a staged run
	Alone          float64       `json:"driver_alone_share"` // of an iteration on one worker
	Rows           []sizing.Row  `json:"plans"`
	Workers        int           `json:"workers"`
	Recommended    int           `json:"recommended_workers"`
	FittingRank    int           `json:"fitting_rank"`
	// Course is what a staged run is expected to consist of; null of others.
	Course *driver.Course `json:"course"`
}

// planGroup plans a run on several workers.
func (a *App) planGroup(ctx context.Context, g *groupFlags, spec *job.Spec, budget *parallel.Budget) (*groupPlan, error) {
	w, err := g.worker(budget)
	if err == nil {
		err = errors.Join(sizing.Check(spec), g.sampled(spec))
	}
	if err != nil {
		return nil, badInput(err)
	}
	_, p, err := a.load(ctx, spec, budget)
	if err != nil {
		return nil, err
	}
	c := sizing.Config{Spec: spec, Problem: p, Rows: g.rows, Iterations: g.iterations, Worker: w}
	if c.Rows == 0 {
		c.Rows = len(p.Y)
	}
	if c.Rows < len(p.Y) {
		return nil, badInput(fmt.Errorf("--rows %d: the table has %d already", c.Rows, len(p.Y)))
	}
	if len(p.Y) < min(c.Rows, fewRows) {
		a.note("hint: the plan is of %d rows and measured on %d: on so few products are slower. Give --data with some thousands, or --inputs", c.Rows, len(p.Y))
	}
	if spec.Needs().Staged {
		return planStaged(ctx, g, c, budget)
	}
	from, trialRows := "assumed", 0
	_, arranged := p.Inputs.Arranged()
	if g.inputs == 0 && (c.Iterations == 0 || !spec.Sampler.Probes.Set || arranged != nil) {
		t := driver.NewTrial(ctx, spec, p, c.Rows, nil, budget)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if t != nil {
			c.Probes, c.Near, trialRows = t.Probes, t.Near, t.Rows
			if c.Iterations == 0 {
				c.Iterations, from = t.Iterations, "trial"
			}
		}
	}
	if g.iterations > 0 {
		from = "flag"
	}
	m := sizing.New(c)
	if err := m.Measure(ctx, p, budget); err != nil {
		return nil, err
	}
	return &groupPlan{Name: spec.Name, Work: m.Work, Worker: w, IterationsFrom: from, TrialRows: trialRows, Rates: m.Rates, Alone: m.Alone(), Rows: m.Table(g.workers),
		Workers: g.workers, Recommended: m.Recommended(g.workers), FittingRank: m.FittingRank()}, nil
}

// planStaged plans a staged run on several workers.
func planStaged(ctx context.Context, g *groupFlags, c sizing.Config, budget *parallel.Budget) (*groupPlan, error) {
	m, err := sizing.NewStaged(ctx, c, budget)
	if err != nil {
		return nil, err
	}
	return &groupPlan{Name: c.Spec.Name, Work: m.Work, Worker: m.Worker, IterationsFrom: "trial", TrialRows: m.Course.Rows, Rows: m.Table(g.workers),
		Workers: g.workers, Recommended: m.Recommended(g.workers), Course: m.Course}, nil
}

// printStaged prints a plan of a staged run for several workers.
func (a *App) printStaged(p *groupPlan) error {
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	w := p.Work
	row("data", "%d rows, %s", w.Rows, plural.Of(w.Inputs, "input"))
	row("worker", "%d cores of this machine's kind", p.Worker.Cores)
	printCourse(row, p.Course)
	evaluations, proposals := p.Course.Evaluations()
	row("run", "%d evaluations and %d proposals of %d chains, in stages that any worker computes items of: a guess, which may be wrong by a factor of %d",
		evaluations, proposals, w.Chains, driver.GuessFactor)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout)
	tw = tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "workers\tmode after\trun\tdraws/h\tcore-hours\tefficiency\tmemory\t")
	for _, r := range p.Rows {
		note := ""
		if !r.Fits {
			note = "does not fit"
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%.3g\t%.3g\t%.2f\t%s\t%s\n", r.Workers, longText(r.Mode), longText(r.Run), r.Draws, r.CoreHours, r.Efficiency,
			bytesText(r.DriverBytes), note)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "\n"+p.advice())
	return nil
}

// printGroup prints a plan for several workers.
func (a *App) printGroup(p *groupPlan) error {
	if p.Course != nil {
		return a.printStaged(p)
	}
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	w := p.Work
	row("data", "%d rows, %s", w.Rows, plural.Of(w.Inputs, "input"))
	row("worker", "%d cores of this machine's kind (%s), network %s", p.Worker.Cores, p.Rates.InstructionSet, humanize.SI(8*p.Worker.Bandwidth, "bps"))
	from := map[string]string{"flag": "as given", "trial": fmt.Sprintf("as in a trial of %d rows", p.TrialRows), "assumed": "assumed: only a run can tell"}[p.IterationsFrom]
	row("gradient", "%d right-hand sides, %.0f iterations of a solve (%s), preconditioner of rank %d", w.Columns, w.Iterations, from, w.Rank)
	if w.Near > 0 {
		row("sparsity", "%.3g %% of the pairs of rows are left, at the mode of a trial of %d rows", 100*w.Near, p.TrialRows)
	}
	row("run", "%d chains, each %d gradients of warm-up and %d draws, which are not all independent", w.Chains, w.Warmup, w.Draws)
	it := p.Rows[0].Iteration
	row("iteration", "%s on one worker: product %s, preconditioner %s, vectors %s", longText(it.Seconds()), longText(it.Product), longText(it.Precondition), longText(it.Vectors))
	row("alone", "%.2g %% of it is the chain's driver's alone (vectors): a group cannot be more than %.3g times as fast as one worker", 100*p.Alone, 1/p.Alone)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout)
	tw = tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "workers\tgroup\tused\titeration\ta draw\tmode after\tdraws from\trun\tdraws/h\tcore-hours\tefficiency\tdriver\tmember\t")
	for _, r := range p.Rows {
		member, note := "-", ""
		if r.MemberBytes > 0 {
			member = bytesText(r.MemberBytes)
		}
		if !r.Fits {
			note = "does not fit"
		}
		fmt.Fprintf(tw, "%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%.3g\t%.3g\t%.2f\t%s\t%s\t%s\n", r.Workers, r.Members, r.Used, longText(r.Iteration.Seconds()), longText(r.Round),
			longText(r.Mode), longText(r.First), longText(r.Run), r.Draws, r.CoreHours, r.Efficiency, bytesText(r.DriverBytes), member, note)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "\n"+p.advice())
	return nil
}

// longText is secondsText of what may take weeks.
func longText(s float64) string {
	if days := s / (24 * 3600); days >= 10 {
		return fmt.Sprintf("%.0f days", days)
	}
	return secondsText(s)
}

// advice says which number of workers is worth it.
func (p *groupPlan) advice() string {
	var s strings.Builder
	switch {
	case p.Recommended == 0:
		fmt.Fprintf(&s, "No number of workers has the memory: a driver holds the inputs and the preconditioner of each of its chains.")
	case p.Recommended > p.Workers:
		fmt.Fprintf(&s, "Worth it: all %d workers; up to %d would be, at an efficiency of 0.7 or more of one worker's.", p.Workers, p.Recommended)
	case p.Recommended == p.Workers:
		fmt.Fprintf(&s, "Worth it: all %d workers, and no more.", p.Workers)
	default:
		fmt.Fprintf(&s, "Worth it: %d workers. With more the run is no faster, or an hour of a core does less than 0.7 of what it does on one worker.", p.Recommended)
	}
	if over := p.Worker.Memory > 0 && !p.Rows[len(p.Rows)-1].Fits; over && p.FittingRank > 0 {
		fmt.Fprintf(&s, " A preconditioner of rank %d would fit (solver.preconditioner.rank).", p.FittingRank)
	}
	return s.String()
}
