package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// more is what a run is to do beyond what it was asked for.
type more struct {
	draws     int
	rhat, ess float64
	maxTime   time.Duration
	certify   bool
}

func (a *App) extendCommand() *cobra.Command {
	var r remote
	var m more
	f := runFlags{}
	c := &cobra.Command{
		Use:   "extend JOB|FOLDER",
		Short: "Let a run, finished or not, go on: more draws, a larger ESS, more time",
		Long: `Let a job of a cluster, or the run in a folder on this machine, go on beyond what
it was asked for. The draws are those that it would have made, had it been asked for
them at the start.

With --draws N each chain makes at least N more draws; then the run goes on until it
has converged, as before. With --ess or --rhat it goes on until it has converged to
that. With --max-time T it may be at work for T more. A run that had ended may take
as much time again as its specification said, unless --max-time says otherwise.

Of a folder, stop: and sampler.draws in its spec.yaml are changed accordingly, and the
run goes on here at once, as with 'ulisse run --resume', which prints the summary and
has the same exit codes. Other fields cannot change: begin another run.`,
		Example: `  ulisse extend ./concrete --max-time 2h
  ulisse extend ./concrete --ess 2000
  ulisse extend concrete --draws 500
  ulisse extend concrete --certify`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := m.check(); err != nil {
			return err
		}
		return a.about(&r, func(ctx context.Context, s *subject) error {
			if s.dir != "" {
				return a.extendFolder(ctx, s.dir, &m, &f)
			}
			return a.extendJob(ctx, s, &m, f.json)
		})(c, args)
	}
	r.flags(c)
	fl := c.Flags()
	fl.IntVar(&m.draws, "draws", 0, "at least so many more draws of each chain (`number`)")
	fl.Float64Var(&m.ess, "ess", 0, "go on until every parameter has this effective sample `size`")
	fl.Float64Var(&m.rhat, "rhat", 0, "go on until no parameter's R-hat is above this `value`")
	fl.DurationVar(&m.maxTime, "max-time", 0, "so much more `time` at most: 90s, 30m, 2h")
	fl.BoolVar(&m.certify, "certify", false, "compare the draws with a short run of the exact sampler")
	fl.IntVar(&f.threads, "threads", 0, "of a folder: compute on this many cores (default: all)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "of a folder: print no progress")
	fl.BoolVar(&f.json, "json", false, "print the job, or of a folder the summary, as JSON")
	c.ValidArgsFunction = a.completeAbout(&r)
	return c
}

func (m *more) check() error {
	switch {
	case m.draws < 0 || m.draws > chains.MaxExtend:
		return badInput(fmt.Errorf("--draws %d: give a number between 1 and %d", m.draws, chains.MaxExtend))
	case m.ess < 0:
		return badInput(fmt.Errorf("--ess %g: give a positive number", m.ess))
	case m.rhat != 0 && !(m.rhat > 1):
		return badInput(fmt.Errorf("--rhat %g: R-hat is never below 1", m.rhat))
	case m.maxTime < 0:
		return badInput(fmt.Errorf("--max-time %s: give a positive time", m.maxTime))
	case *m == more{}:
		return badInput(errors.New("say what more it is to do: --draws, --ess, --rhat, --max-time or --certify"))
	}
	return nil
}

// goal reports whether more is asked for than draws and a certificate.
func (m *more) goal() bool { return m.ess > 0 || m.rhat > 0 || m.maxTime > 0 }

// standing is how far a run has come.
type standing struct {
	ended bool
	draws int           // from which more are counted
	spent time.Duration // at work
}

// change writes into a specification what a run is to do now.
func (m *more) change(spec *job.Spec, at standing) error {
	if at.ended && m.draws == 0 && at.draws >= spec.Stop.MaxDraws {
		return badInput(fmt.Errorf("each chain has made as many draws as stop.max_draws allows, %d: give --draws too", spec.Stop.MaxDraws))
	}
	st := &spec.Stop
	if m.draws > 0 {
		spec.Sampler.Draws = at.draws + m.draws
		st.MaxDraws = max(st.MaxDraws, spec.Sampler.Draws)
	}
	if m.ess > 0 {
		st.ESS = m.ess
	}
	if m.rhat > 0 {
		st.RHat = m.rhat
	}
	limit := time.Duration(st.MaxTime)
	switch {
	case m.maxTime > 0:
		limit = at.spent + m.maxTime
	case at.ended && limit > 0:
		limit += at.spent
	}
	st.MaxTime = job.Duration(limit.Round(time.Millisecond))
	if err := spec.Validate(); err != nil {
		return badInput(err)
	}
	return nil
}

// extendFolder lets the run in a folder go on, here.
func (a *App) extendFolder(ctx context.Context, dir string, m *more, f *runFlags) error {
	if err := noFit(dir, "chains to go on with"); err != nil {
		return err
	}
	if m.goal() || m.draws > 0 {
		if err := changeSpec(dir, m); err != nil {
			return err
		}
	}
	f.resume, f.certify = dir, m.certify
	return a.run(ctx, f, nil)
}

// changeSpec changes the specification in the folder of a run that nobody is at work on.
func changeSpec(dir string, m *more) error {
	if !report.IsFolder(dir) {
		_, err := report.ReadFolder(dir)
		return badInput(err)
	}
	path := filepath.Join(dir, "spec.yaml")
	spec, err := (&source{}).spec([]string{path})
	if err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, lockFile))
	if ok, err := lock.TryLock(); err != nil {
		return badInput(fmt.Errorf("there is no run to extend in %s: %w", dir, err))
	} else if !ok {
		return fmt.Errorf("another process is at work in %s: interrupt it first, its draws are kept", dir)
	}
	defer lock.Unlock()
	at := standing{draws: spec.Sampler.Draws}
	if rec, err := report.ReadFolder(dir); err == nil { // else it has no draws
		at.spent = time.Duration(rec.WallSeconds * float64(time.Second))
		if s := rec.Run.Stopped; s != nil {
			at = standing{true, s.Draws, at.spent}
		}
	}
	if err := m.change(spec, at); err != nil {
		return err
	}
	text, err := spec.YAML()
	if err != nil {
		return err
	}
	return writeBytes(path, text)
}

