package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/cv"
	"github.com/ulisse-gp/ulisse/internal/loo"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// looFlags say what rows are left out of, and how.
type looFlags struct {
	remote
	train   string
	rows    int
	draws   int
	threads int
	quiet   bool
}

func (f *looFlags) flags(c *cobra.Command) {
	f.remote.flags(c)
	fl := c.Flags()
	fl.IntVar(&f.rows, "rows", 0, fmt.Sprintf("leave out a random sample of this `number` of rows in turn (default: all, or %d where they are very many)", predict.SampleRows))
	fl.IntVar(&f.draws, "draws", 0, fmt.Sprintf("average over this `number` of draws, evenly spaced (default: up to 1000, of more than 1000 rows fewer, down to %d)", predict.MaxAutoDraws))
	fl.StringVar(&f.train, "train", "", "read the training table from this `path` instead of the specification's")
	fl.IntVar(&f.threads, "threads", 0, "compute on this many cores (default: all)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
}

func (f *looFlags) check() error {
	switch {
	case f.rows < 0 || f.rows == 1:
		return badInput(fmt.Errorf("--rows %d: give a number of rows, 2 or more", f.rows))
	case f.draws < 0:
		return badInput(fmt.Errorf("--draws %d: give a positive number", f.draws))
	case f.threads < 0:
		return badInput(fmt.Errorf("--threads %d: give a positive number", f.threads))
	}
	return nil
}

const looText = `Each row's target is predicted from all other rows, exactly: for each draw of the
covariance parameters from the inverse of the covariance matrix, without a fit for
each row. The draws, which have learnt from the row, are weighted by Pareto-smoothed
importance sampling. It is computed here, also of a job; the rows of a very large table
are sampled.`

func (a *App) looCommand() *cobra.Command {
	var f looFlags
	var out, plot string
	var asJSON bool
	c := &cobra.Command{
		Use:   "loo JOB|FOLDER",
		Short: "Estimate how well a model predicts rows that it has not seen, by leave-one-out",
		Long: `Estimate how well the model of a job, or of a run's folder, predicts rows that it has
not seen, by leave-one-out cross-validation: the expected log predictive density
elpd_loo with its standard error, the effective number of parameters p_loo, and the
Pareto k of the importance weights, as ArviZ and R's loo print them.

` + looText + `

--out writes what each row contributes, as CSV: its number in the table, target, mean
and standard deviation predicted, elpd_loo, p_loo, pareto_k and pit, the probability
predicted of less than its target.`,
		Example: `  ulisse loo concrete
  ulisse loo ./concrete --out loo.csv --plot loo-pit.svg
  ulisse loo ./house --rows 1000 --draws 50 --json`,
		Args: cobra.ExactArgs(1),
	}
	run := a.about(&f.remote, func(ctx context.Context, s *subject) error {
		res, stats, err := a.leaveOut(ctx, s, &f)
		if err != nil {
			return err
		}
		if out != "" {
			if err := a.output(out, func(w io.Writer) error { return writePointwise(w, res) }); err != nil {
				return err
			}
		}
		if plot != "" {
			if err := atomicfile.Write(plot, 0o644, func(w io.Writer) error { return plots.Calibration(w, res.PIT()) }); err != nil {
				return err
			}
		}
		v := newLooView(res, stats)
		if asJSON {
			return a.printJSON(v)
		}
		a.warnings(v.Warnings)
		if out == "-" {
			return nil
		}
		return v.write(a.Stdout)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if asJSON && out == "-" {
			return badInput(errors.New("--json: the table would go to standard output too: give it a file with --out"))
		}
		if err := f.check(); err != nil {
			return err
		}
		return run(c, args)
	}
	f.flags(c)
	c.Flags().StringVarP(&out, "out", "o", "", "write what each row contributes into this `file` (- for standard output)")
	c.Flags().StringVar(&plot, "plot", "", "draw the calibration (LOO-PIT) into this SVG `file`")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.ValidArgsFunction = a.completeAbout(&f.remote)
	return c
}

// leaveOut leaves out the rows of a run in turn.
func (a *App) leaveOut(ctx context.Context, s *subject, f *looFlags) (*loo.Result, predict.Stats, error) {
	p, d, chains, err := s.predictor(ctx, f.train, f.threads, func(n int) int { return cmp.Or(f.draws, predict.LooDraws(n)) })
	if err != nil {
		return nil, predict.Stats{}, err
	}
	show := &predictProgress{app: a, quiet: f.quiet, began: a.Now()}
	defer show.end()
	return p.Loo(ctx, d, chains, predict.LeftOut(d.N(), f.rows), predict.Options{Progress: show.at})
}

// name returns what people call a subject.
func (s *subject) name() string {
	if s.dir != "" {
		return s.dir
	}
	return s.job.Name + " (" + s.job.Id + ")"
}

// warnings prints what must be known before believing numbers.
func (a *App) warnings(list []string) {
	for _, w := range list {
		fmt.Fprintln(a.Stderr, "warning:", w)
	}
}

// looView is what --json prints: an estimate as R's loo names its parts.
type looView struct {
	ELPD     report.Number `json:"elpd_loo"`
	SE       report.Number `json:"se_elpd_loo"`
	P        report.Number `json:"p_loo"`
	PSE      report.Number `json:"se_p_loo"`
	IC       report.Number `json:"looic"`
	MCSE     report.Number `json:"mcse_elpd_loo"`              // of the finite number of draws
	Sampling report.Number `json:"subsampling_se_elpd_loo"`    // of asking a sample of the rows, 0 if all were asked
	PSample  report.Number `json:"subsampling_se_p_loo"`       //
	Rows     int           `json:"rows"`                       // left out
	Of       int           `json:"rows_in_all"`                // that the model has learnt from
	Draws    int           `json:"draws"`                      //
	GoodK    report.Number `json:"good_k"`                     // the largest Pareto k that can be trusted
	Good     int           `json:"pareto_k_good"`              // rows with at most that
	Bad      int           `json:"pareto_k_bad"`               // up to 1
	VeryBad  int           `json:"pareto_k_very_bad"`          // above
	Unknown  int           `json:"pareto_k_unknown,omitempty"` // with too few draws to tell
	Warnings []string      `json:"warnings"`
}

func newLooView(r *loo.Result, s predict.Stats) looView {
	e, p := r.ELPD(), r.P()
	v := looView{ELPD: report.Number(e.Value), SE: report.Number(e.SE), P: report.Number(p.Value), PSE: report.Number(p.SE), IC: report.Number(-2 * e.Value),
		MCSE: report.Number(r.MCSE * float64(r.Of) / float64(len(r.Rows))), Sampling: report.Number(e.Sampling), PSample: report.Number(p.Sampling),
		Rows: len(r.Rows), Of: r.Of, Draws: r.Draws, GoodK: report.Number(loo.GoodK(r.Draws)), Warnings: predictWarnings(s, predict.Options{})}
	for _, row := range r.Rows {
		switch k := row.ParetoK; {
		case math.IsNaN(k):
			v.Unknown++
		case k <= float64(v.GoodK):
			v.Good++
		case k <= 1:
			v.Bad++
		default:
			v.VeryBad++
		}
	}
	if r.Draws == 1 {
		v.Warnings = append(v.Warnings, "one point has no importance weights: each row is predicted at parameters that have learnt from it, which flatters")
	} else if v.Unknown > 0 {
		v.Warnings = append(v.Warnings, fmt.Sprintf("%d draws are too few to tell whether the importance weights can be trusted: take 25 at least", r.Draws))
	}
	if n := v.Bad + v.VeryBad; n > 0 {
		v.Warnings = append(v.Warnings, fmt.Sprintf("the importance weights of %d rows cannot be trusted (Pareto k above %.2f): average over more draws (--draws), or cross-validate by folds (ulisse cv)", n, float64(v.GoodK)))
	}
	return v
}

// write prints an estimate as R's loo prints it.
func (v *looView) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "Computed from %s and %d rows", plural.Of(v.Draws, "draw"), v.Rows)
	if v.Rows < v.Of {
		fmt.Fprintf(w, ", a sample of %d", v.Of)
	}
	fmt.Fprint(w, ".\n\n")
	line := func(name, sampling string, x ...report.Number) {
		fmt.Fprintf(tw, "%s\t", name)
		for _, value := range x {
			fmt.Fprintf(tw, "%.1f\t", float64(value))
		}
		if v.Rows < v.Of {
			fmt.Fprintf(tw, "%s\t", sampling)
		}
		fmt.Fprintln(tw)
	}
	fmt.Fprint(tw, "\tEstimate\tSE\t")
	if v.Rows < v.Of {
		fmt.Fprint(tw, "subsampling SE\t")
	}
	fmt.Fprintln(tw)
	line("elpd_loo", fmt.Sprintf("%.1f", float64(v.Sampling)), v.ELPD, v.SE)
	line("p_loo", fmt.Sprintf("%.1f", float64(v.PSample)), v.P, v.PSE)
	line("looic", fmt.Sprintf("%.1f", 2*float64(v.Sampling)), v.IC, 2*v.SE)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nMonte Carlo SE of elpd_loo: %.2g\n", float64(v.MCSE))
	if v.Unknown == v.Rows { // and the warning says why
		return nil
	}
	_, err := fmt.Fprintf(w, "Pareto k: %d good (up to %.2f), %d bad (up to 1), %d very bad (above 1)\n", v.Good, float64(v.GoodK), v.Bad, v.VeryBad)
	return err
}

