package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/cv"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

type cvFlags struct {
	source
	remote
	folds    int
	group    string
	time     string
	forecast bool
	draws    int
	tol      float64
	out      string
	resume   string
	submit   bool
	json     bool
	quiet    bool
}

// cvPlanned are the flags that say what a cross-validation is, and so not how it goes on.
var cvPlanned = []string{"folds", "group", "time", "forecast", "draws", "tolerance", "out", "submit", "demo", "data", "seed", "holdout"}

const cvText = `Cut the rows that a specification learns from into folds, sample the posterior
without each of them, predict the rows left out, averaged over its draws, and print how
well that went: the expected log predictive density elpd_kfold with its standard error,
RMSE, CRPS and coverage. 'ulisse compare' compares such folders.

How rows are cut should be as the model is to be used:

  at random          for rows like those of the table (the default)
  --group COLUMN     for groups, such as stations, that the model has not seen: rows of a
                     group stay together, and the standard error is that between groups
  --time COLUMN      for gaps in time: each fold is one stretch of it, predicted from
                     all others, before and after; the standard error is that between folds
  --time COLUMN --forecast
                     for what comes: of K+1 stretches of time each but the first is
                     predicted from those before it

COLUMN may hold text; times are numbers or dates like 2006-01-02, and rows of one time
stay together. It is an input only if the specification says so. The folds are a
function of the rows, this column and the seed. Rows that the specification holds out
stay held out.

Each fold is an ordinary run in the folder fold-K; --submit makes jobs of a cluster of
them, all at once. rows.csv tells of each row what was predicted and in which fold,
calibration.svg shows the PIT, summary.json is what --json prints. After an
interruption --resume continues; a fold that 'ulisse extend' has continued is then
predicted anew. Nobody is told by notify: of the specification.

Exit code: 0 all folds converged; 3 some have not: their numbers are marked; 2 bad input;
1 failure; 130 interrupted.`

func (a *App) cvCommand() *cobra.Command {
	var f cvFlags
	c := &cobra.Command{
		Use:   "cv [SPEC]",
		Short: "Cross-validate a specification: refit without each fold of the rows, and predict it",
		Long:  cvText,
		Example: `  ulisse cv concrete.yaml --folds 5 --out concrete-cv
  ulisse cv rain.yaml --group station --out rain-by-station
  ulisse cv load.yaml --time date --forecast --out load-forecasts
  ulisse cv --resume concrete-cv
  ulisse compare ./rbf-cv ./matern-cv`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args); err != nil {
				return err
			}
			x, err := a.openCV(&f, args)
			if err != nil {
				return err
			}
			defer x.folder.close()
			if err := f.place(c, x.Jobs != ""); err != nil {
				return err
			}
			if x.Jobs == "" {
				return x.run(c.Context(), x.here)
			}
			return a.on(&f.remote, func(ctx context.Context, s *session, _ []string) error { return x.onCluster(ctx, s) })(c, args)
		},
	}
	f.source.flags(c)
	f.remote.flags(c)
	fl := c.Flags()
	fl.IntVarP(&f.folds, "folds", "k", 0, fmt.Sprintf("cut into this `number` of folds (default: %d, of fewer groups or times as many as these)", cv.DefaultFolds))
	fl.StringVar(&f.group, "group", "", "leave out rows together that have the same text in this `column`")
	fl.StringVar(&f.time, "time", "", "leave out stretches of the times in this `column`")
	fl.BoolVar(&f.forecast, "forecast", false, "with --time: predict each stretch from what is before it alone")
	fl.IntVar(&f.draws, "draws", 0, fmt.Sprintf("average over this `number` of draws (default: as many as are independent, %d at most)", predict.MaxAutoDraws))
	fl.Float64Var(&f.tol, "tolerance", predict.DefaultTolerance, "relative error of a standard deviation, at most")
	fl.StringVarP(&f.out, "out", "o", "", "write into this `folder` (default: ./NAME-cv-DATE)")
	fl.StringVar(&f.resume, "resume", "", "go on with the cross-validation in this `folder`")
	fl.BoolVar(&f.submit, "submit", false, "have the folds sampled and predicted on a cluster, as jobs")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	return c
}

