package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/export"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

type drawsFlags struct {
	remote
	format     string
	out        string
	chain      int
	predictive int
}

func (a *App) drawsCommand() *cobra.Command {
	var f drawsFlags
	c := &cobra.Command{
		Use:   "draws JOB|FOLDER",
		Short: "Write the draws of a job, or of a run's folder, for other programs",
		Long: `Write the draws so far of a job, or those in the folder of a run, in a format
that other programs read. Values are exact.

  csv      one table, with the columns chain__ and draw__ before the others
  cmdstan  a folder with a CSV file for each chain, as CmdStan writes them
  parquet  one table with chain, iteration and draw
  npz      NumPy arrays, chain × draw
  zarr     ArviZ's InferenceData as a folder, or a file if --out ends in .zip
  netcdf   ArviZ's InferenceData as a netCDF-4 file

Where --format is not given the end of --out says it (.parquet, .npz, .zarr,
.zarr.zip, .nc), else it is csv. The last three hold the data too, if they are at
hand, and with --predictive values of the target that the posterior predicts for
the rows that it learnt from, computed here, to hold against those observed. See
docs/python.md and docs/r.md.`,
		Example: `  ulisse draws concrete --out draws.csv
  ulisse draws concrete --out draws.zarr
  ulisse draws ./concrete --format cmdstan --out chains
  ulisse draws ./concrete --out draws.nc --predictive 25
  ulisse draws concrete --chain 1 > chain-1.csv`,
		Args: cobra.ExactArgs(1),
	}
	run := a.about(&f.remote, func(ctx context.Context, s *subject) error { return a.draws(ctx, s, &f) })
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(); err != nil { // before anything is fetched
			return err
		}
		return run(c, args)
	}
	f.remote.flags(c)
	c.Flags().StringVarP(&f.out, "out", "o", "-", "write to this `path` (- for standard output: csv only)")
	c.Flags().StringVar(&f.format, "format", "", "write this `format`: "+strings.Join(export.Formats(), ", "))
	c.Flags().IntVar(&f.chain, "chain", 0, "only this `chain`, as CmdStan writes it (csv)")
	c.Flags().IntVar(&f.predictive, "predictive", 0, "predict the rows from this number of `draws` of each chain (npz, zarr, netcdf)")
	c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(export.Formats(), cobra.ShellCompDirectiveNoFileComp))
	c.ValidArgsFunction = a.completeAbout(&f.remote)
	return c
}

// check refuses what would fail later, and fills in the format.
func (f *drawsFlags) check() error {
	if f.format == "" {
		f.format = export.ByName(f.out)
	}
	switch {
	case f.out == "":
		return badInput(errors.New("--out: the path is empty"))
	case f.format != "csv" && f.chain != 0:
		return badInput(errors.New("--chain is for --format csv only: the other formats hold all chains"))
	case f.predictive < 0:
		return badInput(fmt.Errorf("--predictive %d: give a positive number", f.predictive))
	case f.predictive > 0 && !export.HoldsData(f.format):
		return badInput(fmt.Errorf("--predictive: a file of format %s holds draws alone", f.format))
	case f.format != "csv" && f.out == "-":
		return badInput(fmt.Errorf("--format %s: give a path with --out", f.format))
	case f.format == "csv" && f.out == "-":
		return nil
	}
	return badInput(export.Check(f.format, f.out))
}

func (a *App) draws(ctx context.Context, s *subject, f *drawsFlags) error {
	rec, err := s.record(ctx)
	if err != nil {
		return err
	}
	if rec.Run.MinDraws() == 0 {
		return badInput(errors.New("there are no draws yet: 'ulisse summary' shows what is known without them"))
	}
	if n := len(rec.Run.Chains); f.chain < 0 || f.chain > n {
		return badInput(fmt.Errorf("--chain %d: there are chains 1 to %d", f.chain, n))
	}
	if f.format == "csv" {
		return a.output(f.out, func(w io.Writer) error {
			if f.chain > 0 {
				return report.WriteCSV(w, rec, nil, f.chain-1)
			}
			return report.WriteTable(w, rec)
		})
	}
	src := &export.Source{Record: rec, Created: a.Now()}
	if src.Stats, err = s.stats(ctx, rec); err != nil {
		return err
	}
	if export.HoldsData(f.format) {
		if src.Data, err = s.data(ctx, rec); err != nil {
			return err
		}
	}
	if f.predictive > 0 {
		if src.Data == nil {
			return badInput(errors.New("--predictive: there are no data to predict from"))
		}
		if err := a.predictive(ctx, src, f.predictive); err != nil {
			return err
		}
	}
	return export.Write(f.format, f.out, src)
}

// predictive adds the group posterior_predictive.
func (a *App) predictive(ctx context.Context, src *export.Source, draws int) error {
	show := &predictProgress{app: a, began: a.Now()}
	var stats predict.Stats
	var err error
	src.Predictive, stats, err = export.Predictive(ctx, src, draws, parallel.NewBudget(0), show.at)
	show.end()
	if err != nil {
		return err
	}
	a.warnings(predictWarnings(stats, predict.Options{}))
	return nil
}

func (a *App) summaryCommand() *cobra.Command {
	var r remote
	var asJSON, asCSV, details bool
	c := &cobra.Command{
		Use:   "summary JOB|FOLDER",
		Short: "Print the summary of a job's draws so far, or of those in a run's folder",
		Long: `Print the table of Stan's stansummary of a job's draws so far, or of those in the
folder of a run: mean with its Monte Carlo standard error, standard deviation,
median absolute deviation, quantiles, effective sample sizes, the bulk one per
second of all chains' time, and R-hat; then what it took, and warnings.`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.about(&r, func(ctx context.Context, s *subject) error {
		if asJSON && asCSV {
			return badInput(errors.New("give --json or --csv, not both"))
		}
		text, sum, err := s.summary(ctx)
		switch {
		case err != nil:
			return err
		case asJSON: // all that was sent, also what this version does not know
			return a.printJSON(text)
		case asCSV:
			return sum.WriteCSV(a.Stdout)
		}
		sum.Details = details
		return sum.WriteText(a.Stdout)
	})
	r.flags(c)
	c.Flags().BoolVar(&details, "all", false, "print all quantities: logarithms, and length-scales in all units")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&asCSV, "csv", false, "print the table as CSV, values exact")
	c.ValidArgsFunction = a.completeAbout(&r)
	return c
}

// summary returns the summary, as JSON and read. A job's is made by the cluster,
// so that its draws need not travel.
func (s *subject) summary(ctx context.Context) (json.RawMessage, *report.Summary, error) {
	if s.dir != "" {
		rec, err := s.record(ctx)
		if err != nil {
			return nil, nil, err
		}
		sum := rec.Summary()
		text, err := json.Marshal(sum)
		return text, sum, err
	}
	text, err := s.session.Summary(ctx, s.job.Id)
	if err != nil {
		return nil, nil, err
	}
	sum := &report.Summary{}
	if err := json.Unmarshal([]byte(text), sum); err != nil {
		return nil, nil, fmt.Errorf("the summary of job %s cannot be read: %w", s.job.Id, err)
	}
	return json.RawMessage(text), sum, nil
}
