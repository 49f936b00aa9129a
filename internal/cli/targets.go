package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// targetsFile says, in the folder of the runs of several targets, which folders in it these are, in order.
const targetsFile = "targets.json"

// isTargets reports whether a folder is that of the runs of several targets.
func isTargets(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, targetsFile))
	return err == nil && info.Mode().IsRegular()
}

// targetsIn returns the folders of the runs of several targets.
func targetsIn(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, targetsFile))
	if err != nil {
		return nil, err
	}
	var names, dirs []string
	if err := json.Unmarshal(text, &names); err != nil {
		return nil, fmt.Errorf("%s in %s is not what ulisse wrote: %w", targetsFile, dir, err)
	}
	for _, name := range names {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s in %s names %q, which is not in it", targetsFile, dir, name)
		}
		dirs = append(dirs, filepath.Join(dir, name))
	}
	return dirs, nil
}

// writeTargets writes which folders in one are the runs of several targets.
func writeTargets(dir string, names []string) error {
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return writeBytes(filepath.Join(dir, targetsFile), append(text, '\n'))
}

// eachName returns the name of a document, of one of the specifications that its targets make.
func eachName(p job.Part) string { return strings.TrimSuffix(p.Spec.Name, "-"+p.Name) }

// runEach checks the specifications of several targets with their data, begins a folder for each within one, and runs them.
func (a *App) runEach(ctx context.Context, f *runFlags, parts []job.Part) error {
	dir := f.out
	if dir == "" {
		dir = dated(eachName(parts[0]))
	}
	told, err := f.hooks.hooks()
	if err != nil {
		return err
	}
	again, err := a.rereading(parts[0].Spec.Data.Path)
	if err != nil {
		return err
	}
	var jobs []*runJob
	for _, p := range parts {
		j, err := again().jobOf(ctx, f, p.Spec, f.budget())
		if err != nil {
			return ofTarget(p, err)
		}
		if err := allowed(told, j.spec); err != nil {
			return err
		}
		if !f.quiet {
			a.note("target %s: %d rows, %s", p.Spec.Data.Target, j.data.N(), plural.Of(j.data.D(), "input"))
			a.hints(j.spec, j.data)
		}
		jobs = append(jobs, &runJob{spec: j.spec, piped: j.piped, data: &dataset.Dataset{Info: j.data.Info}}) // one table at a time is in memory
	}
	if err := newFolder(dir); err != nil {
		return err
	}
	var names []string
	for i, p := range parts {
		fold, err := jobs[i].folder(&runFlags{out: filepath.Join(dir, p.Name)})
		if err != nil {
			return err
		}
		fold.close()
		names = append(names, p.Name)
	}
	if err := writeTargets(dir, names); err != nil {
		return err
	}
	return a.resumeEach(ctx, &runFlags{source: source{threads: f.threads}, hooks: f.hooks, json: f.json, quiet: f.quiet}, dir)
}

// rereading returns a function that returns the App with standard input from its beginning, if the data come from there.
func (a *App) rereading(path string) (func() *App, error) {
	if path != dataset.Stdin {
		return func() *App { return a }, nil
	}
	piped, err := io.ReadAll(io.LimitReader(a.Stdin, dataset.DefaultLimits.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	return func() *App {
		from := *a
		from.Stdin = bytes.NewReader(piped)
		return &from
	}, nil
}

// resumeEach runs what has been begun in the folder of several targets, or goes on with it, one after the other. A
// target that fails does not keep the others from running.
func (a *App) resumeEach(ctx context.Context, f *runFlags, dir string) error {
	dirs, err := targetsIn(dir)
	if err != nil {
		return badInput(err)
	}
	each := tally{app: a, json: f.json}
	for _, d := range dirs {
		one := *f
		one.resume, one.again = d, "ulisse run --resume "+dir
		if !f.quiet {
			a.note("%s", d)
		}
		err := a.resumeIn(ctx, &one, &each)
		if code(err) == ExitInterrupted {
			return err
		}
		each.count(filepath.Base(d), err)
	}
	return each.end()
}

func (a *App) resumeIn(ctx context.Context, f *runFlags, each *tally) error {
	specs, err := f.begun(nil)
	if err != nil {
		return err
	}
	rec, dir, err := a.runOne(ctx, f, specs[0].Spec)
	if err != nil {
		return err
	}
	return each.conclude(rec, dir)
}

// finishEach follows the jobs of several targets to their ends, one after the other, and gets their results.
func (a *App) finishEach(ctx context.Context, s *session, f *submitFlags, parts []job.Part, jobs []*pb.Job) error {
	each := tally{app: a, json: f.json}
	var names []string
	for i, j := range jobs {
		dir := ""
		if f.out != "" {
			dir = filepath.Join(f.out, parts[i].Name)
			if err := newFolder(dir); err != nil {
				return err
			}
		}
		err := a.finish(ctx, s, f, j, dir, func(rec *report.Record) error { return each.conclude(rec, dir) })
		if code(err) == ExitInterrupted {
			if i+1 < len(jobs) {
				a.note("so do the jobs of the other targets: see 'ulisse jobs'")
			}
			return err
		}
		if code(err) != ExitFailure {
			names = append(names, parts[i].Name)
		}
		each.count(j.Name, err)
	}
	if f.out != "" && len(names) > 0 {
		if err := writeTargets(f.out, names); err != nil {
			return err
		}
	}
	return each.end()
}

// tally is what the runs of several targets come to.
type tally struct {
	app         *App
	json        bool
	sums        []*report.Summary // for JSON
	told        int               // summaries that were printed
	unconverged bool              // one of them
	failed      []string          // what went wrong
	code        int               // of the first that failed
}

// conclude writes the results of one into a folder, if one is given, and prints its summary, or keeps it for JSON.
func (t *tally) conclude(rec *report.Record, dir string) error {
	if !t.json {
		if t.told++; t.told > 1 {
			fmt.Fprintln(t.app.Stdout)
		}
		fmt.Fprintf(t.app.Stdout, "target %s\n\n", rec.Data.Target)
		return t.app.conclude(rec, dir, false)
	}
	sum := rec.Summary()
	t.sums = append(t.sums, sum)
	if dir != "" {
		if err := writeResults(rec, dir, sum); err != nil {
			return err
		}
	}
	if !sum.Converged {
		return &exit{code: ExitUnconverged}
	}
	return nil
}

// count takes the end of one.
func (t *tally) count(name string, err error) {
	switch c := code(err); {
	case c == ExitConverged:
	case c == ExitUnconverged && err.Error() == "":
		t.unconverged = true
	default:
		t.code = cmp.Or(t.code, c)
		t.failed = append(t.failed, fmt.Sprintf("%s: %v", name, err))
	}
}

// end prints the summaries as JSON if that was asked for, and returns what all came to: that some failed goes before
// that some did not converge.
func (t *tally) end() error {
	if t.json {
		if err := t.app.printJSON(slices.Concat([]*report.Summary{}, t.sums)); err != nil {
			return err
		}
	}
	switch {
	case len(t.failed) > 0:
		return &exit{t.code, errors.New(strings.Join(t.failed, "; "))}
	case t.unconverged:
		return &exit{code: ExitUnconverged}
	}
	return nil
}