// check refuses flags that make no sense.
func (f *cvFlags) check(c *cobra.Command, args []string) error {
	if f.resume != "" {
		if given := slices.IndexFunc(cvPlanned, func(name string) bool { return c.Flags().Changed(name) }); given >= 0 || len(args) > 0 {
			what := "a specification"
			if given >= 0 {
				what = "--" + cvPlanned[given]
			}
			return badInput(fmt.Errorf("--resume goes on with what is in its folder: %s cannot be given with it", what))
		}
		return nil
	}
	o := predict.Options{Tolerance: cmp.Or(f.tol, -1)} // 0 was said, not left out
	if err := o.Check(); err != nil {
		return badInput(err)
	}
	switch {
	case c.Flags().Changed("folds") && f.folds < 2:
		return badInput(fmt.Errorf("--folds %d: give a number of folds, 2 or more", f.folds))
	case f.group != "" && f.time != "":
		return badInput(errors.New("--group and --time: give one of them"))
	case f.forecast && f.time == "":
		return badInput(errors.New("--forecast: say by --time which column the times are in"))
	case f.draws < 0:
		return badInput(fmt.Errorf("--draws %d: give a positive number", f.draws))
	}
	return f.place(c, f.submit)
}

// place refuses flags that are for another place than where the folds are run.
func (f *cvFlags) place(c *cobra.Command, onCluster bool) error {
	switch {
	case onCluster && f.threads != 0:
		return badInput(errors.New("--threads: the folds are jobs of a cluster, whose workers compute on all of their cores"))
	case !onCluster && (c.Flags().Changed("coordinators") || c.Flags().Changed("context")):
		return badInput(errors.New("--coordinators and --context: the folds are run on this machine; on a cluster they are with --submit"))
	}
	return nil
}

// scheme returns how rows are cut, and by which column.
func (f *cvFlags) scheme() (cv.Scheme, string) {
	switch {
	case f.group != "":
		return cv.Groups, f.group
	case f.forecast:
		return cv.Forecasts, f.time
	case f.time != "":
		return cv.Blocks, f.time
	}
	return cv.Random, ""
}

// crossValidation is one at work in its folder.
type crossValidation struct {
	app *App
	*cvFlags
	*cv.Validation
	folder *folder
}

// cvLock is the file that is locked by who is at work on a cross-validation.
const cvLock = "lock"

// openCV begins a cross-validation in a new folder, or takes up one.
func (a *App) openCV(f *cvFlags, args []string) (*crossValidation, error) {
	dir := f.resume
	var v *cv.Validation
	var err error
	if f.resume == "" {
		if v, err = a.planCV(f, args); err != nil {
			return nil, err
		}
		dir = cmp.Or(f.out, fmt.Sprintf("%s-cv-%s", v.Spec.Name, a.Now().Format("20060102-150405")))
		if err := newCVFolder(dir); err != nil {
			return nil, err
		}
	} else if _, err := cv.Read(dir); err != nil {
		return nil, badInput(err)
	}
	x := &crossValidation{app: a, cvFlags: f, folder: &folder{dir: dir}}
	if err := x.folder.hold(cvLock); err != nil {
		return nil, err
	}
	if v != nil {
		err = v.Write(dir)
	}
	if err == nil {
		x.Validation, err = cv.Read(dir) // a new one, too, as those see it who go on with it
	}
	if err != nil {
		x.folder.close()
		return nil, badInput(err)
	}
	return x, nil
}

