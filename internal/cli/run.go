package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/server"
	"github.com/ulisse-gp/ulisse/internal/version"
	"github.com/ulisse-gp/ulisse/internal/worker"
)

type runFlags struct {
	source
	hooks   hookFlags
	out     string
	resume  string
	certify bool
	json    bool
	quiet   bool
	again   string // the command that continues the run, if it is not ulisse run --resume
}

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [SPEC]",
		Short: "Sample a posterior on this machine",
		Long: `Sample a posterior on this machine and write draws, a summary and plots into a
folder (by default ./NAME-DATE).

With --resume a run continues after an interruption. stop: and sampler.draws in the
folder's spec.yaml may be changed before; 'ulisse extend FOLDER' does that, too.

Of a specification whose data.target is a list each target gets a posterior of its own, one
after the other, in a folder of its own within the folder; --resume takes either.

Exit code: 0 converged; 3 ended without converging; 2 bad input; 1 failure;
130 interrupted (go on with --resume FOLDER).`,
		Example: `  ulisse run --demo
  ulisse run concrete.yaml --out concrete
  gzip -dc table.csv.gz | ulisse run spec.yaml --data -
  ulisse run --resume concrete`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.run(c.Context(), &f, args) },
	}
	f.flags(c)
	f.hooks.flags(c)
	c.Flags().StringVarP(&f.out, "out", "o", "", "write results into this `folder`")
	c.Flags().StringVar(&f.resume, "resume", "", "go on with the run in this `folder`")
	c.Flags().BoolVar(&f.certify, "certify", false, "hold the draws against a short run of the exact sampler")
	c.Flags().BoolVar(&f.json, "json", false, "print the summary as JSON")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	return c
}

func (a *App) run(ctx context.Context, f *runFlags, args []string) error {
	if f.resume != "" && isTargets(f.resume) {
		return a.resumeEach(ctx, f, f.resume)
	}
	if err := noFit(f.resume, "chains to go on with"); err != nil {
		return err
	}
	specs, err := f.begun(args)
	if err != nil {
		return err
	}
	if len(specs) > 1 {
		return a.runEach(ctx, f, specs)
	}
	rec, dir, err := a.runOne(ctx, f, specs[0].Spec)
	if err != nil {
		return err
	}
	return a.conclude(rec, dir, f.json)
}

// runOne runs a specification, or goes on with what is in the folder to resume, and returns the record and the folder.
func (a *App) runOne(ctx context.Context, f *runFlags, spec *job.Spec) (*report.Record, string, error) {
	if err := spec.Samplable(); err != nil {
		return nil, "", badInput(err)
	}
	budget := f.budget()
	told, err := f.hooks.hooks()
	if err != nil {
		return nil, "", err
	}
	j, err := a.jobOf(ctx, f, spec, budget)
	if err != nil {
		return nil, "", err
	}
	if err := allowed(told, j.spec); err != nil {
		return nil, "", err
	}
	j.hooks = told
	fold, err := j.folder(f)
	if err != nil {
		return nil, "", err
	}
	defer fold.close()
	a.hasEnded(j, f)
	if !f.quiet && f.resume == "" {
		a.hints(j.spec, j.data)
	}
	rec, err := a.complete(ctx, f, j, fold)
	return rec, fold.dir, err
}

// complete runs a job to its end.
func (a *App) complete(ctx context.Context, f *runFlags, j *runJob, fold *folder) (rec *report.Record, err error) {
	if j.cache, err = driver.PlanCache(ctx, j.spec, j.problem, j.budget); err != nil {
		return nil, err
	}
	r, wall, err := a.sample(ctx, f, j, fold)
	if err != nil {
		return nil, err
	}
	if r.Prepared == nil {
		return nil, &exit{ExitUnconverged, fmt.Errorf("max_time ended the run before it found the mode: 'ulisse extend %s --max-time T' gives it more time", fold.dir)}
	}
	return j.record(a, r, wall)
}

// hasEnded says how a run continues that is to be resumed and has come to its end.
func (a *App) hasEnded(j *runJob, f *runFlags) {
	if f.resume == "" || f.certify {
		return
	}
	text, err := j.spec.YAML()
	rec, rerr := report.ReadFolder(f.resume)
	if err == nil && rerr == nil && rec.Run.Stopped != nil && rec.SpecText == string(text) {
		a.note("the run in %s has come to its end; 'ulisse extend %s' with --draws, --ess or --max-time continues it", f.resume, f.resume)
	}
}

// record returns the record of a run that is over.
func (j *runJob) record(a *App, r *chains.Run, wall time.Duration) (*report.Record, error) {
	text, err := j.spec.YAML()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // provenance for people: none will do
	rec := &report.Record{SpecText: string(text), Data: j.data.Info, Run: r, WallSeconds: wall.Seconds(), InstructionSet: instructionSet(), Cache: j.cache,
		Origin: report.Origin{Version: version.Version, Host: host, Threads: j.budget.Cores(), Ended: a.Now().UTC()}}
	return rec, rec.Open()
}

