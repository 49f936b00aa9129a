package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/report"
)

func (a *App) reportCommand() *cobra.Command {
	var r remote
	var out string
	c := &cobra.Command{
		Use:   "report JOB|FOLDER",
		Short: "Write a job's results, or those in a run's folder, as one HTML page",
		Long: `Write what is known of a job's draws so far, or of those in the folder of a run,
as one HTML page that needs nothing beside it: warnings in words, summary, plots,
cost, specification, and where the numbers come from. 'ulisse run' and 'ulisse
results' write it too, as report.html.`,
		Example: `  ulisse report concrete --out concrete.html
  ulisse report ./concrete --out - | gzip > concrete.html.gz`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.about(&r, func(ctx context.Context, s *subject) error {
		if out == "" {
			return badInput(errors.New("--out: the file's name is empty"))
		}
		rec, err := s.record(ctx)
		if err != nil {
			return err
		}
		if s.dir == "" && len(rec.Origin.Workers) == 0 { // the log of a job that has ended knows who computed it
			if _, err := s.stats(ctx, rec); err != nil {
				return err
			}
		}
		if err := a.output(out, func(w io.Writer) error { return report.WriteHTML(w, rec, rec.Summary(), a.Now()) }); err != nil {
			return err
		}
		if out != "-" {
			fmt.Fprintln(a.Stdout, out)
		}
		return nil
	})
	r.flags(c)
	c.Flags().StringVarP(&out, "out", "o", "report.html", "write this `file` (- for standard output)")
	c.ValidArgsFunction = a.completeAbout(&r)
	return c
}
