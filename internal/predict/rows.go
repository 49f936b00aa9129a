package predict

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Request asks for predictions in the user's units.
type Request struct {
	X       [][]float64 // rows of the inputs, in original units
	Targets []float64   // what was observed there, NaN where that is not known; nil if none is
	// Noise is what is known of the noise there, where it differs between rows. If it is nil only the
	// latent function can be predicted.
	Noise []dataset.NoiseRow
	// Offset is what is known of the latent function there, in the units of the transformed target; nil for 0.
	Offset []float64
	Probs  []float64 // of quantiles, strictly between 0 and 1
	// Covariance asks for the joint covariance of all rows, and Paths for so many sample paths, of a seed, in
	// place of the rows' own distributions.
	Covariance bool
	Paths      int
	Seed       uint64
	// Gradient asks for that of the latent function at each row, GradientSD for its standard deviations too.
	Gradient, GradientSD bool
	Terms                bool // of the latent function at each row
}

// Joint reports whether all rows have to be predicted together.
func (r *Request) Joint() bool { return r.Covariance || r.Paths > 0 }

// Part returns the request for the rows from lo to hi.
func (r Request) Part(lo, hi int) Request {
	r.X = r.X[lo:hi]
	if r.Targets != nil {
		r.Targets = r.Targets[lo:hi]
	}
	if r.Noise != nil {
		r.Noise = r.Noise[lo:hi]
	}
	if r.Offset != nil {
		r.Offset = r.Offset[lo:hi]
	}
	return r
}

// Row is the prediction of a row, in the units of the target: its mixture's
// moments and quantiles. Where the target is known it is held against the
// mixture of the target, noise and all, whatever was asked for.
type Row struct {
	Mean, SD   float64
	Quantiles  []float64 // as many as were asked for
	Target     float64   // NaN if not known, and with it those that follow
	LogDensity float64   // of the target
	CRPS       float64
	PIT        float64   // probability of what is below the target
	Covariance []float64 // with all rows; nil unless asked for
	Paths      []float64 // its value on each; if there are any, all but the covariance is unset
	// Gradient has the mean of the latent function's derivative in each input, in the units of the target over
	// those of the input, and GradientSD its standard deviation; each is nil unless asked for.
	Gradient, GradientSD []float64
	Terms                []Term  // nil unless asked for
	Classes              []Class // of the target, in their order; nil but where there are three or more
	// Functions is what is told of each of several latent functions (likelihood.Telling), if the latent ones are asked for. On paths they have
	// names alone, and each path has a value of each.
	Functions []Term
}

// Class is one of the target's classes, with its probability.
type Class struct {
	Name        string  `json:"name"`
	Probability float64 `json:"probability"`
}

// Term is what a term of the covariance adds to the latent function, in the units of the target.
type Term struct {
	Name     string
	Mean, SD float64
}

// Rows predicts rows from a posterior of the described data.
func (p *Predictor) Rows(ctx context.Context, info *dataset.Info, r Request, o Options) ([]Row, Stats, error) {
	if err := cmp.Or(r.Possible(p.Problem.Covariance), r.Transformable(info), r.known(info, &o)); err != nil {
		return nil, Stats{}, err
	}
	o.Offset = info.StandardOffset(r.Offset)
	cov, parts, tell := p.Problem.Covariance, 1, o.Progress
	if r.GradientSD {
		parts += info.D()
	}
	if r.Terms {
		parts += len(cov.Terms())
	}
	o.Progress = part(tell, 0, 1, parts)
	rows, stats, err := p.rows(ctx, info, r, o)
	if err != nil {
		return nil, stats, err
	}
	done := 1
	more := func(of func(context.Context, *kernel.Inputs, Options) (*Moments, Stats, error), each, work int, add func(row *Row, k int, of likelihood.Predictive)) error {
		o.Progress = part(tell, done, work, parts)
		done += work
		m, s, err := of(ctx, info.Standardize(r.X), o)
		s.Rows = 0 // the same ones
		stats.Add(s)
		if err != nil {
			return err
		}
		for i := range rows {
			for k := range each {
				add(&rows[i], k, m.Mixture(i*each+k, true))
			}
		}
		return nil
	}
	if r.Gradient {
		slopes := func(ctx context.Context, points *kernel.Inputs, o Options) (*Moments, Stats, error) {
			return p.Slopes(ctx, points, r.GradientSD, o)
		}
		work := 0 // the means take no solves
		if r.GradientSD {
			work = info.D()
		}
		err = more(slopes, info.D(), work, func(row *Row, k int, of likelihood.Predictive) {
			mean, sd := of.Scaled(0, info.YScale.SD/info.XScale[k].SD).Moments()
			row.Gradient = append(row.Gradient, mean)
			if r.GradientSD {
				row.GradientSD = append(row.GradientSD, sd)
			}
		})
	}
	if r.Terms && err == nil {
		err = more(p.Terms, len(cov.Terms()), len(cov.Terms()), func(row *Row, k int, of likelihood.Predictive) {
			mean, sd := of.Scaled(0, info.YScale.SD).Moments()
			row.Terms = append(row.Terms, Term{cmp.Or(cov.TermName(k), "kernel"), mean, sd})
		})
	}
	if err != nil {
		return nil, stats, err
	}
	return rows, stats, nil
}

