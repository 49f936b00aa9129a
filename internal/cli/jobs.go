package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// reasonWidth is how much of what a job waits for, or failed of, stands in a list.
const reasonWidth = 80

func (a *App) jobsCommand() *cobra.Command {
	var r remote
	var of jobFilter
	var asJSON bool
	c := &cobra.Command{
		Use:     "jobs",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Long: `List jobs, newest first.

DRAWS are those that every chain has, of those asked for: 120/340. A job that has
as many and has not converged draws on: 480 (max 960) has 480, and ends at 960 at
the latest. REASON is what is wrong with a job, what a queued one waits for, or why one
failed; --json has all of it.`,
		Example: `  ulisse jobs
  ulisse jobs --state sampling,queued
  ulisse jobs --since 24h --state failed --name 'con*' --limit 20
  ulisse jobs --tag paper
  ulisse jobs --since 24h --json`,
		Args: cobra.NoArgs,
		RunE: a.on(&r, func(ctx context.Context, s *session, _ []string) error {
			req, err := of.request(a)
			if err != nil {
				return err
			}
			jobs, err := s.FirstJobs(ctx, req, of.limit)
			if err != nil {
				return err
			}
			if asJSON {
				views := []client.JobView{}
				for _, j := range jobs {
					views = append(views, client.NewJobView(j))
				}
				return a.printJSON(views)
			}
			var rows [][]string
			for _, j := range jobs {
				rows = append(rows, a.jobRow(j))
			}
			return a.table("ID NAME STATE HEALTH PRIORITY DRAWS R-HAT ESS ETA AGE TAGS REASON", rows)
		}),
	}
	r.flags(c)
	of.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// jobFilter says which jobs to list.
type jobFilter struct {
	states, tags []string
	name, since  string
	limit        int
}

func (of *jobFilter) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&of.states, "state", nil, "only jobs in these `states`")
	f.StringVar(&of.name, "name", "", "only jobs whose name contains this `text`, or matches it if it has one of * ? [")
	f.StringSliceVar(&of.tags, "tag", nil, "only jobs that have all of these `tags`")
	f.StringVar(&of.since, "since", "", "only jobs submitted since this `time`: 90m, 24h, 2026-01-31 or RFC 3339")
	f.IntVar(&of.limit, "limit", 0, "how many of the newest to list; 0 for all")
	c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(client.StateWords(), cobra.ShellCompDirectiveNoFileComp))
}

func (of *jobFilter) request(a *App) (*pb.ListJobsRequest, error) {
	if of.limit < 0 {
		return nil, badInput(fmt.Errorf("--limit %d: give a positive number, or 0 for all", of.limit))
	}
	req := &pb.ListJobsRequest{Name: of.name, Tags: of.tags}
	for _, w := range of.states {
		state, err := client.ParseState(w)
		if err != nil {
			return nil, badInput(fmt.Errorf("--state: %w", err))
		}
		req.States = append(req.States, state)
	}
	if of.since != "" {
		t, err := a.since(of.since)
		if err != nil {
			return nil, err
		}
		req.Since = timestamppb.New(t)
	}
	return req, nil
}

// jobRow is a job's row of the list.
func (a *App) jobRow(j *pb.Job) []string {
	p := j.GetProgress()
	left := ""
	if d, ok := client.ETA(j); ok {
		left = d.Round(time.Second).String()
	}
	reason := strings.Join(strings.Fields(cmp.Or(j.GetHealth().GetMessage(), j.Message)), " ")
	return []string{j.Id, j.Name, client.StateWord(j.State), client.HealthWord(j), strconv.Itoa(int(j.Priority)), client.DrawsText(j),
		number("%.3f", p.GetRhat()), number("%.0f", p.GetEss()), left, age(j.Submitted, a.Now()), strings.Join(j.Tags, ","), crop(reason, reasonWidth)}
}

// since reads a time, or a time span before now.
func (a *App) since(text string) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return a.Now().Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, badInput(fmt.Errorf("--since %q: give a time span like 24h, or a time like 2026-01-31 or 2026-01-31T12:00:00Z", text))
}