// writePointwise writes what each row contributes, exactly.
func writePointwise(w io.Writer, r *loo.Result) error {
	cw := csv.NewWriter(w)
	cw.Write([]string{"row", "target", "mean", "sd", "elpd_loo", "p_loo", "pareto_k", "pit"})
	for _, row := range r.Rows {
		rec := []string{strconv.Itoa(row.Number)}
		for _, x := range []float64{row.Target, row.Mean, row.SD, row.ELPD, row.LPD - row.ELPD, row.ParetoK, row.PIT} {
			rec = append(rec, strconv.FormatFloat(x, 'g', -1, 64))
		}
		cw.Write(rec)
	}
	cw.Flush()
	return cw.Error()
}

func (a *App) compareCommand() *cobra.Command {
	var f looFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare JOB|FOLDER JOB|FOLDER…",
		Short: "Compare models by how well they predict rows that they have not seen",
		Long: `Compare the models of jobs and of runs' folders by their expected log predictive
density, estimated by leave-one-out ('ulisse loo'), or those of the folders of 'ulisse cv'
by their cross-validation, the best first. elpd_diff is how much
less than the best one a model has, se_diff the standard error of that difference, from
the differences row by row. A difference of less than 4, or of less than two of its
standard errors, is none to choose by. weight is the share that a model has in the average
of all that predicts best (stacking).

` + looText + `
Models are compared that have learnt from the same rows of the same target, in the same
units; of cross-validations those with the same folds.`,
		Example: `  ulisse compare concrete-rbf concrete-matern
  ulisse compare ./rbf ./matern ./ard --json
  ulisse compare ./rbf-cv ./matern-cv`,
		Args: cobra.MinimumNArgs(2),
	}
	run := a.aboutAll(&f.remote, func(ctx context.Context, all []*subject) error { return a.compare(ctx, all, &f, asJSON) })
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		folds := slices.IndexFunc(args, cv.IsFolder)
		if folds < 0 {
			return run(c, args)
		}
		if other := slices.IndexFunc(args, func(arg string) bool { return !cv.IsFolder(arg) }); other >= 0 {
			return badInput(fmt.Errorf("%s is a cross-validation by folds and %s is not: leaving out folds and leaving out single rows are not comparable; cross-validate both", args[folds], args[other]))
		}
		if f.rows > 0 || f.draws > 0 || f.train != "" {
			return badInput(errors.New("--rows, --draws and --train are for leave-one-out: cross-validations are compared as they are"))
		}
		return a.compareCV(args, asJSON)
	}
	f.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.ValidArgsFunction = a.completeAbout(&f.remote)
	return c
}

