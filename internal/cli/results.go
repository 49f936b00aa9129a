package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/version"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// record fetches the record of a job's run as it stands.
func (a *App) record(ctx context.Context, s *session, j *pb.Job) (*report.Record, error) {
	res, err := s.Result(ctx, j.Id)
	if err != nil {
		return nil, err
	}
	if res.Run == nil || res.Run.Prepared == nil {
		return nil, fmt.Errorf("job %s has no draws yet: its state is %s", j.Id, client.StateWord(j.State))
	}
	rec := &report.Record{SpecText: res.Spec, Data: res.Data, Run: res.Run, WallSeconds: res.WallSeconds, InstructionSet: res.InstructionSet,
		Origin: report.Origin{Version: version.Version, Job: j.Id}}
	if j.Ended != nil {
		rec.Origin.Ended = j.Ended.AsTime()
	}
	rec.Origin.State = res.State
	for _, c := range j.GetProgress().GetChains() {
		for _, w := range append([]string{c.Worker}, c.Group...) {
			rec.Origin.Saw(w)
		}
	}
	if err := rec.Open(); err != nil {
		return nil, fmt.Errorf("the result of job %s cannot be read: %w", j.Id, err)
	}
	return rec, nil
}

// keep writes what report.WriteAll does not: the specification and the log.
// The log tells who computed the job.
func (a *App) keep(ctx context.Context, s *session, j *pb.Job, dir string, rec *report.Record) error {
	if err := writeBytes(filepath.Join(dir, "spec.yaml"), []byte(rec.SpecText)); err != nil {
		return err
	}
	err := atomicfile.Write(filepath.Join(dir, "log.jsonl"), 0o644, func(w io.Writer) error {
		return s.Logs(ctx, &pb.LogsRequest{Id: j.Id}, func(l *pb.LogLine) error {
			rec.Origin.Saw(l.Worker)
			line, err := logLine(l)
			if err == nil {
				_, err = w.Write(append(line, '\n'))
			}
			return err
		})
	})
	if err != nil && ctx.Err() == nil { // logs are not replicated; results are
		fmt.Fprintln(a.Stderr, "ulisse: no log.jsonl:", err)
		return nil
	}
	return err
}

// logLine returns a log line as ulisse run writes it, with the worker: what
// workers send as JSON keeps its fields, other text becomes the message.
func logLine(l *pb.LogLine) ([]byte, error) {
	var line map[string]any
	dec := json.NewDecoder(strings.NewReader(l.Text))
	dec.UseNumber() // digits stay as they are
	if dec.Decode(&line) != nil || line == nil || dec.More() {
		line = map[string]any{"msg": l.Text, "chain": l.Chain}
	}
	for key, value := range map[string]any{"time": client.Moment(l.Time), "level": "INFO", "worker": l.Worker} {
		if _, ok := line[key]; !ok {
			line[key] = value
		}
	}
	return json.Marshal(line)
}

func (a *App) resultsCommand() *cobra.Command {
	var r remote
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "results JOB",
		Short: "Write a job's results into a folder, as 'ulisse run' would",
		Long: `Write a job's results into a folder (by default ./NAME-ID), as 'ulisse run'
would: draws, summary, plots, specification and log. Of a job that goes on they
are those of its draws so far.`,
		Args: cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			j, err := a.find(ctx, s, args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = j.Name + "-" + j.Id
			}
			if err := newFolder(out); err != nil {
				return err
			}
			err = a.fetch(ctx, s, j, out, func(rec *report.Record) error { return a.conclude(rec, out, asJSON) })
			if code(err) == ExitUnconverged { // it has written what it was asked for
				return nil
			}
			return err
		}),
	}
	r.flags(c)
	c.Flags().StringVarP(&out, "out", "o", "", "write into this `folder`")
	c.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}

// output writes a file, whole or not at all, or to standard output.
func (a *App) output(path string, write func(io.Writer) error) error {
	switch path {
	case "":
		return badInput(errors.New("--out: the file's name is empty"))
	case "-":
		return write(a.Stdout)
	}
	return atomicfile.Write(path, 0o644, write)
}