// extendJob lets a job go on.
func (a *App) extendJob(ctx context.Context, s *subject, m *more, asJSON bool) error {
	after, err := s.job, error(nil)
	if m.goal() {
		var text string
		if text, err = m.changed(s.job); err == nil {
			after, err = s.session.ExtendTo(ctx, s.job.Id, text)
		}
		if err == nil && m.certify {
			after, err = s.session.Extend(ctx, s.job.Id, 0, true)
		}
	} else {
		after, err = s.session.Extend(ctx, s.job.Id, m.draws, m.certify)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(client.NewJobView(after))
	}
	fmt.Fprintf(a.Stdout, "%s (%s) goes on\n", s.job.Name, s.job.Id)
	return nil
}

// changed returns a job's specification with what it is to do now.
func (m *more) changed(j *pb.Job) (string, error) {
	spec, err := job.ParseString(j.Spec)
	if err != nil {
		return "", err
	}
	p := j.GetProgress()
	if p.GetDraws() > 0 { // what it was extended to before
		spec.Sampler.Draws, spec.Stop.MaxDraws, spec.Stop.RHat, spec.Stop.ESS = int(p.Draws), int(p.MaxDraws), p.RhatWanted, p.EssWanted
	}
	at := standing{client.Ended(j.State), spec.Sampler.Draws, time.Duration(p.GetActiveSeconds() * float64(time.Second))}
	if at.ended {
		at.draws = client.MinDraws(p)
	}
	if err := m.change(spec, at); err != nil {
		return "", err
	}
	text, err := spec.YAML()
	return string(text), err
}
