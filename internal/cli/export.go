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
	logLik     int
	density    bool
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
the rows that it learnt from, computed here, to hold against those observed; with
--log-lik the log density of each row given all others, from which ArviZ's loo
computes what 'ulisse loo' prints. --lp adds the log density of each draw, lp__ of
Stan, to any format, computed here from a stored covariance matrix. See docs/python.md
and docs/r.md.`,
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
		if a.OutTTY && !c.Flags().Changed("out") {
			return badInput(errors.New("all draws on a terminal are thousands of lines: give a file with --out, or --out - to see them here; 'ulisse summary' sums them up"))
		}
		return run(c, args)
	}
	f.remote.flags(c)
	c.Flags().StringVarP(&f.out, "out", "o", "-", "write to this `path` (- for standard output: csv only)")
	c.Flags().StringVar(&f.format, "format", "", "write this `format`: "+strings.Join(export.Formats(), ", "))
	c.Flags().IntVar(&f.chain, "chain", 0, "only this `chain`, as CmdStan writes it (csv)")
	c.Flags().IntVar(&f.predictive, "predictive", 0, "predict the rows from this number of `draws` of each chain (npz, zarr, netcdf)")
	c.Flags().IntVar(&f.logLik, "log-lik", 0, "the log density of each row given all others, from this number of `draws` of each chain (npz, zarr, netcdf)")
	c.Flags().BoolVar(&f.density, "lp", false, "add the log density of each draw, lp__")
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
	case f.logLik < 0:
		return badInput(fmt.Errorf("--log-lik %d: give a positive number", f.logLik))
	case f.predictive > 0 && !export.HoldsData(f.format):
		return badInput(fmt.Errorf("--predictive: a file of format %s holds draws alone", f.format))
	case f.logLik > 0 && !export.HoldsData(f.format):
		return badInput(fmt.Errorf("--log-lik: a file of format %s holds draws alone", f.format))
	case f.format != "csv" && f.out == "-":
		return badInput(fmt.Errorf("--format %s: give a path with --out", f.format))
	case f.format == "csv" && f.out == "-":
		return nil
	}
	return badInput(export.Check(f.format, f.out))
}

func (a *App) draws(ctx context.Context, s *subject, f *drawsFlags) error {
	if err := noFit(s.dir, "draws"); s.dir != "" && err != nil {
		return err
	}
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
	src := &export.Source{Record: rec, Created: a.Now()}
	if f.format != "csv" {
		if src.Stats, err = s.stats(ctx, rec); err != nil {
			return err
		}
	}
	if err := a.derived(ctx, s, src, f); err != nil {
		return err
	}
	if f.format == "csv" {
		return a.output(f.out, func(w io.Writer) error { return export.WriteCSV(w, src, f.chain) })
	}
	return export.Write(f.format, f.out, src)
}

// derived adds the data, if the format holds them, and what is computed from them.
func (a *App) derived(ctx context.Context, s *subject, src *export.Source, f *drawsFlags) (err error) {
	if export.HoldsData(f.format) || f.density {
		if src.Data, err = s.data(ctx, src.Record); err != nil {
			return err
		}
	}
	show := &predictProgress{app: a, began: a.Now()}
	defer show.end()
	budget := parallel.NewBudget(0)
	for _, d := range []struct {
		flag    string
		wanted  bool
		compute func() (predict.Stats, error)
	}{
		{"predictive", f.predictive > 0, func() (stats predict.Stats, err error) {
			src.Predictive, stats, err = export.Predictive(ctx, src, f.predictive, budget, show.at)
			return stats, err
		}},
		{"log-lik", f.logLik > 0, func() (stats predict.Stats, err error) {
			src.LogLikelihood, stats, err = export.LogLikelihood(ctx, src, f.logLik, budget, show.at)
			return stats, err
		}},
		{"lp", f.density, func() (stats predict.Stats, err error) {
			src.LogDensity, err = export.LogDensities(ctx, src, budget, show.at)
			return stats, err
		}},
	} {
		if !d.wanted {
			continue
		}
		if src.Data == nil {
			return badInput(fmt.Errorf("--%s: there are no data to compute it from", d.flag))
		}
		stats, err := d.compute()
		if err != nil {
			return fmt.Errorf("--%s: %w", d.flag, err)
		}
		a.warnings(predictWarnings(stats, predict.Options{}))
	}
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
