package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

type submitFlags struct {
	source
	remote
	byReference bool
	priority    int32
	clientID    string
	wait        bool
	out         string
	json        bool
	quiet       bool
}

func (a *App) submitCommand() *cobra.Command {
	var f submitFlags
	c := &cobra.Command{
		Use:   "submit [SPEC]",
		Short: "Sample a posterior on a cluster",
		Long: `Check a specification and its data here, bring the data to the cluster if it
does not have them, and submit the job. Its id is printed.

With --wait it is followed to its end, and the exit code is that of 'ulisse
run': 0 converged; 3 ended without converging; 2 bad input; 1 failed or
cancelled; 130 interrupted: the job goes on. With --out the results are then
written into a folder, as 'ulisse run' would.

Of a specification whose data.target is a list the table is brought once, and each target
gets a job of its own, called NAME-TARGET; results are then in a folder for each in that
of --out.

Repeating a submission with the same --client-id returns the job that the first
one made.`,
		Example: `  ulisse submit concrete.yaml
  ulisse submit concrete.yaml --wait --out concrete
  ulisse submit big.yaml --data s3://tables/big.parquet --by-reference`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			parts, err := f.specs(args)
			if err != nil {
				return err
			}
			if err := f.check(parts[0].Spec); err != nil {
				return err
			}
			return a.on(&f.remote, func(ctx context.Context, s *session, _ []string) error { return a.submit(ctx, s, &f, parts) })(c, args)
		},
	}
	f.specFlags(c)
	f.remote.flags(c)
	fl := c.Flags()
	fl.BoolVar(&f.byReference, "by-reference", false, "the data's path or URL is one that every worker can read: do not upload them")
	fl.Int32Var(&f.priority, "priority", 0, "`number`; jobs of higher priority go first")
	fl.StringVar(&f.clientID, "client-id", "", "submit only if there is no job of this `id` of your choice yet")
	fl.BoolVarP(&f.wait, "wait", "w", false, "follow the job to its end")
	fl.StringVarP(&f.out, "out", "o", "", "write the results into this `folder` (with --wait)")
	fl.BoolVar(&f.json, "json", false, "print the job, or with --wait the summary, as JSON")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	return c
}

// check refuses what would fail later.
func (f *submitFlags) check(spec *job.Spec) error {
	if err := spec.Samplable(); err != nil {
		return badInput(err)
	}
	path := spec.Data.Path
	f.byReference = f.byReference || isURL(path)
	switch {
	case f.out != "" && !f.wait:
		return badInput(errors.New("--out: results are written once the job has ended: give --wait too, or use 'ulisse results' then"))
	case f.byReference && path == "":
		return badInput(errors.New("--by-reference: the specification generates its data"))
	case f.byReference && path == dataset.Stdin:
		return badInput(errors.New("--by-reference: workers cannot read this program's standard input"))
	}
	return newFolder(f.out)
}

// newFolder creates a folder for results, which must be new or empty. No name
// means none.
func newFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return badInput(fmt.Errorf("the folder %s is not empty: choose another with --out", dir))
	}
	return os.MkdirAll(dir, 0o755)
}

// submit submits a job of each specification, and with --wait follows them to their ends.
func (a *App) submit(ctx context.Context, s *session, f *submitFlags, parts []job.Part) error {
	jobs, err := a.enqueue(ctx, s, f, parts)
	for _, j := range jobs { // also if one was refused after them
		switch {
		case f.wait && !f.quiet:
			fmt.Fprintf(a.Stderr, "submitted %s as %s\n", j.Name, j.Id)
		case !f.wait && !f.json:
			fmt.Fprintln(a.Stdout, j.Id)
			if !f.quiet {
				fmt.Fprintf(a.Stderr, "submitted %s; follow it with: ulisse watch %s\n", j.Name, j.Id)
			}
		}
	}
	if err != nil {
		return err
	}
	switch {
	case f.wait && len(jobs) == 1:
		return a.finish(ctx, s, f, jobs[0], f.out, func(rec *report.Record) error { return a.conclude(rec, f.out, f.json) })
	case f.wait:
		return a.finishEach(ctx, s, f, parts, jobs)
	case !f.json:
		return nil
	case len(jobs) == 1:
		return a.printJSON(client.NewJobView(jobs[0]))
	}
	var views []client.JobView
	for _, j := range jobs {
		views = append(views, client.NewJobView(j))
	}
	return a.printJSON(views)
}

