package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// coefficients writes the posterior of the mean's coefficients in the units of the data, as a table of their names, means
// and standard deviations. A term of the mean is its coefficient where its feature is 1: in a row all
// of whose inputs are a standard deviation above their averages.
func (a *App) coefficients(ctx context.Context, f *predictFlags, o predict.Options, from oracle) error {
	info := from.about()
	row := make([]float64, info.D())
	for k, s := range info.XScale {
		row[k] = s.Undo(1)
	}
	o.Latent = true // nothing is known of the noise there
	show := &predictProgress{app: a, quiet: f.quiet, began: a.Now()}
	o.Progress = show.at
	began := time.Now()
	rows, stats, err := from.predict(ctx, predict.Request{X: [][]float64{row}, Terms: true}, o)
	show.end()
	if err != nil {
		return err
	}
	terms := slices.DeleteFunc(rows[0].Terms, func(t predict.Term) bool { return !job.OfMean(t.Name) })
	if len(terms) == 0 {
		return badInput(errors.New("--coefficients: the model has no mean: say model.mean: constant, or linear, in the specification and run it"))
	}
	if err := a.output(f.out, func(w io.Writer) error { return writeCoefficients(w, terms, info) }); err != nil {
		return err
	}
	v := predictView{Stats: stats, Latent: true, Variance: o.Variance, Seconds: time.Since(began).Seconds(), Warnings: predictWarnings(stats, o)}
	return a.tellPredicted(f, &v)
}

func writeCoefficients(w io.Writer, terms []predict.Term, info *dataset.Info) error {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	t := csv.NewWriter(w)
	lines := [][]string{{"coefficient", "mean", "sd"}}
	for _, c := range terms {
		// The term is told in the units of the target already.
		name, shift, scale := job.Coefficient(c.Name, info)
		scale /= info.YScale.SD
		lines = append(lines, []string{name, number(shift + scale*c.Mean), number(scale * c.SD)})
	}
	return t.WriteAll(lines)
}
