package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// effectsFlags say whose effects are to be told, and how.
type effectsFlags struct {
	remote
	train    string
	out      string
	plot     string
	term     string
	grid     int
	rows     int // 0 for as many as are averaged over by default
	draws    int
	quantile []string
	probs    []float64 // of quantile
	threads  int
	quiet    bool
}

// Values of an input in a grid, unless others are asked for, and points of a grid at most.
const (
	gridOfOne     = 20
	gridOfTwo     = 10
	mostGridWork  = 10_000
	mostEffectsOf = 2 // inputs
)

func (a *App) effectsCommand() *cobra.Command {
	var f effectsFlags
	c := &cobra.Command{
		Use:   "effects FOLDER|JOB INPUT [INPUT]",
		Short: "Tell how the target depends on an input, averaged over the rows (partial dependence)",
		Long: `Tell how the target depends on an input, or on two: their partial dependence. For each value
of a grid the input is set to it in all training rows, all else in them as it is, and the
latent function is averaged over the rows. A CSV table is written with that average's
posterior, the uncertainty of the function and of the covariance parameters included: mean,
standard deviation and quantiles, in the units of the target; of classes and counts as the
probability, or the expected count, that goes with the average. Of several latent functions
it is what is expected of a target that is averaged, with a line for each: the probability of
every class, p[NAME], or mean and noise_sd of heteroscedastic noise.

The grid is evenly spaced from the least to the greatest value in the training rows; an input
with fewer different values is taken at those, a category at its levels. The average is over all rows, or over a sample
of 1000 where there are more (200 of several latent functions), always the same one. It is computed here, also of a job.

--term tells what one term of a covariance that is a sum adds to the latent function, in place
of the whole. 'ulisse report --effects' draws all of them.`,
		Example: `  ulisse effects concrete age --plot age.svg
  ulisse effects ./concrete age cement --grid 15 --out effects.csv
  ulisse effects co2 decimal_date --term season --plot season.svg`,
		Args: cobra.RangeArgs(2, 1+mostEffectsOf),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(args[1:]); err != nil {
			return badInput(err)
		}
		if !c.Flags().Changed("rows") {
			f.rows = 0
		}
		return a.about(&f.remote, func(ctx context.Context, s *subject) error { return a.effects(ctx, s, &f, args[1:]) })(c, args[:1])
	}
	f.remote.flags(c)
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "-", "write the table into this `file` (- for standard output)")
	fl.StringVar(&f.plot, "plot", "", "draw the effect, with the outer quantiles as a band, into this SVG `file`")
	fl.StringVar(&f.term, "term", "", "tell of the term of this `name` alone")
	fl.IntVar(&f.grid, "grid", 0, fmt.Sprintf("take this `number` of values of each input (default: %d, of two inputs %d)", gridOfOne, gridOfTwo))
	fl.IntVar(&f.rows, "rows", predict.EffectRows, "average over a random sample of this `number` of rows, or over all if there are no more")
	fl.IntVar(&f.draws, "draws", 0, fmt.Sprintf("average over this `number` of draws (default: as many as are independent, %d at most)", predict.MaxAutoDraws))
	fl.StringSliceVar(&f.quantile, "quantiles", []string{"0.025", "0.5", "0.975"}, "write the quantiles of these `probabilities`")
	fl.StringVar(&f.train, "train", "", "read the training table from this `path` instead of the specification's")
	fl.IntVar(&f.threads, "threads", 0, "compute on this many cores (default: all)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	c.ValidArgsFunction = a.completeAbout(&f.remote)
	return c
}

// check returns an error if there is a mistake in the flags, and fills in what they leave out.
func (f *effectsFlags) check(inputs []string) (err error) {
	if f.grid == 0 {
		f.grid = map[int]int{1: gridOfOne, 2: gridOfTwo}[len(inputs)]
	}
	if f.probs, err = probabilities(f.quantile); err != nil {
		return err
	}
	points := f.grid
	if len(inputs) == 2 {
		points *= f.grid
	}
	switch {
	case len(inputs) == 2 && inputs[0] == inputs[1]:
		return fmt.Errorf("%s and %s: give two different inputs", inputs[0], inputs[1])
	case f.grid < 2 || f.grid > mostGridWork || points > mostGridWork:
		return fmt.Errorf("--grid %d: give a number from 2 on, and of %d points in all at most", f.grid, mostGridWork)
	case f.rows < 1:
		return fmt.Errorf("--rows %d: give a positive number", f.rows)
	case f.draws < 0:
		return fmt.Errorf("--draws %d: give a positive number", f.draws)
	case f.threads < 0:
		return fmt.Errorf("--threads %d: give a positive number", f.threads)
	}
	return nil
}

