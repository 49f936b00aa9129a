package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/laplace"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/solve"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
	"github.com/ulisse-gp/ulisse/internal/version"
)

type fitFlags struct {
	source
	out        string
	method     string
	objective  string
	model      string
	restarts   int
	iterations int
	batch      int
	resume     string        // the folder of a fit to go on with
	checkpoint time.Duration // between two checkpoints; 0 for none
	from       *fitCheckpoint
	workers    []string // that share the gradients
	tls        tlsconf.Files
	stderr     io.Writer // for what is told of them
	json       bool
	quiet      bool
}

// The ways to fit, and what.
const (
	quasiNewton = "quasi-newton"
	adagrad     = "adagrad"
	adam        = "adam"

	objectiveMAP = "map"
	objectiveML  = "ml"
)

var fitMethods = []string{quasiNewton, adagrad, adam}

// defaultBatch is --batch if it is not given, adamIterations --iterations of adam.
const (
	defaultBatch   = 500
	adamIterations = 3000
)

// fitter finds an estimate: of a problem, from some starts.
type fitter func(ctx context.Context, f *fitFlags, j *runJob, p *posterior.Problem, starts [][]float64, o fit.Options) (*report.Fit, *fit.Result, error)

// fitModel is how the likelihood is computed, exactly or not.
type fitModel struct {
	fit fitter
	// predict changes what predicts from an estimate; nil if it predicts like any draw.
	predict func(ctx context.Context, rec *report.Record, c *predict.Config) error
}

// fitModels are those of --model, by name.
var fitModels = map[string]fitModel{
	"exact":   {fit: fitExact},
	"laplace": {fit: fitLaplace, predict: predictLaplace},
}

func (a *App) fitCommand() *cobra.Command {
	var f fitFlags
	c := &cobra.Command{
		Use:   "fit [SPEC]",
		Short: "Find a point estimate of the parameters on this machine, in place of draws",
		Long: `Find a point estimate of the covariance parameters: the highest posterior density on
the scale on which they are sampled (--objective map), or the maximum of the marginal
likelihood, priors left out (--objective ml). A folder is written (by default
./NAME-DATE) from which 'ulisse predict', 'effects', 'loo', 'compare', 'summary' and
'report' work as from that of a run, at that one point. Standard errors are from the
curvature there. They, not the predictions, tell how uncertain the parameters are:
where that matters, as with few data, use 'ulisse run'.

--method quasi-newton climbs the log marginal likelihood from several starts
(--restarts) and keeps the best: on a subset of 1000 rows first, then on all rows, with
a stored factor of the covariance matrix up to 16,000 rows, and beyond by products
alone. --method adagrad follows noisy gradients of linear solves as published (Cutajar
et al., ICML 2016): step 1, four probes, a Nyström preconditioner drawn anew at each
of --iterations.

Where the likelihood is not Gaussian (bernoulli, ordinal, binomial, poisson,
negative-binomial, stochastic-volatility) it is Laplace's approximation that is climbed
and predicts: with stored matrices up to 5,000 rows, beyond by products alone.

A specification with model.approximation (sgpr, fitc, dtc, svgp) has that fitted in place
of the exact model, by inducing inputs: in time proportional to the rows. --method adam
is for svgp: each of --iterations learns from --batch rows, drawn anew, by Adam's steps
of the parameters, and of inducing inputs that move, beside steps of the natural
gradient; the end is looked at with all rows.
One with random-features or deep has the features' weights learnt by Adam from
minibatches: how, it says itself (steps, minibatch, step), and --restarts, --iterations
and --batch do nothing.

Fits from minibatches (svgp with --method adam, random-features, deep) keep their state
beside the folder, in FOLDER.checkpoint, every --checkpoint and when they are
interrupted: --resume FOLDER goes on from there, to the same bits as if nothing had
happened, and removes it at the end. Of several targets each has its own, within the
folder. A table from standard input has none.

A fit is of this machine; a cluster runs chains. Of random-features and deep the
gradients can be shared with workers (--workers, their gRPC addresses, which need no
coordinator for it): the bits are those of this machine alone, whatever becomes of the
workers. Over TLS the fit shows a worker's certificate. Exit code: 0 the optimum was reached;
3 it was not (the folder has what was); 2 bad input; 1 failure; 130 interrupted, and no
folder is written.`,
		Example: `  ulisse fit concrete.yaml --out concrete-map
  ulisse fit concrete.yaml --objective ml --restarts 8
  ulisse fit power.yaml --method adagrad --iterations 100 --json
  ulisse fit --resume power-deep`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.method == adam && !c.Flags().Changed("iterations") {
				f.iterations = adamIterations
			}
			f.stderr = a.Stderr
			if err := f.check(); err != nil {
				return badInput(err)
			}
			if f.resume == "" {
				return a.fit(c.Context(), &f, args)
			}
			spec, err := f.resumed(c, args)
			if err != nil {
				return badInput(err)
			}
			return a.fitOne(c.Context(), &f, spec, f.resume)
		},
	}
	f.add(c)
	return c
}