// planCV reads what is to be cross-validated, and checks all of it.
func (a *App) planCV(f *cvFlags, args []string) (*cv.Validation, error) {
	spec, err := f.spec(args)
	if err != nil {
		return nil, err
	}
	scheme, column := f.scheme()
	if column != "" && spec.Data.Synthetic != nil {
		return nil, badInput(fmt.Errorf("there is no column %q: the specification generates its data", column))
	}
	var table io.Reader
	if spec.Data.Path == dataset.Stdin {
		table = a.Stdin
	}
	t, err := spec.Table(table, column, parallel.NewBudget(f.threads))
	if err != nil {
		return nil, badInput(err)
	}
	v, err := cv.New(spec, t, scheme, column, f.folds)
	if err != nil {
		return nil, badInput(err)
	}
	v.Draws, v.Tolerance = f.draws, f.tol
	if f.submit {
		v.Jobs = "cv-" + rand.Text()
	}
	if f.quiet {
		return v, nil
	}
	if scheme == cv.Groups && slices.Contains(t.Inputs, column) {
		a.note("%s, by which rows are grouped, is an input of the specification too, and no fold has seen its groups' values: exclude it there if it only names groups", column)
	}
	if d, err := spec.Dataset(t); err == nil {
		a.hints(spec, d)
	}
	return v, nil
}

// newCVFolder creates the folder of a cross-validation, which must be new, empty, or left by one that
// was cut short before it had begun.
func newCVFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && (cv.IsFolder(dir) || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != cvLock && !cv.Unbegun(e.Name()) })) {
		return badInput(fmt.Errorf("the folder %s is not empty: choose another with --out, or go on with the cross-validation in it with --resume %s", dir, dir))
	}
	return os.MkdirAll(dir, 0o755)
}

// foldSource brings the run of a fold to its end and returns it, with what predicts from it; no record if
// there is nothing new.
type foldSource func(ctx context.Context, k int) (*report.Record, oracle, error)

// run has the folds predicted that are not, and tells what came of all.
func (x *crossValidation) run(ctx context.Context, source foldSource) error {
	all := make([]*cv.Fold, x.Cut.K)
	var missing []int // folds whose time was over before there was anything to predict from
	for k := 1; k <= x.Cut.K; k++ {
		f, err := x.predicted(ctx, k, source)
		if code(err) == ExitUnconverged {
			missing = append(missing, k)
			continue
		}
		switch {
		case err == nil:
		case err.Error() == "": // the user knows
			return err
		case ctx.Err() != nil:
			return x.interrupted()
		default:
			return &exit{code(err), fmt.Errorf("fold %d: %w", k, err)}
		}
		all[k-1] = f
		if !x.quiet {
			fmt.Fprintf(x.app.Stderr, "fold %d of %d: %s\n", k, x.Cut.K, newFoldView(x.Validation, f).words())
		}
	}
	if missing != nil {
		return &exit{ExitUnconverged, fmt.Errorf("max_time ended the run of %s before it found the mode: 'ulisse extend %s --max-time T' gives it more time; then %s",
			listed(missing), x.subject(missing[0]), x.again())}
	}
	return x.conclude(all)
}

// subject returns what the run of a fold is to other commands.
func (x *crossValidation) subject(k int) string {
	if x.Jobs != "" {
		return x.FoldSpec(k).Name
	}
	return cv.FoldDir(x.folder.dir, k)
}

// again returns the command that goes on.
func (x *crossValidation) again() string { return "ulisse cv --resume " + x.folder.dir }