// rankView is the place of a model in a comparison.
type rankView struct {
	Model string        `json:"model"`
	Rank  int           `json:"rank"`
	Diff  report.Number `json:"elpd_diff"`
	// SEDiff is the standard error of Diff; SampleDiff that which comes of asking a sample of the rows.
	SEDiff     report.Number `json:"se_diff"`
	SampleDiff report.Number `json:"subsampling_se_diff"`
	Weight     report.Number `json:"weight"`
}

// newRankView returns the place of the named model, which is place'th from 0.
func newRankView(name string, place int, r loo.Rank) rankView {
	return rankView{Model: name, Rank: place + 1, Diff: report.Number(r.Diff.Value), SEDiff: report.Number(r.Diff.SE),
		SampleDiff: report.Number(r.Diff.Sampling), Weight: report.Number(r.Weight)}
}

// compareView is a model in a comparison.
type compareView struct {
	rankView
	looView
}

// one prints a number with one digit after the point.
func one(x report.Number) string { return fmt.Sprintf("%.1f", float64(x)) }

func (a *App) compare(ctx context.Context, all []*subject, f *looFlags, asJSON bool) error {
	results, looks := make([]*loo.Result, len(all)), make([]looView, len(all))
	for i, s := range all {
		res, stats, err := a.leaveOut(ctx, s, f)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		results[i], looks[i] = res, newLooView(res, stats)
	}
	ranks, err := loo.Compare(results)
	if err != nil {
		return badInput(err)
	}
	var views []compareView
	var order []rankView
	for i, r := range ranks {
		v := compareView{newRankView(all[r.Model].name(), i, r), looks[r.Model]}
		views, order = append(views, v), append(order, v.rankView)
	}
	if asJSON {
		return a.printJSON(views)
	}
	var rows [][]string
	for _, v := range views {
		row := []string{v.Model, one(v.Diff), one(v.SEDiff), one(v.ELPD), one(v.SE), one(v.P), fmt.Sprintf("%.2f", float64(v.Weight))}
		if v.Rows < v.Of {
			row = append(row, one(v.SampleDiff))
		}
		rows = append(rows, row)
		for _, w := range v.Warnings {
			a.warnings([]string{v.Model + ": " + w})
		}
	}
	header := "MODEL ELPD_DIFF SE_DIFF ELPD_LOO SE P_LOO WEIGHT"
	if views[0].Rows < views[0].Of {
		header += " SUBSAMPLING_SE_DIFF"
	}
	if err := a.table(header, rows); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, inWords(order))
	return err
}

// Below these a difference is none to choose by (Sivula, Magnusson, Matamoros and Vehtari,
// arXiv:2008.10296).
const (
	smallDifference  = 4
	clearlyDifferent = 2 // standard errors
)

// inWords says whether the best model is.
func inWords(v []rankView) string {
	best, next := v[0], v[1]
	d, se := -float64(next.Diff), math.Hypot(float64(next.SEDiff), float64(next.SampleDiff))
	switch {
	case d < smallDifference:
		return fmt.Sprintf("%s and %s predict alike: they differ by less than %d.", best.Model, next.Model, smallDifference)
	case d < clearlyDifferent*se:
		return fmt.Sprintf("%s may predict better than %s: the difference is %.1f standard errors only.", best.Model, next.Model, d/se)
	}
	return fmt.Sprintf("%s predicts better than %s, by %.1f standard errors.", best.Model, next.Model, d/se)
}