// add adds the flags.
func (f *fitFlags) add(c *cobra.Command) {
	f.flags(c)
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "write results into this `folder`")
	fl.StringVar(&f.method, "method", quasiNewton, "how to search: "+strings.Join(fitMethods, ", "))
	fl.StringVar(&f.objective, "objective", objectiveMAP, "what to maximise: map, with the priors, or ml, without")
	fl.StringVar(&f.model, "model", "", "how the likelihood is computed: "+strings.Join(fitModelNames(), " or ")+" (default: exact for Gaussian noise, else laplace)")
	fl.IntVar(&f.restarts, "restarts", 3, "search from this `number` of starts (quasi-newton)")
	fl.IntVar(&f.iterations, "iterations", 200, "at most this `number` of evaluations of a search; exactly as many of adagrad and adam, of which 3000 are the default")
	fl.IntVar(&f.batch, "batch", defaultBatch, "learn from this `number` of rows at a time (adam)")
	fl.StringVar(&f.resume, "resume", "", "go on with the fit from minibatches that was to write this `folder`")
	fl.DurationVar(&f.checkpoint, "checkpoint", time.Minute, "`time` between two checkpoints of a fit from minibatches; 0 for none")
	fl.StringSliceVar(&f.workers, "workers", nil, "share the gradients of random-features and deep with these workers, `host:port`,...")
	tlsFlags(c, fl, &f.tls)
	fl.BoolVar(&f.json, "json", false, "print the summary as JSON")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	c.RegisterFlagCompletionFunc("workers", cobra.NoFileCompletions)
	c.RegisterFlagCompletionFunc("method", cobra.FixedCompletions(fitMethods, cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("objective", cobra.FixedCompletions([]string{objectiveMAP, objectiveML}, cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("model", cobra.FixedCompletions(fitModelNames(), cobra.ShellCompDirectiveNoFileComp))
}

func fitModelNames() []string {
	var names []string
	for name := range fitModels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fitFlags) check() error {
	switch {
	case !slices.Contains(fitMethods, f.method):
		return fmt.Errorf("--method %q: use one of %s", f.method, strings.Join(fitMethods, ", "))
	case f.batch < 1 || f.batch > 1_000_000:
		return fmt.Errorf("--batch %d: give a number from 1 to 1000000", f.batch)
	case f.objective != objectiveMAP && f.objective != objectiveML:
		return fmt.Errorf("--objective %q: use map or ml", f.objective)
	case f.model != "" && !slices.Contains(fitModelNames(), f.model):
		return fmt.Errorf("--model %q: use one of %s", f.model, strings.Join(fitModelNames(), ", "))
	case f.checkpoint < 0:
		return fmt.Errorf("--checkpoint %s: give a time of 0 or more", f.checkpoint)
	case f.restarts < 1 || f.restarts > 1000:
		return fmt.Errorf("--restarts %d: give a number from 1 to 1000", f.restarts)
	case f.iterations < 1 || f.iterations > 1_000_000:
		return fmt.Errorf("--iterations %d: give a number from 1 to 1000000", f.iterations)
	}
	return nil
}

func (a *App) fit(ctx context.Context, f *fitFlags, args []string) error {
	parts, err := f.specs(args)
	if err != nil {
		return err
	}
	dir := f.out
	if dir == "" {
		dir = dated(eachName(parts[0]))
	}
	if len(parts) > 1 {
		return a.fitEach(ctx, f, parts, dir)
	}
	return a.fitOne(ctx, f, parts[0].Spec, dir)
}

// fitOne fits a specification into a folder and tells the result.
func (a *App) fitOne(ctx context.Context, f *fitFlags, spec *job.Spec, dir string) error {
	rec, err := a.fitInto(ctx, f, spec, dir)
	if err != nil {
		return err
	}
	return a.concludeFit(rec, dir, f.json)
}

// fitEach fits several targets, one after the other, into folders of their own within one. A target that fails does not
// keep the others from being fitted.
func (a *App) fitEach(ctx context.Context, f *fitFlags, parts []job.Part, dir string) error {
	again, err := a.rereading(parts[0].Spec.Data.Path)
	if err != nil {
		return err
	}
	if err := newFolder(dir); err != nil {
		return err
	}
	each := tally{app: a, json: f.json}
	var names []string
	for _, p := range parts {
		rec, err := again().fitInto(ctx, f, p.Spec, filepath.Join(dir, p.Name))
		if code(err) == ExitInterrupted {
			return err
		}
		if err == nil {
			names = append(names, p.Name)
			err = each.concludeFit(rec, filepath.Join(dir, p.Name))
		}
		each.count(p.Name, err)
	}
	if len(names) > 0 {
		if err := writeTargets(dir, names); err != nil {
			return err
		}
	}
	return each.end()
}

// concludeFit is conclude of a fit, whose folder is there.
func (t *tally) concludeFit(rec *report.Record, dir string) error {
	if t.json {
		sum := rec.Summary()
		t.sums = append(t.sums, sum)
		if !sum.Converged {
			return &exit{code: ExitUnconverged}
		}
		return nil
	}
	if t.told++; t.told > 1 {
		fmt.Fprintln(t.app.Stdout)
	}
	fmt.Fprintf(t.app.Stdout, "target %s\n\n", rec.Data.Target)
	return t.app.concludeFit(rec, dir, false)
}

// concludeFit prints the summary and returns the exit of the fit.
func (a *App) concludeFit(rec *report.Record, dir string, asJSON bool) error {
	sum := rec.Summary()
	if asJSON {
		if err := a.printJSON(sum); err != nil {
			return err
		}
	} else {
		if err := sum.WriteText(a.Stdout); err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "\nresults in %s\n", dir)
	}
	if !sum.Converged {
		return &exit{code: ExitUnconverged}
	}
	return nil
}

// fitInto fits a specification and writes the folder, whole or not at all.
func (a *App) fitInto(ctx context.Context, f *fitFlags, spec *job.Spec, dir string) (*report.Record, error) {
	if err := f.beginnable(dir); err != nil {
		return nil, badInput(err)
	}
	budget := f.budget()
	j, err := a.jobOf(ctx, &runFlags{source: f.source}, spec, budget)
	if err != nil {
		return nil, err
	}
	if err := f.sameData(j); err != nil {
		return nil, badInput(err)
	}
	if !f.quiet && f.from == nil {
		a.hints(j.spec, j.data)
	}
	rec, err := a.fitted(ctx, f, j, dir)
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			again := "nothing is written"
			if _, err := os.Stat(checkpointPath(dir)); err == nil {
				again = "go on with ulisse fit --resume " + dir
			}
			fmt.Fprintln(a.Stderr, "interrupted: "+again)
			return nil, &exit{code: ExitInterrupted}
		}
		return nil, err
	}
	if err := j.writeFit(rec, dir); err != nil {
		return nil, err
	}
	return rec, removed(checkpointPath(dir))
}