// effects computes the effects of inputs and writes them.
func (a *App) effects(ctx context.Context, s *subject, f *effectsFlags, inputs []string) error {
	p, d, _, err := s.predictor(ctx, f.train, f.threads, func(int) int { return f.draws })
	if err != nil {
		return err
	}
	rec, err := s.record(ctx)
	if err != nil {
		return err
	}
	addends, err := rec.Spec.Addends(&d.Info)
	if err != nil {
		return err
	}
	r := predict.EffectsRequest{Rows: predict.Averaged(d.N(), p.EffectRows(f.rows)), Probs: f.probs}
	if f.term != "" {
		if r.Term, err = termNamed(addends, f.term); err != nil {
			return err
		}
		r.Over = addends[r.Term-1].Inputs
	}
	values, err := gridOf(d, inputs, f.grid, &r)
	if err != nil {
		return err
	}
	show := &predictProgress{app: a, quiet: f.quiet, began: a.Now(), what: "values"}
	began := time.Now()
	effects, stats, err := p.Effects(ctx, &d.Info, r, predict.Options{Progress: show.at})
	show.end()
	if err != nil {
		return err
	}
	if err := a.output(f.out, func(w io.Writer) error { return predict.WriteEffects(w, &d.Info, r.Inputs, effects, f.probs) }); err != nil {
		return err
	}
	if f.plot != "" {
		of, latent := rec.Spec.Tells(&d.Info)
		title := ""
		if f.term != "" {
			of, title = latent, ", term "+f.term
		}
		title = fmt.Sprintf("Effect of %s on %s", strings.Join(inputs, " and "), of) + title
		curves, band := effectCurves(&d.Info, effects, values, r.Inputs, f.probs)
		if err := atomicfile.Write(f.plot, 0o644, func(w io.Writer) error {
			return plots.Effect(w, title, axisOf(&d.Info, r.Inputs[0]), of, band, curves)
		}); err != nil {
			return err
		}
	}
	a.warnings(predictWarnings(stats, predict.Options{}))
	if !f.quiet {
		fmt.Fprintf(a.Stderr, "%s averaged over %d rows and %s in %s\n", plural.Of(len(effects), "value"), stats.Rows, plural.Of(stats.Draws, "draw"), time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// termNamed returns the number of a term, from 1.
func termNamed(addends []job.Addend, name string) (int, error) {
	var names []string
	for i, a := range addends {
		if a.Name == name {
			return i + 1, nil
		}
		names = append(names, a.Name)
	}
	if len(names) == 1 && names[0] == "" {
		return 0, badInput(fmt.Errorf("--term %s: the covariance is one family: it has no terms", name))
	}
	return 0, badInput(fmt.Errorf("--term %s: the covariance has the terms %s", name, strings.Join(names, ", ")))
}

// gridOf adds the inputs and their grid to a request, and returns the values of each input.
func gridOf(d *dataset.Dataset, inputs []string, size int, r *predict.EffectsRequest) (values [][]float64, err error) {
	r.Grid = [][]float64{nil}
	for _, name := range inputs {
		k := slices.Index(d.InputNames, name)
		if k < 0 {
			return nil, badInput(fmt.Errorf("there is no input %q: there are %s", name, strings.Join(d.InputNames, ", ")))
		}
		own := predict.Grid(d, k, size)
		values, r.Inputs = append(values, own), append(r.Inputs, k)
		var longer [][]float64
		for _, v := range own { // the last input first, so that the first changes quickest
			for _, at := range r.Grid {
				longer = append(longer, append(slices.Clone(at), v))
			}
		}
		r.Grid = longer
	}
	if len(r.Grid) > mostGridWork {
		return nil, badInput(fmt.Errorf("%d points of a grid, more than %d: these inputs have too many levels", len(r.Grid), mostGridWork))
	}
	return values, nil
}

// axisOf returns what pictures tell of an input.
func axisOf(info *dataset.Info, input int) plots.Axis {
	a := plots.Axis{Name: info.InputNames[input], Levels: info.LevelsOf(input)}
	if info.DateOf(input).Unit != "" {
		a.Text = func(x float64) string { return info.Text(input, x) }
	}
	return a
}

// effectCurves returns a curve over the first input, for each of some values of the second if there is one,
// and what its band is.
func effectCurves(info *dataset.Info, effects []predict.Effect, values [][]float64, inputs []int, probs []float64) (curves []plots.Curve, band string) {
	per, several := len(values[0]), len(inputs) > 1
	lo, hi := outer(probs)
	if lo < hi {
		band = fmt.Sprintf("%s to %s", predict.QuantileName(probs[lo]), predict.QuantileName(probs[hi]))
	}
	for _, part := range plots.Some(len(effects) / per) {
		c := plots.Curve{Name: cmp.Or(effects[part*per].Of, "mean")}
		if several {
			given := info.InputNames[inputs[1]] + " = " + shortText(info, inputs[1], values[1][part%len(values[1])])
			c.Name = strings.TrimPrefix(effects[part*per].Of+", "+given, ", ")
		}
		for _, e := range effects[part*per : (part+1)*per] {
			c.X, c.Y = append(c.X, e.At[0]), append(c.Y, e.Mean)
			if !several && lo < hi {
				c.Lo, c.Hi = append(c.Lo, e.Quantiles[lo]), append(c.Hi, e.Quantiles[hi])
			}
		}
		curves = append(curves, c)
	}
	return curves, band
}

// shortText returns a value of an input as people write it, a number to four digits.
func shortText(info *dataset.Info, input int, x float64) string {
	if info.LevelsOf(input) == nil && info.DateOf(input).Unit == "" {
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
	return info.Text(input, x)
}

// outer returns where the least and the greatest of some probabilities are, 0 and 0 if there are none.
func outer(probs []float64) (lo, hi int) {
	for i, p := range probs {
		if p < probs[lo] {
			lo = i
		}
		if p > probs[hi] {
			hi = i
		}
	}
	return lo, hi
}