// conclude writes the results into a folder, if one is given, prints the
// summary and returns the exit of the run.
func (a *App) conclude(rec *report.Record, dir string, asJSON bool) error {
	sum := rec.Summary()
	if dir != "" {
		if err := writeResults(rec, dir, sum); err != nil {
			return err
		}
	}
	if asJSON {
		if err := a.printJSON(sum); err != nil {
			return err
		}
	} else {
		if err := sum.WriteText(a.Stdout); err != nil {
			return err
		}
		if dir != "" {
			fmt.Fprintf(a.Stdout, "\nresults in %s\n", dir)
		}
	}
	if !sum.Converged {
		return &exit{code: ExitUnconverged}
	}
	return nil
}

// writeResults writes the results into a folder.
func writeResults(rec *report.Record, dir string, sum *report.Summary) error {
	if err := report.WriteAll(dir, rec, sum); err != nil {
		return err
	}
	if sum.Provisional == nil {
		report.RemoveProvisional(dir)
		return nil
	}
	return sum.Provisional.Write(dir)
}

// sample runs the job on a cluster of this process.
func (a *App) sample(ctx context.Context, f *runFlags, j *runJob, fold *folder) (*chains.Run, time.Duration, error) {
	progress, err := a.newProgress(f.quiet, j.plan, fold.path("log.jsonl"))
	if err != nil {
		return nil, 0, err
	}
	defer progress.Close()
	progress.Started(j.data, j.spec)
	progress.Cache(j.cache)
	early := &early{app: a, job: j, dir: fold.dir}
	r, wall, err := server.Embedded{Dir: fold.path("state"), Budget: j.budget, Hooks: j.hooks, Certify: f.certify && f.resume != "",
		Untold: func(err error) { progress.Say("hooks", err.Error()+": ulisse run --resume tries again") },
		Job:    worker.Preloaded{Spec: j.spec, Data: j.data, Problem: j.problem, Plan: &j.plan, Driver: j.driver(j.spec, &j.plan, progress)},
		Watch: func(v local.View) {
			progress.Watch(v)
			early.watch(v, progress)
		}}.Run(ctx)
	progress.Finished()
	if err != nil && r != nil && r.Prepared != nil && r.Stopped == nil {
		state := "interrupted"
		if !local.ErrInterrupted(err) {
			state = "failed: " + err.Error()
		}
		if err := early.record(r, wall, state); err != nil {
			a.note("the results so far were not written: %v", err)
		}
	}
	return r, wall, a.interrupted(ctx, fold, err)
}

// driver returns a driver of the job's data.
func (j *runJob) driver(spec *job.Spec, plan *chains.Plan, p *progress) *driver.Driver {
	return driver.New(driver.Config{Spec: spec, Problem: j.problem, Plan: plan, Budget: j.budget, Observe: p.Observe,
		Operator: func(int) driver.Operator { return j.operator() }})
}

// interrupted says how to go on after an error.
func (a *App) interrupted(ctx context.Context, fold *folder, err error) error {
	again := cmp.Or(fold.again, "ulisse run --resume "+fold.dir)
	switch {
	case err == nil:
		return nil
	case local.ErrInterrupted(err) && ctx.Err() != nil:
		fmt.Fprintf(a.Stderr, "interrupted; go on with: %s\n", again)
		return &exit{code: ExitInterrupted}
	}
	if strings.Contains(err.Error(), " diverged ") { // from the same state it would again
		return fmt.Errorf("%w; what was done is kept in %s, but would diverge there again: begin another run with that changed", err, fold.dir)
	}
	return fmt.Errorf("%w; what was done is kept: go on with %s", err, again)
}

// runJob is a specification with its data.
type runJob struct {
	spec    *job.Spec
	data    *dataset.Dataset
	problem *posterior.Problem
	plan    chains.Plan
	budget  *parallel.Budget
	cache   *cmvp.CachePlan // nil for none
	piped   []byte          // the table, if it came through standard input
	hooks   *hooks.Hooks    // nil for none
}

// begun returns the specification, several if it names several targets, or that of the run to resume.
func (f *runFlags) begun(args []string) ([]job.Part, error) {
	if f.resume == "" {
		return f.specs(args)
	}
	if err := f.resumable(args); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(f.resume, hashFile)); err != nil {
		return nil, badInput(fmt.Errorf("there is no run to resume in %s, or it was cut short before it had begun: start it again (%w)", f.resume, err))
	}
	return (&source{}).specs([]string{filepath.Join(f.resume, "spec.yaml")})
}

// resumable refuses what says what a run is where it is to go on.
func (f *runFlags) resumable(args []string) error {
	if len(args) > 0 || f.demo || f.data != "" || f.target != "" || f.hasSeed || f.holdout != 0 || f.out != "" {
		return badInput(errors.New("--resume goes on with what is in its folder: give no specification, --demo, --data, --target, --seed, --holdout or --out with it"))
	}
	return nil
}