// predicted returns what comes of a fold.
func (x *crossValidation) predicted(ctx context.Context, k int, source foldSource) (*cv.Fold, error) {
	before, err := x.ReadFold(x.folder.dir, k)
	if err != nil {
		return nil, err
	}
	rec, from, err := source(ctx, k)
	if err != nil || rec == nil || before != nil && before.DrawsOf == report.DrawsSHA256(rec.Run) {
		return before, err
	}
	t, _ := x.LeftOut(k)
	rows, err := from.about().Points(t)
	if err != nil {
		return nil, fmt.Errorf("fold %d: %w", k, err)
	}
	r := predict.Request{X: rows.X, Targets: rows.Y, Noise: rows.Noise, Offset: rows.Offset}
	show := &predictProgress{app: x.app, quiet: x.quiet, began: x.app.Now()}
	o := predict.Options{Tolerance: x.Tolerance, Variance: predict.Exact, Progress: show.at}
	predicted, stats, err := from.predict(ctx, r, o)
	show.end()
	if err != nil {
		return nil, err
	}
	warnings := predictWarnings(stats, o)
	if _, provisional, err := report.Points(rec.Run); err == nil && provisional != "" {
		warnings = append(warnings, "there are no draws: predictions are from "+provisional)
	}
	f := x.NewFold(k, rec, predicted, stats, warnings)
	return f, f.Write(x.folder.dir)
}

// interrupted says how to go on.
func (x *crossValidation) interrupted() error {
	if x.Jobs != "" {
		fmt.Fprintln(x.app.Stderr, "the jobs go on without this program")
	}
	fmt.Fprintf(x.app.Stderr, "interrupted; go on with: %s\n", x.again())
	return &exit{code: ExitInterrupted}
}

// here runs a fold on this machine.
func (x *crossValidation) here(ctx context.Context, k int) (*report.Record, oracle, error) {
	d, err := x.Dataset(k)
	if err != nil {
		return nil, nil, badInput(err)
	}
	f := &runFlags{source: source{threads: x.threads}, quiet: x.quiet, again: x.again()}
	dir, budget := cv.FoldDir(x.folder.dir, k), f.budget()
	rec := ended(dir)
	if rec == nil {
		if !x.quiet {
			fmt.Fprintf(x.app.Stderr, "fold %d of %d: %d rows are left out, %d learnt from\n", k, x.Cut.K, len(x.Cut.LeftOut(k)), d.N())
		}
		if rec, err = x.sample(ctx, k, f, dir, budget); err != nil {
			return nil, nil, err
		}
	}
	if rec.Data.SHA256 != d.SHA256 {
		return nil, nil, badInput(fmt.Errorf("the run in %s is not of the rows of this fold", dir))
	}
	problem, err := rec.Spec.Problem(d)
	if err != nil {
		return nil, nil, err
	}
	chains, _, err := report.Points(rec.Run)
	if err != nil {
		return nil, nil, err
	}
	p, err := predict.New(predict.FromSpec(rec.Spec, problem, predict.Thin(chains, x.Draws), budget))
	return rec, &folderOracle{d, p}, err
}

// ended returns the record of a run that has come to the end that its specification asks for, else nil.
func ended(dir string) *report.Record {
	spec, err := os.ReadFile(filepath.Join(dir, "spec.yaml"))
	if err != nil {
		return nil // it has not begun
	}
	_, whole := os.Stat(filepath.Join(dir, report.SumsFile)) // which is written last
	rec, err := report.ReadFolder(dir)
	if whole != nil || err != nil || rec.Run.Stopped == nil || rec.SpecText != string(spec) {
		return nil // it goes on, or its results are written anew
	}
	return rec
}

// sample runs a fold, or goes on with its run.
func (x *crossValidation) sample(ctx context.Context, k int, f *runFlags, dir string, budget *parallel.Budget) (*report.Record, error) {
	var j *runJob
	var err error
	if _, begun := os.Stat(filepath.Join(dir, hashFile)); begun == nil {
		f.resume = dir
		var specs []job.Part
		if specs, err = f.begun(nil); err == nil {
			j, err = x.app.jobOf(ctx, f, specs[0].Spec, budget)
		}
	} else {
		var table bytes.Buffer
		if err := x.Learnt(k).WriteCSV(&table); err != nil {
			return nil, err
		}
		f.out = dir
		j, err = (&App{Stdin: &table}).jobOf(ctx, f, x.FoldSpec(k), budget)
	}
	if err != nil {
		return nil, err
	}
	fold, err := j.folder(f)
	if err != nil {
		return nil, err
	}
	defer fold.close()
	rec, err := x.app.complete(ctx, f, j, fold)
	if err != nil {
		return nil, err
	}
	return rec, writeResults(rec, dir, rec.Summary())
}

