package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/plural"
)

func (a *App) planCommand() *cobra.Command {
	var f source
	var g groupFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "plan [SPEC]",
		Short: "Tell what a run will take: memory, work, and time from a trial of a few seconds",
		Long: `Tell what a run will take on this machine: memory, work, and time from a trial
of a few seconds.

With --workers it tells that of groups of workers, from the rates of the parts of
a gradient on this machine's cores: how long until the first draws, draws an hour,
core-hours, memory, and which number of workers is worth it. No cluster is
needed, and no table: --rows and --inputs say its size.

Of a run in stages (sampler.method: auto) the times are a guess: how many evaluations
a search takes, and how often something is learnt anew, only the run can tell.`,
		Example: `  ulisse plan spec.yaml
  ulisse plan spec.yaml --workers 36 --cores 8 --network 10Gbps --memory 32GiB
  ulisse plan spec.yaml --workers 72 --rows 1000000 --inputs 8 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := f.spec(args)
			if err != nil {
				return err
			}
			if err := spec.Samplable(); err != nil {
				return badInput(err)
			}
			budget := f.budget()
			if g.inputs != 0 && f.data != "" {
				return badInput(errors.New("--inputs is for plans without a table, --data names one: give one of them"))
			}
			if c.Flags().Changed("workers") {
				p, err := a.planGroup(c.Context(), &g, spec, budget)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(p)
				}
				return a.printGroup(p)
			}
			for _, name := range groupOnly {
				if c.Flags().Changed(name) {
					return badInput(fmt.Errorf("--%s is for plans of several workers: give --workers, too", name))
				}
			}
			_, p, err := a.load(c.Context(), spec, budget)
			if err != nil {
				return err
			}
			e, err := driver.NewEstimate(c.Context(), spec, p, budget)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(e)
			}
			return a.printEstimate(e, time.Duration(spec.Stop.MaxTime))
		},
	}
	f.flags(c)
	g.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// printEstimate prints an estimate of a run that may take maxTime; 0 is no limit.
func (a *App) printEstimate(e *driver.Estimate, maxTime time.Duration) error {
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("data", "%d rows, %s", e.N, plural.Of(e.D, "input"))
	row("method", "%s", e.Method)
	row("machine", "%d cores, %s", e.Cores, e.InstructionSet)
	row("memory", "%s: data %s, vectors %s, preconditioner %s (rank %d at most), dense matrices %s, kept elements of K %s", bytesText(e.MemoryBytes),
		bytesText(e.DataBytes), bytesText(e.VectorBytes), bytesText(e.PrecondBytes), e.PrecondRank, bytesText(e.DenseBytes), bytesText(e.CacheBytes))
	if e.RightHandSides > 0 {
		row("product", "%.3g pairs, %d right-hand sides: %s (%.3g pairs/s)", e.PairsPerProduct, e.RightHandSides, secondsText(e.SecondsProduct), e.PairsPerSecond)
		if e.Cache != nil {
			row("cache", "%s", e.Cache)
		}
		if e.Trial != nil && e.Trial.Near > 0 {
			row("sparsity", "%.3g %% of the pairs of rows are left, at the mode of a trial of %d rows", 100*e.Trial.Near, e.Trial.Rows)
		}
	}
	switch {
	case e.Course != nil:
		printCourse(row, e.Course)
		row("run", "%d evaluations and %d proposals, about %s in all: a guess, which may be wrong by a factor of %d", e.Gradients, e.Proposals,
			secondsText(e.SecondsEstimated), driver.GuessFactor)
		rowOfLimit(row, e, maxTime)
		return tw.Flush()
	case e.Gradients == 0:
		row("run", "in stages, which could not be tried: only the run can tell")
		return tw.Flush()
	case e.RightHandSides == 0:
		row("density", "%s each", secondsText(e.SecondsGradient))
	case e.Trial == nil:
		row("gradient", "%s if solves take %d iterations: a trial did not come so far", secondsText(e.SecondsGradient), e.Iterations)
	default:
		of := ""
		if e.Trial.Rows < e.N {
			of = fmt.Sprintf(" of %d rows", e.Trial.Rows)
		}
		row("gradient", "%s, from a trial%s: %d probes, %.0f iterations of the solver", secondsText(e.SecondsGradient), of, e.Trial.Probes, e.Trial.Iterations)
	}
	row("run", "%d of them, %s in all", e.Gradients, secondsText(e.SecondsEstimated))
	rowOfLimit(row, e, maxTime)
	return tw.Flush()
}

// rowOfLimit says that a run will not be given the time that it takes.
func rowOfLimit(row func(name, format string, args ...any), e *driver.Estimate, maxTime time.Duration) {
	if tooLong(e, maxTime) {
		row("", "stop.max_time, %s, would end it before", maxTime)
	}
}

// printCourse prints what a staged run is expected to consist of.
func printCourse(row func(name, format string, args ...any), c *driver.Course) {
	by := map[bool]string{true: "by a factor of K", false: "by solves"}
	row("evaluation", "%s %s, from a trial of %d rows", secondsText(c.Evaluation), by[c.ByFactor], c.Rows)
	row("proposal", "%s %s", secondsText(c.Proposal), by[c.Exact])
	stages := []string{"prepare " + secondsText(c.Prepare)}
	for _, s := range c.Stages {
		stages = append(stages, fmt.Sprintf("%s %s", s.Kind, secondsText(s.Fitting+s.Seconds)))
	}
	row("stages", "%s", strings.Join(stages, ", "))
}

// tooLong reports whether a run is to take longer than maxTime; 0 is no limit.
func tooLong(e *driver.Estimate, maxTime time.Duration) bool {
	return maxTime > 0 && e.SecondsEstimated > maxTime.Seconds()
}

// plannedRows is the number of rows from which validate asks whether the time suffices: that
// takes some seconds.
const plannedRows = 4000

// hintTime says of a large run that its time will not suffice.
func (a *App) hintTime(e *driver.Estimate, maxTime time.Duration) {
	if tooLong(e, maxTime) {
		a.note("hint: the run would take about %s, and stop.max_time, %s, ends it before: give it more, or fewer draws; see ulisse plan", secondsText(e.SecondsEstimated), maxTime)
	}
}

func bytesText(b int64) string { return humanize.IBytes(uint64(b)) }

func secondsText(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.3g s", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
