package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func (a *App) watchCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "watch JOB",
		Short: "Follow a job to its end",
		Long: `Follow a job to its end: on a terminal in a live view, else in lines.

A JOB is an id, the beginning of one, or a name: the newest job of that name.
Exit code: 0 converged; 3 ended without converging; 1 failed or cancelled; 130
interrupted: the job goes on.`,
		Args: cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			j, err := a.find(ctx, s, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(a.Stdout)
				j, err = s.Watch(ctx, j.Id, func(j *pb.Job) { enc.Encode(client.NewJobView(j)) })
			} else {
				j, err = a.follow(ctx, s, j, a.Stdout, a.OutTTY)
			}
			if err != nil {
				return err
			}
			return verdict(j)
		}),
	}
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object at every change")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}

// verdict is the exit that the end of a job stands for.
func verdict(j *pb.Job) error {
	switch j.State {
	case pb.JobState_JOB_STATE_CONVERGED:
		return nil
	case pb.JobState_JOB_STATE_UNCONVERGED:
		return &exit{code: ExitUnconverged}
	case pb.JobState_JOB_STATE_CANCELLED:
		return &exit{ExitFailure, fmt.Errorf("job %s was cancelled: see 'ulisse results %s' for the draws it made", j.Id, j.Id)}
	}
	if j.Message == "" {
		return &exit{ExitFailure, fmt.Errorf("job %s failed: see 'ulisse logs %s'", j.Id, j.Id)}
	}
	return &exit{ExitFailure, fmt.Errorf("job %s failed: %s", j.Id, j.Message)}
}

// follow shows a job until it has ended and returns it as it last was, with
// the error that kept it from the end.
func (a *App) follow(ctx context.Context, s *session, j *pb.Job, out io.Writer, tty bool) (*pb.Job, error) {
	begin := a.lines
	if tty {
		begin = func(out io.Writer) (func(*pb.Job), func()) { return a.live(ctx, s, out) }
	}
	show, end := begin(out)
	defer end()
	last, err := s.Watch(ctx, j.Id, show)
	if last == nil {
		last = j
	}
	return last, err
}

func span(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// live returns a function that draws a job on a terminal, and one that ends
// that. The workers are asked for on the way.
func (a *App) live(ctx context.Context, s *session, out io.Writer) (show func(*pb.Job), end func()) {
	v := &liveView{screen: screen{w: out}}
	ctx, cancel := context.WithCancel(ctx)
	back := s.divert(func(msg string) {
		v.update(func() { v.trouble = msg })
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			workers, err := s.Workers(ctx)
			if err == nil {
				v.update(func() { v.workers.see(workers) })
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(workersEvery):
			}
		}
	})
	show = func(j *pb.Job) { v.update(func() { v.job, v.trouble = j, "" }) }
	return show, func() {
		cancel()
		wg.Wait()
		back()
	}
}

// workersEvery is the time between two looks at the workers.
const workersEvery = 2 * time.Second

// liveView is what a terminal shows of a job.
type liveView struct {
	mu      sync.Mutex
	screen  screen
	job     *pb.Job
	workers shares
	trouble string
}

func (v *liveView) update(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	if v.job == nil {
		return
	}
	lines := jobLines(v.job, &v.workers)
	if v.trouble != "" {
		lines = append(lines, v.trouble)
	}
	v.screen.draw(lines)
}

// fetch gets the results of a job that has ended, writes what only the cluster has into a folder if
// one is given, has the others concluded, and returns the exit of the run.
func (a *App) fetch(ctx context.Context, s *session, j *pb.Job, dir string, conclude func(*report.Record) error) error {
	rec, err := a.record(ctx, s, j)
	if client.Unavailable(err) {
		return fmt.Errorf("job %s is %s, but its results did not come: %w; fetch them with 'ulisse results %s'", j.Id, client.StateWord(j.State), err, j.Id)
	}
	if err != nil {
		return err
	}
	if dir != "" {
		if err := a.keep(ctx, s, j, dir, rec); err != nil {
			return err
		}
	}
	err = conclude(rec)
	var e *exit
	if errors.As(err, &e) && e.err == nil && j.State == pb.JobState_JOB_STATE_CONVERGED {
		return fmt.Errorf("job %s is called converged, but its results are not: they are of another version", j.Id)
	}
	return err
}