// onCluster has the folds sampled and predicted on a cluster: all of its jobs are submitted, then
// taken as they come.
func (x *crossValidation) onCluster(ctx context.Context, s *session) error {
	jobs := map[int]*pb.Job{}
	for k := 1; k <= x.Cut.K; k++ {
		before, err := x.ReadFold(x.folder.dir, k)
		if err != nil {
			return err
		}
		if before != nil && before.Converged {
			continue
		}
		if jobs[k], err = x.enqueue(ctx, s, k); err != nil {
			return err
		}
	}
	return x.run(ctx, func(ctx context.Context, k int) (*report.Record, oracle, error) {
		if jobs[k] == nil {
			return nil, nil, nil
		}
		return x.there(ctx, s, k, jobs[k])
	})
}

// enqueue submits the job of a fold, or finds it.
func (x *crossValidation) enqueue(ctx context.Context, s *session, k int) (*pb.Job, error) {
	var table bytes.Buffer
	if err := x.Learnt(k).WriteCSV(&table); err != nil {
		return nil, err
	}
	a := *x.app
	a.Stdin = &table
	jobs, err := a.enqueue(ctx, s, &submitFlags{clientID: fmt.Sprintf("%s-%d", x.Jobs, k), quiet: true}, []job.Part{{Spec: x.FoldSpec(k)}})
	if err != nil {
		return nil, err
	}
	if j := jobs[0]; !x.quiet {
		fmt.Fprintf(x.app.Stderr, "fold %d of %d: %s as %s\n", k, x.Cut.K, j.Name, j.Id)
	}
	return jobs[0], nil
}

// there follows the job of a fold to its end and writes its results.
func (x *crossValidation) there(ctx context.Context, s *session, k int, j *pb.Job) (*report.Record, oracle, error) {
	out, dir := x.app.Stderr, cv.FoldDir(x.folder.dir, k)
	if x.quiet {
		out = io.Discard
	}
	j, err := x.app.follow(ctx, s, j, out, x.app.TTY && !x.quiet)
	if err != nil {
		return nil, nil, err
	}
	if err := verdict(j); code(err) == ExitFailure {
		return nil, nil, err
	}
	rec, err := x.app.record(ctx, s, j)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	if err := x.app.keep(ctx, s, j, dir, rec); err != nil {
		return nil, nil, err
	}
	return rec, &jobOracle{s: s, job: j, draws: x.Draws, told: func() {}, info: dataset.InfoOf(j.Data)}, writeResults(rec, dir, rec.Summary())
}

// conclude writes and prints what came of all folds.
func (x *crossValidation) conclude(all []*cv.Fold) error {
	v := newCVView(x.Validation, all)
	if err := x.WriteResults(x.folder.dir, all, v); err != nil {
		return err
	}
	x.app.warnings(v.Warnings)
	if bad := v.unconverged(); len(bad) > 0 {
		x.app.note("'ulisse extend %s' with --draws, --ess or --max-time continues a fold; then %s", x.subject(bad[0]), x.again())
	}
	var err error
	if x.json {
		err = x.app.printJSON(v)
	} else if err = v.write(x.app.Stdout); err == nil {
		_, err = fmt.Fprintf(x.app.Stdout, "\nresults in %s\n", x.folder.dir)
	}
	if err == nil && len(v.unconverged()) > 0 {
		return &exit{code: ExitUnconverged}
	}
	return err
}

// listed joins numbers of folds.
func listed(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	if n := len(texts); n > 1 {
		return "folds " + strings.Join(texts[:n-1], ", ") + " and " + texts[n-1]
	}
	return "fold " + strings.Join(texts, "")
}