// Possible returns an error, one sentence, if a covariance does not have what is asked for.
func (r *Request) Possible(c *kernel.Covariance) error {
	if r.Terms && len(c.Terms()) < 2 {
		return errors.New("the covariance has one term only, and no mean: there is nothing to tell it apart from")
	}
	if r.Gradient {
		return c.Differentiable()
	}
	return nil
}

// Transformable returns an error, one sentence, if something is asked for that has no meaning for a transformed
// target.
func (r *Request) Transformable(info *dataset.Info) error {
	if r.Covariance && info.Transform.Kind != likelihood.None {
		return fmt.Errorf("rows of %s have a joint covariance, but those of %s, which are not normal, are told by more than that: ask for sample paths", info.Learnt(), info.Target)
	}
	for i, y := range r.Targets {
		if err := info.Transform.Check(y); err != nil {
			return fmt.Errorf("the target of row %d: %w", i+1, err)
		}
	}
	return nil
}

// known tells the options what is known of the rows' noise. It returns an error if targets are to be
// predicted, or held against predictions, of whose noise nothing is known.
func (r *Request) known(info *dataset.Info, o *Options) error {
	n := info.Noise
	switch {
	case n == nil || r.Noise == nil && o.Latent && r.Targets == nil:
		return nil
	case r.Noise == nil && len(n.Required()) == 0:
		r.Noise = slices.Repeat([]dataset.NoiseRow{{Weight: 1}}, len(r.X))
	case r.Noise == nil:
		return fmt.Errorf("the noise differs between rows and is not given of these, so that nothing can be told of their targets: give %s, or ask for the latent function alone", strings.Join(n.Required(), " and "))
	}
	rows, err := n.Rows(r.Noise, info.YScale)
	o.Noise = &rows
	return err
}

// part returns what is told of the progress of a stage that is some parts of the work, each of which costs as
// much as the rows themselves; before are the parts done.
func part(tell func(Progress), before, work, parts int) func(Progress) {
	if tell == nil {
		return nil
	}
	return func(at Progress) {
		switch {
		case at.Stage != RowsStage:
		case work == 0: // next to nothing is left
			return
		default:
			rows := at.Total / work
			at.Done, at.Total = at.Done+before*rows, parts*rows
		}
		tell(at)
	}
}

// rows predicts rows but for their gradients.
func (p *Predictor) rows(ctx context.Context, info *dataset.Info, r Request, o Options) ([]Row, Stats, error) {
	points := info.Standardize(r.X)
	if r.Joint() {
		j, stats, err := p.Joint(ctx, points, JointOptions{Options: o, Covariance: r.Covariance, Paths: r.Paths, Seed: r.Seed})
		if err != nil {
			return nil, stats, err
		}
		return j.rows(info, r, o.Latent, p.Budget), stats, nil
	}
	m, stats, err := p.Predict(ctx, points, o)
	if err != nil {
		return nil, stats, err
	}
	return Summarize(m, info, r, o.Latent, p.Budget), stats, nil
}

