package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

func (a *App) planCommand() *cobra.Command {
	var f source
	var asJSON bool
	c := &cobra.Command{
		Use:   "plan [SPEC]",
		Short: "Tell what a run will take: memory, work, and time from a trial of a few seconds",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			parts, err := f.specs(args)
			if err != nil {
				return err
			}
			again, err := a.rereading(parts[0].Spec.Data.Path)
			if err != nil {
				return err
			}
			var estimates []*driver.Estimate
			for _, p := range parts {
				e, err := again().estimate(c.Context(), p.Spec, f.budget())
				if err != nil {
					return err
				}
				estimates = append(estimates, e)
			}
			if asJSON {
				if len(estimates) == 1 {
					return a.printJSON(estimates[0])
				}
				return a.printJSON(estimates)
			}
			for i, e := range estimates {
				if len(parts) > 1 {
					fmt.Fprintf(a.Stdout, "target %s\n", parts[i].Spec.Data.Target)
				}
				if err := a.printEstimate(e, time.Duration(parts[i].Spec.Stop.MaxTime)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *App) estimate(ctx context.Context, spec *job.Spec, budget *parallel.Budget) (*driver.Estimate, error) {
	_, p, err := a.load(ctx, spec, budget)
	if err != nil {
		return nil, err
	}
	return driver.NewEstimate(ctx, spec, p, budget)
}

// printEstimate prints an estimate of a run that may take maxTime; 0 is no limit.
func (a *App) printEstimate(e *driver.Estimate, maxTime time.Duration) error {
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("data", "%d rows, %d inputs", e.N, e.D)
	row("machine", "%d cores, %s", e.Cores, e.InstructionSet)
	row("memory", "%s: data %s, vectors %s, preconditioner %s (rank %d at most), dense matrices %s, kept elements of K %s", bytesText(e.MemoryBytes),
		bytesText(e.DataBytes), bytesText(e.VectorBytes), bytesText(e.PrecondBytes), e.PrecondRank, bytesText(e.DenseBytes), bytesText(e.CacheBytes))
	if e.RightHandSides > 0 {
		row("product", "%.3g pairs, %d right-hand sides: %s (%.3g pairs/s)", e.PairsPerProduct, e.RightHandSides, secondsText(e.SecondsProduct), e.PairsPerSecond)
		if e.Cache != nil {
			row("cache", "%s", e.Cache)
		}
	}
	switch {
	case e.Gradients == 0:
		row("run", "in stages, each of which depends on the one before: what it takes only the run can tell")
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
	if tooLong(e, maxTime) {
		row("", "stop.max_time, %s, would end it before", maxTime)
	}
	return tw.Flush()
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
