package predict

import (
	"context"
	"encoding/csv"
	"io"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// averages are those of the latent function, or of one of its terms, over some sets of points.
type averages struct {
	p    *Predictor
	term *summand         // nil for the whole function
	over []*cmvp.Operator // whose inputs the points are, and whose covariance is that of the function
}

func (a averages) len() int { return len(a.over) }

func (a averages) at(ctx context.Context, psi []float64) (cross [][]float64, prior []float64, err error) {
	if err := a.p.Budget.Acquire(ctx); err != nil {
		return nil, nil, err
	}
	defer a.p.Budget.Release()
	theta, _ := a.p.Problem.Natural(psi)
	if a.term != nil {
		theta = a.term.at(a.p.Problem.Function(psi)).Theta()
	}
	cross, prior = solve.Columns(len(a.p.Problem.Y), len(a.over)), make([]float64, len(a.over))
	for i, op := range a.over {
		op.Set(theta, []float64{1}) // K_f alone is used
		s := op.Len()
		each, own := solve.Columns(s, 1), solve.Columns(s, 1)
		for k := range each[0] {
			each[0][k] = 1 / float64(s)
		}
		if err := op.Cross(ctx, cross[i:i+1], a.p.Problem.Inputs, each); err != nil {
			return nil, nil, err
		}
		if err := op.Cross(ctx, own, op.Inputs(), each); err != nil {
			return nil, nil, err
		}
		prior[i] = floats.Sum(own[0]) / float64(s)
	}
	return cross, prior, nil
}

// EffectsRequest asks for the partial dependence of the latent function, or of one of its terms, on
// some inputs.
type EffectsRequest struct {
	Term   int         // from 1; 0 for the whole function
	Over   []int       // inputs that the term is over; nil for all
	Inputs []int       // from 0
	Grid   [][]float64 // their values, in original units
	Rows   []int       // training rows that are averaged over, from 0
	Probs  []float64   // of quantiles
}

// Effect is the average of the latent function over rows, all else in them as it is, with some inputs at given
// values: in the units of the target, or what the target is expected to be there, a probability of classes. That of a
// term is what the term adds, of mean zero before there are data, to the latent function: of the target's transform if
// it has one, of log odds, of the logarithm of an expected count.
type Effect struct {
	At        []float64 // the inputs' values
	Of        string    // of several latent functions what it is of: likelihood.Telling
	Mean, SD  float64
	Quantiles []float64
}

// Effects returns the partial dependence of the latent function on inputs (Friedman 2001), for each point of
// the grid the posterior of the average
//
//	A = 1/s Σ_i f(x_i with the inputs at their values)
//
// over s rows, the function's uncertainty and that of the parameters included. At a draw it is normal, since it
// is linear in f: its covariance with f(X) is the mean of the columns K(X,x_i), its prior variance that of all
// elements of K between the s points, and one solve gives the rest. The errors are those of Predict.
// Of several latent functions they are averages of what is expected of a target where the functions are known, such as the probability of each class: of draws
// of the functions at all rows together.
// Of a term f_t they are those of the term's covariance (see Terms); where it is over the given inputs alone,
// all rows are alike, and one is taken.
func (p *Predictor) Effects(ctx context.Context, info *dataset.Info, r EffectsRequest, o Options) ([]Effect, Stats, error) {
	if p.telling() != nil {
		return p.severalEffects(ctx, info, r, o)
	}
	o.Latent = true
	covariance, at := p.Problem.Covariance, averages{p: p}
	if r.Term > 0 {
		c, params := covariance.Part(r.Term - 1)
		covariance, at.term = c, &summand{covariance: c, params: params}
		if r.Over != nil && !slices.ContainsFunc(r.Over, func(k int) bool { return !slices.Contains(r.Inputs, k) }) {
			r.Rows = r.Rows[:1]
		}
	}
	some := func(lo, hi int) functionals {
		a := at
		for i := lo; i < hi; i++ {
			a.over = append(a.over, cmvp.New(p.withInputs(info, &r, i), covariance, p.Budget))
		}
		return a
	}
	prior := func(f *kernel.Function, _ int) float64 {
		if at.term != nil {
			f = at.term.at(f)
		}
		return f.Variance(p.Problem.Inputs.Row(r.Rows[0]))
	}
	m, stats, err := p.distributions(ctx, len(r.Grid), 1, o, some, prior)
	if err != nil {
		return nil, stats, err
	}
	stats.Rows = len(r.Rows)
	out := make([]Effect, len(r.Grid))
	for i := range out {
		mixture := m.Mixture(i, true)
		told := likelihood.Transformed(info.Told(mixture), likelihood.Link(likelihood.Base(p.Problem.Likelihood)))
		if r.Term > 0 {
			told = mixture.Scaled(0, info.YScale.SD)
		}
		mean, sd := told.Moments()
		out[i] = Effect{At: r.Grid[i], Mean: mean, SD: sd}
		for _, q := range r.Probs {
			out[i].Quantiles = append(out[i].Quantiles, told.Quantile(q))
		}
	}
	return out, stats, nil
}

// withInputs returns the rows of a request with its inputs at point i of the grid.
func (p *Predictor) withInputs(info *dataset.Info, r *EffectsRequest, i int) *kernel.Inputs {
	d := p.Problem.Inputs.Dim()
	x := make([]float64, 0, len(r.Rows)*d)
	for _, row := range r.Rows {
		x = append(x, p.Problem.Inputs.Row(row)...)
		for k, input := range r.Inputs {
			x[len(x)-d+input] = info.XScale[input].Apply(r.Grid[i][k])
		}
	}
	return kernel.NewInputs(len(r.Rows), d, x)
}

// EffectRows is how many rows effects are averaged over where nobody asks for a number.
const EffectRows = 1000

// EffectRows returns how many rows effects are averaged over, at most: want, or if that is 0 the default.
func (p *Predictor) EffectRows(want int) int {
	if want == 0 && p.telling() != nil {
		return SeveralEffectRows
	}
	return want
}

// Averaged returns the rows of n that effects are averaged over: want, or EffectRows if want is 0, of them
// chosen at random, in increasing order; all if there are no more. Of the same n and want they are the same.
func Averaged(n, want int) []int {
	if want == 0 {
		want = EffectRows
	}
	rows := random.Key{}.Stream(random.Averaged, 0).Perm(n)[:min(want, n)]
	slices.Sort(rows)
	return rows
}

// Grid returns values of an input, in original units: size of them, evenly spaced from the least of its
// training rows to the greatest, or all that occur if they are no more or levels of a category.
func Grid(data *dataset.Dataset, input, size int) []float64 {
	x := make([]float64, data.N())
	for i := range x {
		x[i] = data.XScale[input].Undo(data.X.Row(i)[input])
	}
	slices.Sort(x)
	if values := slices.Compact(slices.Clone(x)); len(values) <= size || data.LevelsOf(input) != nil {
		return values
	}
	return floats.Span(make([]float64, size), x[0], x[len(x)-1])
}

// WriteEffects writes effects of some inputs of the described data as CSV: their values by their names, as tables have them, of several latent functions what the line is of, mean, sd, and the
// quantiles of the given probabilities. Numbers are exact.
func WriteEffects(w io.Writer, info *dataset.Info, inputs []int, effects []Effect, probs []float64) error {
	t := table{csv.NewWriter(w)}
	var head []string
	for _, k := range inputs {
		head = append(head, info.InputNames[k])
	}
	several := len(effects) > 0 && effects[0].Of != ""
	if several {
		head = append(head, "of")
	}
	head = append(head, "mean", "sd")
	for _, p := range probs {
		head = append(head, QuantileName(p))
	}
	if err := t.Write(head); err != nil {
		return err
	}
	for _, e := range effects {
		var at []string
		for i, k := range inputs {
			at = append(at, info.Text(k, e.At[i]))
		}
		if several {
			at = append(at, e.Of)
		}
		if err := t.line(append([]float64{e.Mean, e.SD}, e.Quantiles...), at...); err != nil {
			return err
		}
	}
	return t.end()
}