// rows returns the rows of a joint distribution.
func (j *Joint) rows(info *dataset.Info, r Request, latent bool, budget *parallel.Budget) []Row {
	nan := math.NaN()
	out := make([]Row, len(r.X))
	if len(j.Paths) == 0 {
		out = Summarize(j.Moments, info, r, latent, budget)
	}
	for i := range out {
		if j.Covariance != nil {
			out[i].Covariance = j.Covariance[i]
			floats.Scale(info.YScale.SD*info.YScale.SD, out[i].Covariance)
		}
		if len(j.Paths) == 0 {
			continue
		}
		out[i].Target, out[i].LogDensity, out[i].CRPS, out[i].PIT = nan, nan, nan, nan
		for _, q := range j.Quantities {
			out[i].Functions = append(out[i].Functions, Term{q.Name, nan, nan})
		}
		for _, path := range j.Paths {
			if j.Quantities == nil {
				out[i].Paths = append(out[i].Paths, info.Undo(path[i]))
			}
			for c, q := range j.Quantities {
				out[i].Paths = append(out[i].Paths, inUnits(q, info, path[i*len(j.Quantities)+c]))
			}
		}
	}
	return out
}

// Summarize returns the rows of moments, in the units of the described data.
func Summarize(m *Moments, info *dataset.Info, r Request, latent bool, budget *parallel.Budget) []Row {
	out := make([]Row, len(r.X))
	base := likelihood.Base(m.likelihood)
	unordered := likelihood.OfCategories(base)
	classes := unordered || likelihood.OfOrder(base)
	budget.NewLoop(func(_, i int) {
		var target likelihood.Predictive
		known := r.Targets != nil && !math.IsNaN(r.Targets[i])
		if !latent || known || classes {
			target = m.Mixture(i, false)
		}
		told := target
		row := &out[i]
		if latent {
			row.Functions = m.latents(info, i)
		}
		if latent && !unordered {
			told = m.Mixture(i, true)
			row.Functions = row.Functions[min(1, len(row.Functions)):] // mean, sd and quantiles are of the first
		}
		told = info.Told(told)
		row.Mean, row.SD = told.Moments()
		for _, p := range r.Probs {
			row.Quantiles = append(row.Quantiles, told.Quantile(p))
		}
		if classes {
			for c, p := range likelihood.Shares(target) {
				row.Classes = append(row.Classes, Class{info.Classes[c], p})
			}
		}
		row.Target, row.LogDensity, row.CRPS, row.PIT = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		if known {
			y, noisy := r.Targets[i], info.Told(target)
			row.Target, row.LogDensity, row.CRPS, row.PIT = y, noisy.LogDensity(y), noisy.CRPS(y), noisy.CDF(y)
		}
	}).Run(len(out))
	return out
}

// QuantileName returns the name of a quantile in tables: q2.5 for 0.025.
func QuantileName(p float64) string { return "q" + strconv.FormatFloat(100*p, 'g', 10, 64) }

// table is a CSV file of numbers.
type table struct{ *csv.Writer }

