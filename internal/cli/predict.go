package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/export"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

type predictFlags struct {
	remote
	data     string
	holdout  bool
	train    string
	out      string
	plot     string
	scores   bool
	json     bool
	quiet    bool
	draws    int
	noise    bool
	latent   bool
	quantile []string
	probs    []float64 // of quantile
	variance string
	tol      float64
	threads  int
	// what is told beside the rows' own distributions, or in place of them
	covariance string
	paths      int
	seed       uint64
	gradient   bool
	terms      bool
	mean       bool // the coefficients of the mean, of no rows
	gradientSD bool
}

func (a *App) predictCommand() *cobra.Command {
	var f predictFlags
	c := &cobra.Command{
		Use:   "predict FOLDER|JOB",
		Short: "Predict rows from a posterior, averaged over its draws",
		Long: `Predict rows from the results of 'ulisse run' in a folder, on this machine, or
from a job, on its cluster, where batches of rows are split over the workers. Of a
run that has not ended it takes the draws so far, or, before there are any, the
normal approximation at the mode, and says so. The prediction is averaged over the draws of the covariance
parameters: each draw gives a normal distribution for the target, and the
prediction is their mixture. A CSV table is written with its mean, standard
deviation and quantiles, in the units of the target; and, where the rows'
targets are known, with their log density, CRPS and PIT (the probability of
what lies below).

The rows come from a table with the columns of the inputs (--data), or are those
that the specification held out (--holdout). Variances are exact to --tolerance,
by a linear solve for each row and draw; --variance surface solves at a few
points of the posterior only and takes the variance to be smooth in between,
which it checks. The result depends on neither threads, nor workers, nor the
order of rows.

--paths writes sample paths instead, joint over the rows: each is of the latent
function at one draw of the parameters, or with --noise of the target there. A path
depends on the results, the rows and --seed only. --covariance writes how all rows
vary together: the covariance matrix of the mixture, whose diagonal has the variances
of the table. Both are exact, of 4096 different rows at most, from a job of 1024. A file
whose name ends in .npy is written as an array of NumPy's: paths × rows, or rows × rows. Under
a likelihood of several latent functions paths of these have a column for each, path_1[NAME], and
--latent tells each: the function of every class, or mean and noise_sd of heteroscedastic noise.

--gradient adds for each input the derivative of the mean, gradient[NAME], in units of the
target over those of the input; --gradient-sd also with what standard deviation the latent
function's is known, gradient_sd[NAME], by a solve for each row, draw and input. Functions of
a Matérn 1/2 have none; along a category it is 0.

--terms adds what each term of a sum contributes to the latent function, mean[NAME] and
sd[NAME]. The means add up to the latent function's less the mean of the training targets; the
standard deviations do not, since what one term does not explain another may.

--coefficients writes instead the posterior of the coefficients of model.mean, means and standard
deviations in the units of the data: slope[NAME], and the constant, which is the mean where
all inputs are at their averages.`,
		Example: `  ulisse predict concrete --data new.csv --out pred.csv
  ulisse predict concrete --data grid.csv --paths 50 --out paths.csv
  ulisse predict concrete --holdout --out pred.csv --scores --plot calibration.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := f.options(c.Flags().Changed)
			if err != nil {
				return err
			}
			folder, err := isRun(args[0])
			if err != nil {
				return err
			}
			if folder {
				from, err := a.openFolder(c.Context(), &f, args[0])
				if err != nil {
					return err
				}
				return a.predict(c.Context(), &f, o, from)
			}
			return noFolder(args[0], a.on(&f.remote, func(ctx context.Context, s *session, args []string) error {
				from, err := a.openJob(ctx, s, &f, args[0])
				if err != nil {
					return err
				}
				return a.predict(ctx, &f, o, from)
			})(c, args))
		},
	}
	f.remote.flags(c)
	fl := c.Flags()
	fl.StringVar(&f.data, "data", "", "predict the rows of the table at this `path` (- for standard input)")
	fl.BoolVar(&f.holdout, "holdout", false, "predict the rows that were held out: data.holdout in the specification, or run --holdout, says what share")
	fl.StringVar(&f.train, "train", "", "read the training table from this `path` instead of the specification's")
	fl.StringVarP(&f.out, "out", "o", "-", "write predictions into this `file` (- for standard output)")
	fl.StringVar(&f.plot, "plot", "", "draw the calibration of the predictions, of classes that of each and how many are right where the least sure rows are rejected, into this SVG `file`")
	fl.BoolVar(&f.scores, "scores", false, "print how well the targets were predicted")
	fl.BoolVar(&f.json, "json", false, "print what was done, and the scores, as JSON")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	fl.IntVar(&f.draws, "draws", 0, fmt.Sprintf("average over this `number` of draws (default: as many as are independent, %d at most)", predict.MaxAutoDraws))
	fl.BoolVar(&f.noise, "noise", false, "predict the target, noise and all (the default, but for --paths)")
	fl.BoolVar(&f.latent, "latent", false, "predict the latent function, without the noise")
	fl.IntVar(&f.paths, "paths", 0, "write this `number` of sample paths instead")
	fl.Uint64Var(&f.seed, "seed", 0, "draw the paths with this `seed`")
	fl.BoolVar(&f.gradient, "gradient", false, "add how the latent function changes with each input")
	fl.BoolVar(&f.terms, "terms", false, "add the terms of a covariance that is a sum")
	fl.BoolVar(&f.mean, "coefficients", false, "write the posterior of the mean's coefficients instead")
	fl.BoolVar(&f.gradientSD, "gradient-sd", false, "add that and its standard deviations")
	fl.StringVar(&f.covariance, "covariance", "", "write the joint covariance of the rows into this `file`")
	fl.StringSliceVar(&f.quantile, "quantiles", []string{"0.025", "0.5", "0.975"}, "write the quantiles of these `probabilities`")
	fl.StringVar(&f.variance, "variance", string(predict.Exact), "how to compute variances: exact or surface")
	fl.Float64Var(&f.tol, "tolerance", predict.DefaultTolerance, "relative error of a standard deviation, at most")
	fl.IntVar(&f.threads, "threads", 0, "compute on this many cores (default: all)")
	c.ValidArgsFunction = a.completeJobs(&f.remote)
	c.RegisterFlagCompletionFunc("variance", cobra.FixedCompletions([]string{"exact", "surface"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// options returns what to predict; a mistake in the flags is bad input.
func (f *predictFlags) options(changed func(flag string) bool) (predict.Options, error) {
	o := predict.Options{Tolerance: f.tol, Latent: f.latent || f.paths > 0 && !f.noise, Variance: predict.Variance(f.variance)}
	if f.tol == 0 {
		o.Tolerance = -1 // said, not left out
	}
	if err := o.Check(); err != nil {
		return o, badInput(err)
	}
	var err error
	if f.probs, err = probabilities(f.quantile); err != nil {
		return o, badInput(err)
	}
	switch {
	case f.mean && (f.data != "" || f.holdout || f.paths > 0 || f.covariance != "" || f.scores || f.plot != ""):
		return o, badInput(errors.New("--coefficients: they are of no rows: ask for them alone"))
	case !f.mean && (f.data != "") == f.holdout:
		return o, badInput(errors.New("say which rows: give a table with --data, or --holdout"))
	case f.noise && f.latent:
		return o, badInput(errors.New("--noise and --latent: give one of them"))
	case f.draws < 0:
		return o, badInput(fmt.Errorf("--draws %d: give a positive number", f.draws))
	case f.threads < 0:
		return o, badInput(fmt.Errorf("--threads %d: give a positive number", f.threads))
	case f.json && f.out == "-":
		return o, badInput(errors.New("--json: the table would go to standard output too: give it a file with --out"))
	}
	return o, badInput(f.checkJoint(o, changed))
}

// probabilities returns those that --quantiles names.
func probabilities(texts []string) (probs []float64, err error) {
	for _, text := range texts {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p > 0 && p < 1) {
			return nil, fmt.Errorf("--quantiles: %q is not a probability between 0 and 1", text)
		}
		probs = append(probs, p)
	}
	return probs, nil
}

// checkJoint returns an error if flags do not go together with joint distributions.
func (f *predictFlags) checkJoint(o predict.Options, changed func(flag string) bool) error {
	switch {
	case f.paths < 0 || f.paths == 0 && changed("paths"):
		return fmt.Errorf("--paths %d: give a positive number", f.paths)
	case f.paths == 0 && changed("seed"):
		return errors.New("--seed: it is of sample paths: ask for some with --paths")
	case f.paths > 0 && (f.scores || f.plot != "" || changed("quantiles")):
		return errors.New("--paths: there are paths in place of predictions: ask for --scores, --plot and --quantiles without it")
	case f.paths > 0 && (f.gradient || f.gradientSD):
		return errors.New("--paths: there are paths in place of predictions: ask for --gradient without it")
	case f.paths > 0 && f.terms:
		return errors.New("--paths: there are paths in place of predictions: ask for --terms without it")
	case f.joint() && o.Variance != predict.Exact:
		return errors.New("--variance: sample paths and joint covariances are exact")
	case f.covariance == "-" && (f.out == "-" || f.json):
		return errors.New("--covariance -: something else goes to standard output: give it a file")
	}
	return nil
}

// joint reports whether the rows are to be predicted together.
func (f *predictFlags) joint() bool { return f.paths > 0 || f.covariance != "" }

// request returns what to ask for of the rows.
func (f *predictFlags) request(pts *points) predict.Request {
	return predict.Request{X: pts.x, Targets: pts.y, Noise: pts.noise, Offset: pts.offset, Probs: f.probs, Covariance: f.covariance != "", Paths: f.paths, Seed: f.seed, Gradient: f.gradient || f.gradientSD, GradientSD: f.gradientSD, Terms: f.terms}
}

// oracle predicts rows, here or elsewhere.
type oracle interface {
	// about returns what the rows' columns are called.
	about() *dataset.Info
	// conditional returns the likelihood.
	conditional() (likelihood.Likelihood, error)
	// heldOut returns the rows that the specification held out: inputs and
	// targets in original units, and their numbers in the table, from 1.
	heldOut(ctx context.Context) (*points, error)
	// predict predicts all rows.
	predict(ctx context.Context, r predict.Request, o predict.Options) ([]predict.Row, predict.Stats, error)
}

// points are rows to predict.
type points struct {
	x       [][]float64
	y       []float64          // nil if not known, NaN where not
	numbers []int              // nil for 1, 2, …
	noise   []dataset.NoiseRow // what is known of their noise, where it differs between rows; nil if it is not
	offset  []float64          // nil if the data have none
}

// predictView is what --json prints.
type predictView struct {
	predict.Stats
	Latent   bool             `json:"latent"`
	Variance predict.Variance `json:"variance"`
	Seconds  float64          `json:"seconds"`
	Scores   *predict.Scores  `json:"scores,omitempty"`
	Warnings []string         `json:"warnings"`
}

// predict predicts what the flags ask for and writes it.
func (a *App) predict(ctx context.Context, f *predictFlags, o predict.Options, from oracle) error {
	if f.mean {
		return a.coefficients(ctx, f, o, from)
	}
	pts, err := a.points(ctx, f, o.Latent, from)
	if err != nil {
		return err
	}
	if pts.y == nil && (f.scores || f.plot != "") {
		return badInput(fmt.Errorf("--scores and --plot need to know the targets: the table has no column %q", from.about().Target))
	}
	show := &predictProgress{app: a, quiet: f.quiet, began: a.Now()}
	o.Progress = show.at
	began := time.Now()
	r := f.request(pts)
	if err := r.Transformable(from.about()); err != nil {
		return badInput(err)
	}
	rows, stats, err := from.predict(ctx, r, o)
	show.end()
	if err != nil {
		return err
	}
	if err := a.writePredicted(f, rows, from.about().InputNames, pts.numbers); err != nil {
		return err
	}
	if f.plot != "" {
		if err := plotPredicted(f.plot, rows, from); err != nil {
			return err
		}
	}
	v := predictView{Stats: stats, Latent: o.Latent, Variance: o.Variance, Seconds: time.Since(began).Seconds(), Warnings: predictWarnings(stats, o)}
	if pts.y != nil && f.paths == 0 && (f.scores || f.json) {
		l, err := from.conditional()
		if err != nil {
			return err
		}
		v.Scores = predict.Score(rows, l)
	}
	return a.tellPredicted(f, &v)
}

// plotPredicted draws the calibration of predictions of the rows whose targets are known.
func plotPredicted(path string, rows []predict.Row, from oracle) error {
	l, err := from.conditional()
	if err != nil {
		return err
	}
	if p, class := predict.Classified(rows, l); p != nil {
		names := from.about().Classes
		if names == nil {
			names = []string{"0", "1"}
		}
		return atomicfile.Write(path, 0o644, func(w io.Writer) error { return plots.Classes(w, names, p, class) })
	}
	var pit []float64
	for _, r := range rows {
		if !math.IsNaN(r.PIT) {
			pit = append(pit, r.PIT)
		}
	}
	return atomicfile.Write(path, 0o644, func(w io.Writer) error { return plots.Calibration(w, pit) })
}

// writePredicted writes what was predicted: the table, and the joint covariance.
func (a *App) writePredicted(f *predictFlags, rows []predict.Row, inputs []string, numbers []int) error {
	err := a.output(f.out, func(w io.Writer) error {
		if f.paths == 0 || filepath.Ext(f.out) != ".npy" {
			return predict.WriteCSV(w, rows, inputs, f.probs, numbers)
		}
		each, shape := 1, []int{f.paths, len(rows)}
		if functions := len(rows[0].Functions); functions > 0 {
			each, shape = functions, append(shape, functions)
		}
		values := make([]float64, 0, f.paths*len(rows)*each)
		for k := range f.paths {
			for _, r := range rows {
				values = append(values, r.Paths[k*each:(k+1)*each]...)
			}
		}
		return export.WriteNPY(w, &export.Array{Name: "paths", Shape: shape, Data: values})
	})
	if err != nil || f.covariance == "" {
		return err
	}
	return a.output(f.covariance, func(w io.Writer) error {
		if filepath.Ext(f.covariance) != ".npy" {
			return predict.WriteCovariance(w, rows, numbers)
		}
		var values []float64
		for _, r := range rows {
			values = append(values, r.Covariance...)
		}
		return export.WriteNPY(w, &export.Array{Name: "covariance", Shape: []int{len(rows), len(rows)}, Data: values})
	})
}

// tellPredicted prints what was done: where the table goes to standard output,
// beside it.
func (a *App) tellPredicted(f *predictFlags, v *predictView) error {
	if f.json {
		return a.printJSON(v)
	}
	a.warnings(v.Warnings)
	if !f.quiet {
		fmt.Fprintf(a.Stderr, "%s predicted from %s in %s\n", plural.Of(v.Rows, "row"), map[bool]string{true: "1 point", false: plural.Of(v.Draws, "draw")}[v.Draws == 1], time.Duration(v.Seconds*float64(time.Second)).Round(time.Millisecond))
	}
	if !f.scores {
		return nil
	}
	w := a.Stdout
	if f.out == "-" {
		w = a.Stderr
	}
	return v.Scores.WriteText(w)
}

// predictWarnings says what must be known before believing predictions.
func predictWarnings(s predict.Stats, o predict.Options) []string {
	w := []string{}
	if s.Unconverged > 0 {
		w = append(w, fmt.Sprintf("%d linear systems did not reach their tolerance: standard deviations may be off by a part in %.0f", s.Unconverged, 1/s.Bound))
	}
	if s.MeansUnconverged > 0 {
		w = append(w, fmt.Sprintf("the targets were not solved for to the tolerance at %d draws: means may be off; allow more solver.max_iterations", s.MeansUnconverged))
	}
	if s.Clipped > 0 {
		w = append(w, fmt.Sprintf("%d variances of the latent function are less than rounding: they are too small to tell", s.Clipped))
	}
	if s.Jitter > jitterWarning {
		w = append(w, fmt.Sprintf("some rows are so near each other that %.0e of the prior's variance was added to theirs to draw paths", s.Jitter))
	}
	if s.SurfaceError > surfaceWarning {
		w = append(w, fmt.Sprintf("at the draw farthest out the surface is off by %.2g of a standard deviation: use --variance exact", s.SurfaceError))
	}
	return w
}

// surfaceWarning is the error of a surface at one draw, the worst, from which on
// a user is told: the prediction, a mean over draws, is off by much less.
const surfaceWarning = 0.05

// jitterWarning is the variance added to paths, in units of the prior's, from which on a user is told: a
// thousandth of its standard deviation.
const jitterWarning = 0.99e-6

// points reads the rows to predict: their targets, or the latent function alone.
func (a *App) points(ctx context.Context, f *predictFlags, latent bool, from oracle) (*points, error) {
	if f.holdout {
		return from.heldOut(ctx)
	}
	info := from.about()
	var in io.Reader
	if f.data == dataset.Stdin {
		in = a.Stdin
	}
	p, err := info.ReadPoints(f.data, in, dataset.DefaultLimits)
	if err != nil {
		return nil, badInput(err)
	}
	out := &points{x: p.X, y: p.Y, noise: p.Noise, offset: p.Offset}
	switch {
	case p.Lacks == "":
	case !latent:
		return nil, badInput(fmt.Errorf("the table has no column %q, which says what noise its rows have: add it, or predict the latent function with --latent", p.Lacks))
	case f.scores || f.plot != "":
		return nil, badInput(fmt.Errorf("--scores and --plot need to know what noise the rows have: the table has no column %q", p.Lacks))
	default:
		out.y = nil // nothing can be told of targets
	}
	return out, nil
}

// heldOut returns the rows that a data set holds out.
func heldOut(d *dataset.Dataset) (*points, error) {
	if d.HeldOut == 0 {
		return nil, badInput(errors.New("--holdout: the specification holds no rows out: say holdout: 0.1 under data: and run it, or give rows with --data"))
	}
	p := &points{noise: d.HoldoutNoise, offset: d.HoldoutOffset}
	for i := range d.HoldoutY {
		x := make([]float64, d.D())
		for k, v := range d.HoldoutX.Row(i) {
			x[k] = d.XScale[k].Undo(v)
		}
		p.x, p.y, p.numbers = append(p.x, x), append(p.y, d.ObservedHoldout(i)), append(p.numbers, d.Number(d.HoldoutRows[i]))
	}
	return p, nil
}

// folderOracle predicts here, from a folder of results.
type folderOracle struct {
	data *dataset.Dataset
	p    *predict.Predictor
}

func (a *App) openFolder(ctx context.Context, f *predictFlags, dir string) (oracle, error) {
	rec, err := report.ReadFolder(dir)
	if err != nil {
		return nil, badInput(err)
	}
	spec, err := (&source{}).spec([]string{filepath.Join(dir, "spec.yaml")})
	if err != nil {
		return nil, err
	}
	if f.train != "" {
		if spec.Data.Synthetic != nil {
			return nil, badInput(errors.New("--train: the specification generates its data"))
		}
		spec.Data.Path = f.train
	}
	budget := (&source{threads: f.threads}).budget()
	data, problem, err := a.load(ctx, spec, budget)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badInput(fmt.Errorf("the table that the run in %s learnt from is not where it was: %w; say where it is with --train", dir, err))
	}
	if err != nil {
		return nil, err
	}
	if rec.Data.SHA256 != data.SHA256 {
		return nil, badInput(fmt.Errorf("the data at %s are not those that the run in %s learnt from: say where those are with --train", spec.Data.Path, dir))
	}
	chains, provisional, err := report.Points(rec.Run)
	if err != nil {
		return nil, fmt.Errorf("%s: there are no draws to predict from yet: %w", dir, err)
	}
	if draws := rec.Run.MinDraws(); rec.Run.Stopped == nil || draws == 0 {
		a.note("the run in %s has not ended with draws: %s", dir, predictedSoFar(draws, provisional))
	}
	c := predict.FromSpec(spec, problem, predict.Thin(chains, f.draws), budget)
	c.Solutions = &predict.Solutions{Dir: filepath.Join(dir, "state", "predict")}
	if err := fromFit(ctx, rec, &c); err != nil {
		return nil, err
	}
	p, err := predict.New(c)
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", dir, err))
	}
	return &folderOracle{data, p}, nil
}

// predictedSoFar says what is predicted from where a run has not come to its end.
func predictedSoFar(draws int, provisional string) string {
	if draws == 0 {
		return "provisional predictions, from " + provisional
	}
	return fmt.Sprintf("predictions from the first %d draws of each chain", draws)
}

func (o *folderOracle) about() *dataset.Info { return &o.data.Info }

func (o *folderOracle) conditional() (likelihood.Likelihood, error) {
	return likelihood.Base(o.p.Problem.Likelihood), nil
}

func (o *folderOracle) heldOut(context.Context) (*points, error) { return heldOut(o.data) }

// chunkRows is the number of rows whose distributions are held at once.
const chunkRows = 1024

func (o *folderOracle) predict(ctx context.Context, r predict.Request, opt predict.Options) (rows []predict.Row, stats predict.Stats, err error) {
	if err := r.Possible(o.p.Problem.Covariance); err != nil {
		return nil, stats, badInput(err)
	}
	if r.Joint() {
		rows, stats, err = o.p.Rows(ctx, &o.data.Info, r, opt)
		if errors.As(err, new(*predict.TooMany)) {
			err = badInput(err)
		}
		return rows, stats, err
	}
	tell := opt.Progress
	for lo := 0; lo < len(r.X); lo += chunkRows {
		hi := min(len(r.X), lo+chunkRows)
		opt.Progress = func(p predict.Progress) {
			if p.Stage == predict.RowsStage {
				each := p.Total / (hi - lo)
				p.Done, p.Total = lo*each+p.Done, len(r.X)*each
			}
			tell(p)
		}
		some, s, err := o.p.Rows(ctx, &o.data.Info, r.Part(lo, hi), opt)
		if err != nil {
			return nil, stats, err
		}
		rows = append(rows, some...)
		stats.Add(s)
	}
	return rows, stats, nil
}

// predictProgress tells how far predictions are: a line that is written over on a
// terminal, or else one now and then.
type predictProgress struct {
	app   *App
	quiet bool
	began time.Time
	what  string // is predicted; rows if it is empty

	mu   sync.Mutex
	last time.Time
	line bool // one is there to be written over
}

// Times between two tellings.
const (
	showEvery = 200 * time.Millisecond
	barWidth  = 30
)

func (p *predictProgress) at(at predict.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.app.Now()
	every := lineEvery
	if p.app.TTY {
		every = showEvery
	}
	if p.quiet || at.Total == 0 || now.Sub(p.last) < every || now.Sub(p.began) < every {
		return
	}
	p.last = now
	share := float64(at.Done) / float64(at.Total)
	text := fmt.Sprintf("%3.0f %%  %s", 100*share, cmp.Or(p.what, "rows"))
	if at.Stage == predict.SolutionsStage {
		text = fmt.Sprintf("%3.0f %%  solving for the targets, once", 100*share)
	}
	if !p.app.TTY {
		fmt.Fprintln(p.app.Stderr, "predicting:", text)
		return
	}
	p.line = true
	full := int(share * barWidth)
	fmt.Fprintf(p.app.Stderr, "\r\x1b[Kpredicting %s%s %s, %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), text, now.Sub(p.began).Round(time.Second))
}

// end removes the line.
func (p *predictProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line {
		fmt.Fprint(p.app.Stderr, "\r\x1b[K")
	}
}