// fitted finds the estimate of a job whose results go into a folder.
func (a *App) fitted(ctx context.Context, f *fitFlags, j *runJob, dir string) (*report.Record, error) {
	began := time.Now()
	if f.from != nil {
		began = began.Add(-time.Duration(f.from.Seconds * float64(time.Second)))
	}
	name, err := f.modelOf(j)
	if err != nil {
		return nil, badInput(err)
	}
	p := j.problem
	if f.objective == objectiveML {
		p = fit.Likelihood(p)
	}
	if err := j.budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer j.budget.Release()
	show := &fitProgress{app: a, quiet: f.quiet, began: a.Now()}
	if f.method != quasiNewton {
		show.total = f.iterations
	}
	o := fit.Options{Evaluations: f.iterations, Began: began, Tell: show.at}
	if k, err := f.keeper(j, dir, began); err != nil {
		return nil, err
	} else if k != nil {
		o.Keeper = k
	}
	if f.from != nil {
		o.From = &f.from.State
	}
	fl, res, err := modelNamed(name).fit(ctx, f, j, p, fit.Starts(j.problem.Params, f.restarts, j.spec.Seed), o)
	show.end()
	if err != nil {
		return nil, err
	}
	fl.Name, fl.Version, fl.Seed, fl.Method, fl.Objective, fl.Model = j.spec.Name, version.Version, j.spec.Seed, cmp.Or(fl.Method, f.method), f.objective, name
	fillFit(fl, j, res)
	fl.Cost.Seconds = time.Since(began).Seconds()
	if j.piped != nil { // where the table will be
		if j.spec.Data.Path, err = filepath.Abs(filepath.Join(dir, filepath.FromSlash(pipedFile))); err != nil {
			return nil, err
		}
	}
	rec, err := j.record(a, report.Fitted(j.plan, fl), time.Since(began))
	if err == nil {
		rec.Fit = fl
	}
	return rec, err
}