// line writes a line: texts, then numbers, exactly.
func (t table) line(values []float64, first ...string) error {
	rec := first
	for _, v := range values {
		rec = append(rec, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return t.Write(rec)
}

// end ends the table.
func (t table) end() error {
	t.Flush()
	return t.Error()
}

// name returns the number of row i in tables: i+1, or what numbers, if not nil, says.
func name(i int, numbers []int) string {
	if numbers != nil {
		return strconv.Itoa(numbers[i])
	}
	return strconv.Itoa(i + 1)
}

// WriteCSV writes a table of predictions: row, the row's number from first on;
// mean, sd, and the quantiles of the given probabilities; as far as they were asked for,
// gradient[NAME] of each input and gradient_sd[NAME] of each, mean[NAME] and sd[NAME] of each term or of each of several latent functions; where there are classes, the
// probability p[NAME] of each and, behind row, class, the likeliest one, and of classes without an order neither mean, sd nor quantiles; and, where targets are
// known, target, log_density, crps and pit (of classes without an order brier in place of the two), NaN of rows whose target is not. Where paths were asked for they are all that
// follows row: path_1, path_2, …, of several latent functions path_1[NAME] of each. Values are exact. numbers, if not nil, are the rows' numbers.
func WriteCSV(w io.Writer, rows []Row, inputs []string, probs []float64, numbers []int) error {
	t := table{csv.NewWriter(w)}
	known := slices.ContainsFunc(rows, Row.known)
	first := func(i int) []string { return []string{name(i, numbers)} }
	head := []string{"row"}
	if len(rows) > 0 && rows[0].Classes != nil {
		head = append(head, "class")
		first = func(i int) []string { return []string{name(i, numbers), rows[i].likeliest().Name} }
	}
	if err := t.Write(append(head, header(rows, inputs, probs, known)...)); err != nil {
		return err
	}
	for i, r := range rows {
		if err := t.line(r.values(known), first(i)...); err != nil {
			return err
		}
	}
	return t.end()
}

// Unordered reports whether the target is a class without an order: it has no mean, sd or quantiles, and its CRPS is the Brier score.
func (r *Row) Unordered() bool { return r.Classes != nil && math.IsNaN(r.Mean) }

// likeliest returns the class of the greatest probability.
func (r Row) likeliest() Class {
	return slices.MaxFunc(r.Classes, func(a, b Class) int { return cmp.Compare(a.Probability, b.Probability) })
}

// known reports whether the target is.
func (r Row) known() bool { return !math.IsNaN(r.Target) }

// header returns the names of the rows' values; known says whether the target of one is.
func header(rows []Row, inputs []string, probs []float64, known bool) (head []string) {
	var first Row
	if len(rows) > 0 {
		first = rows[0]
	}
	if len(first.Paths) > 0 {
		each := max(1, len(first.Functions))
		for k := range first.Paths {
			name := "path_" + strconv.Itoa(k/each+1)
			if first.Functions != nil {
				name += "[" + first.Functions[k%each].Name + "]"
			}
			head = append(head, name)
		}
		return head
	}
	if !first.Unordered() {
		head = []string{"mean", "sd"}
		for _, p := range probs {
			head = append(head, QuantileName(p))
		}
	}
	for k := range first.Gradient {
		head = append(head, "gradient["+inputs[k]+"]")
	}
	for k := range first.GradientSD {
		head = append(head, "gradient_sd["+inputs[k]+"]")
	}
	for _, t := range slices.Concat(first.Terms, first.Functions) {
		head = append(head, "mean["+t.Name+"]", "sd["+t.Name+"]")
	}
	for _, c := range first.Classes {
		head = append(head, "p["+c.Name+"]")
	}
	switch {
	case known && first.Unordered():
		head = append(head, "target", "log_density", "brier")
	case known:
		head = append(head, "target", "log_density", "crps", "pit")
	}
	return head
}

// values returns what a table says of a row, of its target if that of one is known.
func (r *Row) values(known bool) (values []float64) {
	if len(r.Paths) > 0 {
		return r.Paths
	}
	if r.Unordered() {
		for _, f := range r.Functions {
			values = append(values, f.Mean, f.SD)
		}
		for _, c := range r.Classes {
			values = append(values, c.Probability)
		}
		if known {
			values = append(values, r.Target, r.LogDensity, r.CRPS)
		}
		return values
	}
	values = slices.Concat([]float64{r.Mean, r.SD}, r.Quantiles, r.Gradient, r.GradientSD)
	for _, t := range slices.Concat(r.Terms, r.Functions) {
		values = append(values, t.Mean, t.SD)
	}
	for _, c := range r.Classes {
		values = append(values, c.Probability)
	}
	if known {
		values = append(values, r.Target, r.LogDensity, r.CRPS, r.PIT)
	}
	return values
}

// WriteCovariance writes the joint covariance of rows as CSV: row, then a column for each row, named by
// its number.
func WriteCovariance(w io.Writer, rows []Row, numbers []int) error {
	t := table{csv.NewWriter(w)}
	head := []string{"row"}
	for i := range rows {
		head = append(head, name(i, numbers))
	}
	if err := t.Write(head); err != nil {
		return err
	}
	for i, r := range rows {
		if err := t.line(r.Covariance, name(i, numbers)); err != nil {
			return err
		}
	}
	return t.end()
}