// finish follows a job to its end, gets its results, and has them concluded.
func (a *App) finish(ctx context.Context, s *session, f *submitFlags, j *pb.Job, dir string, conclude func(*report.Record) error) error {
	out := a.Stderr
	if f.quiet {
		out = io.Discard
	}
	j, err := a.follow(ctx, s, j, out, a.TTY && !f.quiet)
	if err != nil {
		if client.Interrupted(err) {
			fmt.Fprintf(a.Stderr, "interrupted; the job goes on: come back with 'ulisse watch %s', then 'ulisse results %s'; end it with 'ulisse cancel %s'\n", j.Id, j.Id, j.Id)
			return &exit{code: ExitInterrupted}
		}
		return err
	}
	if err := verdict(j); code(err) == ExitFailure {
		_ = os.Remove(dir) // which is empty, or else stays
		return err
	}
	return a.fetch(ctx, s, j, dir, conclude)
}

// enqueue brings the data of specifications, which are of one table, to the cluster and submits a job of each. It
// returns those that were submitted.
func (a *App) enqueue(ctx context.Context, s *session, f *submitFlags, parts []job.Part) (jobs []*pb.Job, err error) {
	data := ""
	if parts[0].Spec.Data.Path != "" && !f.byReference {
		blob, err := a.bring(ctx, s, parts, f.quiet)
		if err != nil {
			return nil, err
		}
		data = blob.Sha256
	}
	for _, p := range parts {
		req := &pb.SubmitRequest{ClientId: f.clientID, Priority: f.priority, Data: data}
		if f.clientID != "" && p.Name != "" {
			req.ClientId += "-" + p.Name
		}
		text, err := p.Spec.YAML()
		if err != nil {
			return jobs, err
		}
		req.Spec = string(text)
		j, err := s.Submit(ctx, req)
		if err != nil {
			return jobs, ofTarget(p, err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// ofTarget says which target an error is of, where there are several.
func ofTarget(p job.Part, err error) error {
	if p.Name == "" || err == nil {
		return err
	}
	return fmt.Errorf("target %s: %w", p.Spec.Data.Target, err)
}

// bring checks a table here, where mistakes in it can be told at once, and
// uploads it.
func (a *App) bring(ctx context.Context, s *session, parts []job.Part, quiet bool) (*pb.Blob, error) {
	path := parts[0].Spec.Data.Path
	if path == dataset.Stdin { // its address must be known before its first byte is sent
		tmp, err := os.CreateTemp("", "ulisse-*")
		if err != nil {
			return nil, err
		}
		defer os.Remove(tmp.Name())
		_, err = io.Copy(tmp, io.LimitReader(a.Stdin, dataset.DefaultLimits.Bytes+1))
		if err := errors.Join(err, tmp.Close()); err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		path = tmp.Name()
	}
	for _, p := range parts {
		local := *p.Spec
		local.Data.Path = path
		d, _, err := a.load(ctx, &local, parallel.NewBudget(0))
		if err != nil {
			return nil, ofTarget(p, err)
		}
		if quiet {
			continue
		}
		if p.Name != "" {
			a.note("target %s: %d rows, %s", d.Target, d.N(), plural.Of(d.D(), "input"))
		}
		a.hints(p.Spec, d)
	}
	return a.upload(ctx, s, path, quiet)
}

// upload uploads a file and tells how far it is.
func (a *App) upload(ctx context.Context, s *session, path string, quiet bool) (*pb.Blob, error) {
	first, at := int64(-1), int64(-1)
	blob, err := s.UploadFile(ctx, path, func(present, size int64) {
		if first < 0 {
			first = present
		}
		if percent := 100 * present / size; a.TTY && !quiet && percent != at && first < size {
			at = percent
			fmt.Fprintf(a.Stderr, "\r\x1b[Kuploading %s: %d %% of %s", path, percent, bytesText(size))
		}
	})
	if at >= 0 {
		fmt.Fprint(a.Stderr, "\r\x1b[K")
	}
	if err == nil && !quiet {
		what := "uploaded " + bytesText(blob.Size-first)
		if first == blob.Size {
			what = "the cluster has it already"
		}
		fmt.Fprintf(a.Stderr, "%s: %s, %s\n", path, what, blob.Sha256)
	}
	return blob, err
}