// fillFit writes into what is told of a fit what was found.
func fillFit(f *report.Fit, j *runJob, res *fit.Result) {
	f.Converged, f.Distance, f.LogLikelihood, f.LogDensity = res.Converged, report.Number(res.Distance), report.Number(res.LogLikelihood), report.Number(res.Value)
	f.LogLikelihoodError = report.Number(res.ValueError)
	f.Names, f.Psi, f.Extra, f.Searches, f.Trace = j.plan.Names, res.Psi, res.Extra, res.Searches, res.Trace
	f.Cost.Evaluations = len(res.Trace)
	if len(res.Searches) > 0 { // of a network the trace has some steps only
		f.Cost.Evaluations = res.Searches[0].Evaluations
	}
	for _, s := range res.Searches[min(1, len(res.Searches)):] {
		f.Cost.Evaluations += s.Evaluations
	}
	f.Parameters = report.FitRows(j.problem.Model, &j.data.Info, res.Psi, res.Cov)
	f.Warnings = []string{}
	switch {
	case res.Cov != nil:
		f.Cov = chains.Flat(res.Cov)
	case j.spec.Model.Features() && !res.Converged:
		f.Warnings = append(f.Warnings, "the bound was still rising at the end: give model.approximation more steps")
	case j.spec.Model.Features(): // which looks at no curvature
	default:
		f.Warnings = append(f.Warnings, "the curvature at the end is not that of a maximum, so that there are no standard errors: the data do not tell some parameters; priors that say more help")
	}
	if res.Cov != nil && !res.Converged {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the search ended %.2g standard errors from the optimum: give it more --iterations", res.Distance))
	}
}

// writeFit writes the folder of a fit beside its place first, so that it is there whole or not at all.
func (j *runJob) writeFit(rec *report.Record, dir string) (err error) {
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(filepath.Clean(dir))+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if j.piped != nil {
		if err := os.MkdirAll(filepath.Join(tmp, "state"), 0o755); err != nil {
			return err
		}
		if err := writeBytes(filepath.Join(tmp, filepath.FromSlash(pipedFile)), j.piped); err != nil {
			return err
		}
	}
	if err := writeBytes(filepath.Join(tmp, "spec.yaml"), []byte(rec.SpecText)); err != nil {
		return err
	}
	if err := report.WriteFit(tmp, rec, rec.Summary()); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty folder
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return atomicfile.SyncDir(parent) // before the checkpoint goes
}

