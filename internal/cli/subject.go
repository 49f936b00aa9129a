package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/cv"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// subject is a run that a command tells of: a job of a cluster, or the run in a
// folder.
type subject struct {
	app     *App
	dir     string   // of a folder
	session *session // of a job
	job     *pb.Job
}

// about makes the body of a command on a JOB or FOLDER. The folder of a run goes before a job
// of its name; nothing is asked of a cluster then.
func (a *App) about(r *remote, f func(ctx context.Context, s *subject) error) func(*cobra.Command, []string) error {
	return a.aboutAll(r, func(ctx context.Context, s []*subject) error { return f(ctx, s[0]) })
}

// aboutAll makes the body of a command on several JOBs and FOLDERs.
func (a *App) aboutAll(r *remote, f func(ctx context.Context, s []*subject) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		all, jobs := make([]*subject, len(args)), []int{}
		for i, arg := range args {
			folder, err := isRun(arg)
			if err != nil {
				return err
			}
			if folder {
				all[i] = &subject{app: a, dir: arg}
			} else {
				jobs = append(jobs, i)
			}
		}
		if len(jobs) == 0 {
			return f(c.Context(), all)
		}
		return noFolder(args[jobs[0]], a.on(r, func(ctx context.Context, s *session, args []string) error {
			for _, i := range jobs {
				j, err := a.find(ctx, s, args[i])
				if err != nil {
					return err
				}
				all[i] = &subject{app: a, session: s, job: j}
			}
			return f(ctx, all)
		})(c, args))
	}
}

// noFolder says, where no cluster answers, that an argument is no folder either.
func noFolder(arg string, err error) error {
	if !client.Unavailable(err) {
		return err
	}
	return fmt.Errorf("there is no folder %s here, and no job could be asked for: %w", arg, err)
}

// isRun reports whether an argument is the folder of a run, or can be nothing else. That of a
// cross-validation or of several targets, which has several, is an error.
func isRun(arg string) (bool, error) {
	if cv.IsFolder(arg) {
		return false, badInput(fmt.Errorf("%s is the folder of a cross-validation: give that of one of its runs, %s, or compare it with others by 'ulisse compare'", arg, cv.FoldDir(arg, 1)))
	}
	if isTargets(arg) {
		dirs, err := targetsIn(arg)
		if err == nil {
			err = fmt.Errorf("%s is the folder of several targets: give that of one, of %s", arg, strings.Join(dirs, ", "))
		}
		return false, badInput(err)
	}
	return isPath(arg) || report.IsFolder(arg), nil
}

// isPath reports whether an argument can be no job's name.
func isPath(arg string) bool {
	return strings.ContainsAny(arg, "/"+string(os.PathSeparator)) || arg == "." || arg == ".."
}

// completeAbout completes jobs, and folders.
func (a *App) completeAbout(r *remote) cobra.CompletionFunc {
	jobs := a.completeJobs(r)
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if isPath(word) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return jobs(c, args, word)
	}
}

// record returns all that is known of the run.
func (s *subject) record(ctx context.Context) (*report.Record, error) {
	if s.dir == "" {
		return s.app.record(ctx, s.session, s.job)
	}
	rec, err := report.ReadFolder(s.dir)
	return rec, badInput(err)
}

// stats returns what the log tells of the iterations, nil if it tells nothing,
// and the workers that it names.
func (s *subject) stats(ctx context.Context, rec *report.Record) (*report.Stats, error) {
	if s.dir != "" {
		return report.ReadStats(s.dir, rec.Run)
	}
	st := report.NewStats(rec.Run)
	err := s.session.Logs(ctx, &pb.LogsRequest{Id: s.job.Id}, func(l *pb.LogLine) error {
		st.Add(rec.Run, []byte(l.Text))
		rec.Origin.Saw(l.Worker)
		return nil
	})
	if err != nil && ctx.Err() == nil { // logs are not replicated; results are
		s.app.note("the log did not come (%v): without statistics of the iterations", err)
		return nil, nil
	}
	if !st.Known() {
		return nil, err
	}
	return st, err
}

// data returns the data of the run, or nil, with a word to the user, if they are
// not at hand, or not those that it was of.
func (s *subject) data(ctx context.Context, rec *report.Record) (*dataset.Dataset, error) {
	d, err := s.load(ctx, rec, "")
	if err != nil && ctx.Err() == nil {
		s.app.note("%v: the data are left out", err)
		return nil, nil
	}
	return d, err
}

// load returns the data of the run, which are read from the table at a path, if that is given, or from
// where the run had them.
func (s *subject) load(ctx context.Context, rec *report.Record, path string) (*dataset.Dataset, error) {
	spec := *rec.Spec
	switch {
	case path != "":
		if spec.Data.Synthetic != nil {
			return nil, badInput(errors.New("--train: the specification generates its data"))
		}
		spec.Data.Path = path
	case s.job.GetData().GetBlob() != "":
		tmp, err := os.CreateTemp("", "ulisse-*")
		if err != nil {
			return nil, err
		}
		defer os.Remove(tmp.Name())
		_, err = s.session.Download(ctx, s.job.Data.Blob, tmp)
		if cerr := tmp.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
		spec.Data.Path = tmp.Name()
	}
	d, err := spec.Load(ctx, nil, parallel.NewBudget(0))
	if err == nil && d.SHA256 != rec.Data.SHA256 {
		err = fmt.Errorf("%s does not hold the data that the run was of", spec.Data.Path)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return d, badInput(err)
}

// predictor returns what predicts here from the run, whose training table is read from the path train if that
// is given: from as many of its draws as draws says for n rows, or if that is 0 as many as are independent. chains
// is how many it has.
func (s *subject) predictor(ctx context.Context, train string, threads int, draws func(n int) int) (p *predict.Predictor, d *dataset.Dataset, chains int, err error) {
	rec, err := s.record(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	if d, err = s.load(ctx, rec, train); err != nil {
		return nil, nil, 0, err
	}
	problem, err := rec.Spec.Problem(d)
	if err != nil {
		return nil, nil, 0, err
	}
	points, provisional, err := report.Points(rec.Run)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("there are no draws yet: %w", err)
	}
	if draws := rec.Run.MinDraws(); rec.Run.Stopped == nil || draws == 0 {
		s.app.note("%s has not ended with draws: %s", s.name(), predictedSoFar(draws, provisional))
	}
	c := predict.FromSpec(rec.Spec, problem, predict.Thin(points, draws(d.N())), (&source{threads: threads}).budget())
	if err := fromFit(ctx, rec, &c); err != nil {
		return nil, nil, 0, err
	}
	p, err = predict.New(c)
	return p, d, len(points), badInput(err)
}

// note tells the user something that is no failure.
func (a *App) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "ulisse: "+format+"\n", args...)
}