// jobOf makes a job of a specification.
func (a *App) jobOf(ctx context.Context, f *runFlags, spec *job.Spec, budget *parallel.Budget) (*runJob, error) {
	j := &runJob{spec: spec, budget: budget}
	var err error
	if f.certify { // what is resumed stays as it was, and is asked for more
		certified := *j.spec
		certified.Sampler.Certify = true
		if err := certified.Validate(); err != nil {
			return nil, badInput(err)
		}
		if f.resume == "" {
			j.spec = &certified
		}
	}
	if j.spec.Data.Path == dataset.Stdin {
		if j.piped, err = io.ReadAll(io.LimitReader(a.Stdin, dataset.DefaultLimits.Bytes+1)); err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		a = &App{Stdin: bytes.NewReader(j.piped)}
	}
	if j.data, j.problem, err = a.load(ctx, j.spec, budget); err != nil {
		return nil, err
	}
	j.plan = j.spec.PlanOf(j.problem.Params.NamesBy(j.data.InputNames), j.data.N(), j.problem.Functions())
	return j, nil
}

// operator returns K over all rows, computed here.
func (j *runJob) operator() *cmvp.Operator {
	op := cmvp.New(j.problem.Inputs, j.problem.Covariance, j.budget)
	if j.cache != nil {
		j.cache.Apply(op)
	}
	return op
}

// The files of a run that resuming needs.
const (
	hashFile  = "state/data.sha256"
	pipedFile = "state/data"
	lockFile  = "state/lock"
)

// folder is the folder of a run, held by a lock.
type folder struct {
	dir   string
	again string // the command that continues the run, if it is not ulisse run --resume
	lock  *flock.Flock
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *folder) close() { f.lock.Unlock() }

// folder creates the folder of a run, which must be new or empty, or takes up
// that of a run to resume, whose data must be the same.
func (j *runJob) folder(f *runFlags) (*folder, error) {
	dir := cmp.Or(f.resume, f.out)
	if dir == "" {
		dir = dated(j.spec.Name)
	}
	fold := &folder{dir: dir, again: f.again}
	if f.resume == "" {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 && !fold.unbegun(entries) {
			return nil, badInput(fmt.Errorf("the folder %s is not empty: choose another with --out, or go on with the run in it with --resume %s", dir, dir))
		}
		if err := os.MkdirAll(fold.path("state"), 0o755); err != nil {
			return nil, err
		}
	}
	err := fold.hold(lockFile)
	if err != nil {
		return nil, err
	}
	if f.resume != "" {
		err = j.check(fold)
	} else {
		err = j.create(fold)
	}
	if err != nil {
		fold.close()
		return nil, err
	}
	return fold, nil
}

// dated is the name of a folder where none is given.
func dated(name string) string {
	return fmt.Sprintf("%s-%s", name, time.Now().Format("20060102-150405"))
}

// hold takes the lock of the folder, which is the named file.
func (fold *folder) hold(file string) error {
	fold.lock = flock.New(fold.path(file))
	if ok, err := fold.lock.TryLock(); err != nil {
		return fmt.Errorf("locking %s: %w", fold.dir, err)
	} else if !ok {
		return fmt.Errorf("another process is at work in %s", fold.dir)
	}
	return nil
}

// unbegun reports whether these are all that a folder holds, and left by a run that was cut
// short before it had begun.
func (fold *folder) unbegun(entries []fs.DirEntry) bool {
	_, locked := os.Stat(fold.path(lockFile))
	_, begun := os.Stat(fold.path(hashFile))
	return locked == nil && errors.Is(begun, fs.ErrNotExist) && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != "state" && e.Name() != "spec.yaml" && !strings.HasPrefix(e.Name(), ".spec.yaml.")
	})
}

// check refuses to resume a run on other data.
func (j *runJob) check(fold *folder) error {
	want, err := os.ReadFile(fold.path(hashFile))
	if err != nil {
		return badInput(fmt.Errorf("there is no run to resume in %s: %w", fold.dir, err))
	}
	if strings.TrimSpace(string(want)) != j.data.SHA256 {
		return badInput(fmt.Errorf("the data at %s are not those that the run in %s began with", j.spec.Data.Path, fold.dir))
	}
	return nil
}

// create writes what resuming needs.
func (j *runJob) create(fold *folder) error {
	if j.piped != nil {
		path, err := filepath.Abs(fold.path(pipedFile))
		if err != nil {
			return err
		}
		j.spec.Data.Path = path
		if err := writeBytes(path, j.piped); err != nil {
			return err
		}
		j.piped = nil
	}
	text, err := j.spec.YAML()
	if err != nil {
		return err
	}
	if err := writeBytes(fold.path("spec.yaml"), text); err != nil {
		return err
	}
	return writeBytes(fold.path(hashFile), []byte(j.data.SHA256+"\n"))
}

func writeBytes(path string, b []byte) error {
	return atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