// modelOf returns the name of the model to fit.
func (f *fitFlags) modelOf(j *runJob) (string, error) {
	if len(f.workers) > 0 && !j.spec.Model.Features() {
		return "", errors.New("--workers: they share the gradients of model.approximation: random-features and deep alone; leave it out")
	}
	if j.spec.Model.Sparse() || j.spec.Model.Features() {
		return f.approximateModel(j.spec)
	}
	if f.method == adam {
		return "", errors.New("--method adam: it learns from batches of rows under model.approximation: {kind: svgp}; use quasi-newton or adagrad")
	}
	l := j.problem.Likelihood
	switch gaussian := likelihood.Width(l) == 0; {
	case j.problem.Functions() > 1:
		return "", fmt.Errorf("model.likelihood: %s has several latent functions, and a fit of the exact model is of one: draw from the posterior by 'ulisse run', or of classes fit random features (model.approximation: {kind: random-features})", l.Name())
	case gaussian && f.model == "laplace":
		return "", errors.New("--model laplace: it is for likelihoods that are not Gaussian; of Gaussian noise the exact model is at hand")
	case gaussian:
		return cmp.Or(f.model, "exact"), nil
	case f.model != "" && f.model != "laplace":
		return "", fmt.Errorf("--model %s: it is for Gaussian noise; under model.likelihood: %s use laplace", f.model, l.Name())
	}
	return "laplace", nil
}

// approximate returns Laplace's approximation of a problem: with stored matrices, or of many rows by products.
func approximate(p *posterior.Problem, j *runJob) (fit.Objective, error) {
	if len(p.Y) <= laplace.MaxRows {
		return laplace.New(p, j.budget)
	}
	return laplace.NewSolves(p, j.budget, j.spec.Seed)
}

// fitLaplace fits by Laplace's approximation.
func fitLaplace(ctx context.Context, f *fitFlags, j *runJob, p *posterior.Problem, starts [][]float64, o fit.Options) (*report.Fit, *fit.Result, error) {
	noisy, err := laplace.NewSolves(p, j.budget, j.spec.Seed)
	if err != nil {
		return nil, nil, badInput(err)
	}
	var last fit.Objective
	of := func(p *posterior.Problem) (obj fit.Objective, err error) {
		last, err = approximate(p, j)
		return last, err
	}
	out := &report.Fit{}
	var res *fit.Result
	if f.method == quasiNewton {
		o.Noisy = len(p.Y) > laplace.MaxRows // the probes of its implicit term are not those of log|B|
		res, err = fit.Staged(ctx, p, j.spec.Seed, starts, of, o)
	} else {
		res, err = follow(ctx, f, p, noisy, of, starts[0], o)
		out.Cost = costOf(noisy.Cost)
	}
	if s, ok := last.(*laplace.Solves); ok && err == nil {
		res.ValueError = s.ValueError()
	}
	return out, res, err
}

// follow follows noisy gradients from a start, and measures the curvature where they end by an objective.
func follow(ctx context.Context, f *fitFlags, p *posterior.Problem, noisy fit.Noisy, of func(*posterior.Problem) (fit.Objective, error), start []float64, o fit.Options) (*fit.Result, error) {
	x, trace, err := fit.Adagrad(ctx, p.Params, noisy, start, f.iterations, o)
	if err != nil {
		return nil, err
	}
	obj, err := of(p)
	if err != nil {
		return nil, err
	}
	res, err := fit.Finish(ctx, p.Params, obj, x)
	if err == nil {
		res.Trace = trace
	}
	return res, err
}

func costOf(r solve.Report) report.FitCost {
	c := report.FitCost{Solves: len(r.Iterations), Products: r.Products}
	for _, n := range r.Iterations {
		c.Iterations += n
	}
	return c
}

