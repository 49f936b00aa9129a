package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

func (a *App) reportCommand() *cobra.Command {
	var f reportFlags
	c := &cobra.Command{
		Use:   "report JOB|FOLDER",
		Short: "Write a job's results, or those in a run's folder, as one HTML page",
		Long: `Write what is known of a job's draws so far, or of those in the folder of a run,
as one HTML page that needs nothing beside it: warnings in words, summary, plots,
cost, specification, and where the numbers come from. 'ulisse run' and 'ulisse
results' write it too, as report.html. With --loo it tells, too, how well rows are
predicted that were left out, as 'ulisse loo' does, with a picture of the calibration
(LOO-PIT). With --check it compares the targets with data sets that the fitted model makes
of the same rows (posterior predictive check): their densities, mean, standard deviation,
extremes and skewness. With --effects it draws how the target depends on each input, or what
each term of a sum adds over each of its inputs, as 'ulisse effects' does. --rows, --draws and
the like are for these three.`,
		Example: `  ulisse report concrete --out concrete.html
  ulisse report ./concrete --out - | gzip > concrete.html.gz`,
		Args: cobra.ExactArgs(1),
	}
	run := a.about(&f.remote, func(ctx context.Context, s *subject) error { return a.report(ctx, s, &f) })
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return run(c, args)
	}
	f.flags(c)
	c.Flags().BoolVar(&f.leave, "loo", false, "leave out each row in turn, and tell how well it is predicted")
	c.Flags().BoolVar(&f.replicates, "check", false, "compare the targets with data that the fitted model makes")
	c.Flags().BoolVar(&f.effects, "effects", false, "draw the effect of each input, of a sum term by term")
	c.Flags().StringVarP(&f.out, "out", "o", "report.html", "write this `file` (- for standard output)")
	c.ValidArgsFunction = a.completeAbout(&f.remote)
	return c
}

type reportFlags struct {
	looFlags
	out                        string
	leave, replicates, effects bool
}

// report writes the page.
func (a *App) report(ctx context.Context, s *subject, f *reportFlags) error {
	if f.out == "" {
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
	if f.leave {
		res, stats, err := a.leaveOut(ctx, s, &f.looFlags)
		if err != nil {
			return err
		}
		a.warnings(newLooView(res, stats).Warnings)
		rec.Loo = res
	}
	if f.replicates {
		if rec.Check, err = a.replicate(ctx, s, &f.looFlags); err != nil {
			return err
		}
		a.warnings(rec.Check.Doubts())
	}
	if f.effects {
		if rec.Effects, err = a.allEffects(ctx, s, &f.looFlags); err != nil {
			return err
		}
	}
	if err := a.output(f.out, func(w io.Writer) error { return report.WriteHTML(w, rec, rec.Summary(), a.Now()) }); err != nil {
		return err
	}
	if f.out != "-" {
		fmt.Fprintln(a.Stdout, f.out)
	}
	return nil
}

// Of a posterior predictive check: data sets, and rows of each unless --rows says how many.
const (
	replicates   = 40
	replicateMax = 500
)

// replicate has the fitted model make data sets of rows that it has learnt from.
func (a *App) replicate(ctx context.Context, s *subject, f *looFlags) (*report.Check, error) {
	p, d, _, err := s.predictor(ctx, f.train, f.threads, func(int) int { return cmp.Or(f.draws, replicates) })
	if err != nil {
		return nil, err
	}
	rows := predict.LeftOut(d.N(), cmp.Or(f.rows, min(replicateMax, d.N())))
	show := &predictProgress{app: a, quiet: f.quiet, began: a.Now()}
	defer show.end()
	noise := d.RowNoise.Select(rows)
	j, _, err := p.Joint(ctx, d.X.Select(rows), predict.JointOptions{Options: predict.Options{Progress: show.at, Noise: &noise, Offset: d.OffsetOf(rows)}, Paths: replicates})
	if errors.As(err, new(*predict.TooMany)) {
		return nil, badInput(fmt.Errorf("--rows: %w", err))
	}
	if err != nil {
		return nil, err
	}
	c := &report.Check{Target: d.Target, Of: d.N(), Replicated: j.Paths}
	for _, i := range rows {
		c.Observed = append(c.Observed, d.Observed(i))
	}
	for _, path := range c.Replicated {
		for i := range path {
			path[i] = d.Undo(path[i])
		}
	}
	return c, nil
}

// Of the effects that a report draws.
const (
	effectGrid = 40 // values of an input
	effectMost = 60 // pictures
)

// allEffects computes the effect of each input, of a sum term by term.
func (a *App) allEffects(ctx context.Context, s *subject, f *looFlags) ([]report.Effect, error) {
	p, d, _, err := s.predictor(ctx, f.train, f.threads, func(int) int { return f.draws })
	if err != nil {
		return nil, err
	}
	rec, err := s.record(ctx)
	if err != nil {
		return nil, err
	}
	addends, err := rec.Spec.Addends(&d.Info)
	if err != nil {
		return nil, err
	}
	several := rec.Spec.Model.Several()
	if several { // whose terms have no effects of their own
		var whole job.Addend
		for k := range d.D() {
			whole.Inputs = append(whole.Inputs, k)
		}
		addends = []job.Addend{whole}
	}
	var out []report.Effect
	for t, addend := range addends {
		for _, k := range addend.Inputs {
			if len(out) == effectMost {
				a.warnings([]string{fmt.Sprintf("the report has the first %d effects: ask for others by ulisse effects", effectMost)})
				return out, nil
			}
			values := predict.Grid(d, k, effectGrid)
			r := predict.EffectsRequest{Inputs: []int{k}, Rows: predict.Averaged(d.N(), p.EffectRows(f.rows)), Probs: []float64{0.025, 0.975}}
			if addend.Name != "" {
				r.Term, r.Over = t+1, addend.Inputs
			}
			for _, v := range values {
				r.Grid = append(r.Grid, []float64{v})
			}
			show := &predictProgress{app: a, quiet: f.quiet, began: a.Now(), what: "values"}
			effects, stats, err := p.Effects(ctx, &d.Info, r, predict.Options{Progress: show.at})
			show.end()
			if err != nil {
				return nil, err
			}
			a.warnings(predictWarnings(stats, predict.Options{}))
			of, latent := rec.Spec.Tells(&d.Info)
			if r.Term > 0 {
				of = latent
			}
			curves, _ := effectCurves(&d.Info, effects, [][]float64{values}, r.Inputs, r.Probs)
			for _, curve := range curves {
				if several {
					of = curve.Name
				}
				out = append(out, report.Effect{Term: addend.Name, Input: axisOf(&d.Info, k), Target: of, Curve: curve})
			}
		}
	}
	return out, nil
}