// action makes a command that does one thing to a job and says so.
func (a *App) action(use, short, done string, act func(ctx context.Context, s *session, id string) (*pb.Job, error)) *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{Use: use + " JOB", Short: short, Args: cobra.ExactArgs(1)}
	c.RunE = a.on(&r, func(ctx context.Context, s *session, args []string) error {
		j, err := a.find(ctx, s, args[0])
		if err != nil {
			return err
		}
		after, err := act(ctx, s, j.Id)
		if err != nil {
			return err
		}
		if after == nil {
			after = j
		}
		if asJSON {
			return a.printJSON(client.NewJobView(after))
		}
		fmt.Fprintf(a.Stdout, "%s (%s) %s\n", j.Name, j.Id, done)
		return nil
	})
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the job as JSON")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}

func (a *App) pauseCommand() *cobra.Command {
	return a.action("pause", "Stop a job's chains at their next checkpoint", "pauses at its next checkpoint",
		func(ctx context.Context, s *session, id string) (*pb.Job, error) { return s.Pause(ctx, id) })
}

func (a *App) resumeCommand() *cobra.Command {
	return a.action("resume", "Let a paused job go on", "goes on",
		func(ctx context.Context, s *session, id string) (*pb.Job, error) { return s.Resume(ctx, id) })
}

func (a *App) cancelCommand() *cobra.Command {
	return a.action("cancel", "End a job; its draws are kept", "is cancelled",
		func(ctx context.Context, s *session, id string) (*pb.Job, error) { return s.Cancel(ctx, id) })
}

func (a *App) deleteCommand() *cobra.Command {
	return a.action("delete", "Remove a job that has ended, with its draws", "is deleted",
		func(ctx context.Context, s *session, id string) (*pb.Job, error) { return nil, s.Delete(ctx, id) })
}

func (a *App) noteCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "note JOB [TEXT]",
		Short: "Write a note on a job, or print it",
		Long: `Write a note on a job, in place of the one that is there, or print the one that
is there. An empty text removes it. The dashboard shows it on the page of the job.`,
		Example: `  ulisse note concrete "priors as in the paper; compare with matern52"
  ulisse note concrete`,
		Args: cobra.RangeArgs(1, 2),
	}
	c.RunE = a.on(&r, func(ctx context.Context, s *session, args []string) error {
		j, err := a.find(ctx, s, args[0])
		if err == nil && len(args) == 2 {
			j, err = s.Annotate(ctx, j.Id, &args[1], nil, nil)
		}
		switch {
		case err != nil:
			return err
		case asJSON:
			return a.printJSON(client.NewJobView(j))
		case len(args) == 1 && j.Note != "":
			fmt.Fprintln(a.Stdout, j.Note)
		}
		return nil
	})
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the job as JSON")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}

func (a *App) tagCommand() *cobra.Command {
	var r remote
	var remove []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "tag JOB [TAG...]",
		Short: "Add tags to a job, remove some, or print them",
		Long: `Add tags to a job, or remove some, and print those that it has then. A tag is a
word of at most 40 letters and digits, with . _ : / + - between them; a job has
20 at most. 'ulisse jobs --tag' and the dashboard find jobs by them.`,
		Example: `  ulisse tag concrete paper figure-3
  ulisse tag concrete --remove figure-3
  ulisse jobs --tag paper`,
		Args: cobra.MinimumNArgs(1),
	}
	c.RunE = a.on(&r, func(ctx context.Context, s *session, args []string) error {
		j, err := a.find(ctx, s, args[0])
		if tags := args[1:]; err == nil && len(tags)+len(remove) > 0 {
			j, err = s.Annotate(ctx, j.Id, nil, tags, remove)
		}
		switch {
		case err != nil:
			return err
		case asJSON:
			return a.printJSON(client.NewJobView(j))
		}
		for _, tag := range j.Tags {
			fmt.Fprintln(a.Stdout, tag)
		}
		return nil
	})
	r.flags(c)
	f := c.Flags()
	f.StringSliceVar(&remove, "remove", nil, "remove these `tags`")
	f.BoolVar(&asJSON, "json", false, "print the job as JSON")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}