// predictLaplace has the approximation at the estimate predict.
func predictLaplace(ctx context.Context, rec *report.Record, c *predict.Config) error {
	if len(c.Problem.Y) > laplace.MaxRows {
		s, err := laplace.NewSolves(c.Problem, c.Budget, rec.Spec.Seed)
		if err != nil {
			return err
		}
		c.Problem, err = s.Gaussian(ctx, rec.Fit.Psi)
		return err
	}
	l, err := laplace.New(c.Problem, c.Budget)
	if err != nil {
		return err
	}
	m, err := l.Mode(ctx, rec.Fit.Psi)
	if err != nil {
		return err
	}
	c.Problem = l.Gaussian(m)
	return nil
}

// fitExact fits the exact Gaussian process.
func fitExact(ctx context.Context, f *fitFlags, j *runJob, p *posterior.Problem, starts [][]float64, o fit.Options) (*report.Fit, *fit.Result, error) {
	out := &report.Fit{}
	if f.method == quasiNewton {
		res, err := fit.Exact(ctx, p, j.budget, j.spec.Seed, starts, o)
		return out, res, err
	}
	noisy := fit.NewSolves(p, j.budget, j.spec.Seed, "nystrom")
	x, trace, err := fit.Adagrad(ctx, p.Params, noisy, starts[0], f.iterations, o)
	if err != nil {
		return nil, nil, err
	}
	obj, err := fit.Evaluator(ctx, p, j.budget, j.spec.Seed, x)
	if err != nil {
		return nil, nil, err
	}
	res, err := fit.Finish(ctx, p.Params, obj, x)
	if err != nil {
		return nil, nil, err
	}
	res.Trace = trace
	out.Cost = costOf(noisy.Cost)
	return out, res, nil
}

// fitProgress tells how a fit is going: a line that is written over on a terminal, or else one now and then.
type fitProgress struct {
	app   *App
	quiet bool
	began time.Time
	total int // evaluations; 0 if nobody knows

	mu   sync.Mutex
	last time.Time
	line bool // one is there to be written over
}

func (p *fitProgress) at(s fit.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, every := p.app.Now(), lineEvery
	if p.app.TTY {
		every = showEvery
	}
	if p.quiet || now.Sub(p.last) < every || now.Sub(p.began) < every {
		return
	}
	p.last = now
	text := fmt.Sprintf("search %d, evaluation %d", s.Search, s.Evaluation)
	if p.total > 0 {
		full := s.Evaluation * barWidth / p.total
		text = fmt.Sprintf("%s%s iteration %d of %d", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), s.Evaluation, p.total)
	}
	if v := float64(s.Value); !math.IsNaN(v) {
		text += fmt.Sprintf(", log density %.2f", v)
	}
	text += fmt.Sprintf(", largest slope %.2g, %s", float64(s.Slope), now.Sub(p.began).Round(time.Second))
	if !p.app.TTY {
		fmt.Fprintln(p.app.Stderr, "fitting:", text)
		return
	}
	p.line = true
	fmt.Fprint(p.app.Stderr, "\r\x1b[Kfitting: ", text)
}

// end removes the line.
func (p *fitProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line {
		fmt.Fprint(p.app.Stderr, "\r\x1b[K")
	}
}

// noFit returns an error if a folder is that of a fit, and what is asked for is of draws.
func noFit(dir, what string) error {
	if !report.IsFit(dir) {
		return nil
	}
	return badInput(fmt.Errorf("%s holds a fit, a point estimate without draws: it has no %s; 'ulisse run' on its specification draws from the posterior", dir, what))
}

// fromFit changes what predicts from a record as the model of its fit, if it is of one, says.
func fromFit(ctx context.Context, rec *report.Record, c *predict.Config) error {
	if rec.Fit == nil {
		return nil
	}
	m := modelNamed(rec.Fit.Model)
	if m.fit == nil {
		return fmt.Errorf("the fit is of the model %q, which this version does not know: use that which made it, %s", rec.Fit.Model, rec.Fit.Version)
	}
	if m.predict == nil {
		return nil
	}
	return m.predict(ctx, rec, c)
}
