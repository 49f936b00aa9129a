package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// outcome fetches a job's run as it stands, and its specification's text.
func (a *App) outcome(ctx context.Context, s *session, j *pb.Job) (*outcome, string, error) {
	res, err := s.Result(ctx, j.Id)
	if err != nil {
		return nil, "", err
	}
	if res.Run == nil || res.Run.Prepared == nil {
		return nil, "", fmt.Errorf("job %s has no draws yet: it is %s", j.Id, stateWord(j.State))
	}
	o := &outcome{data: &res.Data, run: res.Run, wall: time.Duration(res.WallSeconds * float64(time.Second)), isa: res.InstructionSet}
	if o.spec, err = job.Parse(strings.NewReader(res.Spec), "the job's specification"); err == nil {
		o.model, err = o.spec.KernelModel(res.Data.D())
	}
	if err == nil && (len(o.model.Names()) != res.Run.Plan.Params() || len(res.Run.Chains) == 0) {
		err = fmt.Errorf("%d parameters in %d chains, where the model has %d", res.Run.Plan.Params(), len(res.Run.Chains), len(o.model.Names()))
	}
	if err != nil {
		return nil, "", fmt.Errorf("the result of job %s cannot be read: %w", j.Id, err)
	}
	return o, res.Spec, nil
}

// keep writes what report.WriteAll does not: the specification and the log.
func (a *App) keep(ctx context.Context, s *session, j *pb.Job, dir, spec string) error {
	if err := writeBytes(filepath.Join(dir, "spec.yaml"), []byte(spec)); err != nil {
		return err
	}
	err := report.WriteFile(filepath.Join(dir, "log.jsonl"), func(w io.Writer) error {
		return s.Logs(ctx, &pb.LogsRequest{Id: j.Id}, func(l *pb.LogLine) error {
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
	for key, value := range map[string]any{"time": moment(l.Time), "level": "INFO", "worker": l.Worker} {
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
			err = a.fetch(ctx, s, j, out, asJSON)
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

func (a *App) summaryCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "summary JOB",
		Short: "Print the summary of a job's draws so far",
		Args:  cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			j, err := a.find(ctx, s, args[0])
			if err != nil {
				return err
			}
			text, err := s.Summary(ctx, j.Id)
			if err != nil {
				return err
			}
			var sum report.Summary
			if err := json.Unmarshal([]byte(text), &sum); err != nil {
				return fmt.Errorf("the summary of job %s cannot be read: %w", j.Id, err)
			}
			if asJSON { // all that was sent, also what this version does not know
				return a.printJSON(json.RawMessage(text))
			}
			return sum.WriteText(a.Stdout)
		}),
	}
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}

func (a *App) drawsCommand() *cobra.Command {
	var r remote
	var out string
	var chain int
	c := &cobra.Command{
		Use:   "draws JOB",
		Short: "Print a job's draws so far as CSV",
		Long: `Print a job's draws so far as CSV: those of one chain as CmdStan writes them and
'ulisse run' does into draws/chain-K.csv; those of all chains in one table, with
the columns chain__ and draw__ before the others.`,
		Example: `  ulisse draws concrete --out draws.csv
  ulisse draws concrete --chain 1 > chain-1.csv`,
		Args: cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			j, err := a.find(ctx, s, args[0])
			if err != nil {
				return err
			}
			o, _, err := a.outcome(ctx, s, j)
			if err != nil {
				return err
			}
			if n := len(o.run.Chains); chain < 0 || chain > n {
				return badInput(fmt.Errorf("--chain %d: job %s has chains 1 to %d", chain, j.Id, n))
			}
			write := func(w io.Writer) error {
				if chain > 0 {
					return report.WriteCSV(w, o.summary(), o.data, o.model, o.run, chain-1)
				}
				return report.WriteTable(w, o.data, o.model, o.run)
			}
			return a.output(out, write)
		}),
	}
	r.flags(c)
	c.Flags().StringVarP(&out, "out", "o", "-", "write into this `file` (- for standard output)")
	c.Flags().IntVar(&chain, "chain", 0, "only this `chain`")
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
	return report.WriteFile(path, write)
}
