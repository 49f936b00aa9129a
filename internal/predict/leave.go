package predict

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/cholesky"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/evidence"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/loo"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Loo returns how well the given training rows, numbers from 0 within the training rows, are predicted
// from all others, in the units of the target. Draw t of the predictor is of chain t mod chains, as
// Thin returns them.
func (p *Predictor) Loo(ctx context.Context, data *dataset.Dataset, chains int, rows []int, o Options) (*loo.Result, Stats, error) {
	o.Offset = data.OffsetOf(rows)
	d, stats, err := p.LeftOutDraws(ctx, &data.Info, rows, o)
	if err != nil {
		return nil, stats, err
	}
	numbers, targets, table := make([]int, len(rows)), make([]float64, len(rows)), data.TrainingRows()
	for i, row := range rows {
		numbers[i], targets[i] = data.Number(table[row]), data.Observed(row)
	}
	return loo.New(d, chains, numbers, targets, len(p.Problem.Y)), stats, nil
}

// LeftOutDraws returns the distributions of the targets of training rows, each left out, at each draw, with the
// offsets of the options in these rows, in the units of the target of the described data.
func (p *Predictor) LeftOutDraws(ctx context.Context, info *dataset.Info, rows []int, o Options) (loo.Draws, Stats, error) {
	m, stats, err := p.LeaveOneOut(ctx, rows, o)
	if err != nil {
		return loo.Draws{}, stats, err
	}
	m.shift(o.Offset)
	t := len(p.Draws)
	d := loo.Draws{LogDensity: solve.Columns(len(rows), t), CDF: solve.Columns(len(rows), t), Mean: solve.Columns(len(rows), t), SD: solve.Columns(len(rows), t)}
	p.Budget.NewLoop(func(_, i int) {
		z, of := p.Problem.Y[rows[i]], likelihood.At(m.likelihood, i)
		if o.Offset != nil { // the targets that are computed with are less by it
			z += o.Offset[i]
		}
		y := info.Undo(z)
		for s := range t {
			one := info.Told(of.Predict(m.own[s:s+1], m.Mean[s][i:i+1], m.Var[s][i:i+1]))
			d.LogDensity[s][i], d.CDF[s][i] = one.LogDensity(y), one.CDF(y)
			d.Mean[s][i], d.SD[s][i] = one.Moments()
		}
	}).Run(len(rows))
	return d, stats, nil
}

// LeaveOneOut returns the distributions of the latent function at training rows, given by number, each
// given the targets of all other rows. With a = K⁻¹y and q_i = (K⁻¹)_ii that of the target of row i
// has (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 5.12)
//
//	mean y_i − a_i/q_i     variance 1/q_i
//
// and the latent function the noise less. Where most rows are asked for, and a factor of K has room,
// q is the diagonal of a stored inverse. Else q_i is an element of the solution x of K·x = e_i: with the
// residual r it is x_i + rᵀx, too small by rᵀK⁻¹r, which is at most ‖r‖²/λ. o.Latent and o.Variance
// are without effect. The errors are those of Predict.
func (p *Predictor) LeaveOneOut(ctx context.Context, rows []int, o Options) (*Moments, Stats, error) {
	if err := o.Check(); err != nil {
		return nil, Stats{}, err
	}
	if l := likelihood.Base(p.Problem.Likelihood); likelihood.Width(l) > 0 || p.Problem.Functions() > 1 {
		return nil, Stats{}, fmt.Errorf("rows cannot be left out exactly under the %s likelihood: only Gaussian noise allows it; ulisse cv leaves out folds of rows under any", l.Name())
	}
	if err := p.without(); err != nil {
		return nil, Stats{}, err
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	out := p.moments(len(rows), nil)
	if l, ok := out.likelihood.(likelihood.ByRow); ok {
		out.likelihood = l.Select(rows)
	}
	stats := Stats{Draws: len(p.Draws), Rows: len(rows)}
	leave := p.leaveByColumns
	if n := len(p.Problem.Y); n <= storedPays*len(rows) && evidence.Bytes(n, true) <= storedBytes {
		leave = p.leaveStored
	}
	if err := leave(ctx, rows, o, out, &stats); err != nil {
		return nil, stats, err
	}
	prior := func(f *kernel.Function, i int) float64 { return f.Variance(p.Problem.Inputs.Row(rows[i])) }
	if err := p.usable(out, prior, &stats); err != nil {
		return nil, stats, err
	}
	o.Progress(Progress{RowsStage, len(rows) * len(p.Draws), len(rows) * len(p.Draws)})
	return out, stats, nil
}

// A stored factor and its inverse take about n³/2 multiply-adds, m solves m·n² an iteration: from
// a row in storedPays on the factor is less work, if it has room.
const (
	storedPays  = 30
	storedBytes = 2 << 30
)

// SampleRows is how many rows are left out in turn where nobody asks for a number and all of them
// would be more work than so many.
const SampleRows = 400

// Importance weights are the more to be trusted the more draws there are: leave-one-out takes mostLooDraws
// unless that is more than looWork multiply-adds with a stored inverse; then fewer, at least MaxAutoDraws.
const (
	mostLooDraws = 1000
	looWork      = 1e12
)

// LooDraws returns how many draws rows are left out at, of n rows, where nobody asks for a number.
func LooDraws(n int) int {
	return max(MaxAutoDraws, int(min(mostLooDraws, looWork/math.Pow(float64(n), 3))))
}

// LeftOut returns which of n training rows are left out in turn: want of them, or if want is 0 all, unless
// these are many (SampleRows), in increasing order. Of the same n and want they are the same, so that
// models of the same rows can be compared.
func LeftOut(n, want int) []int {
	if want == 0 && n > storedPays*SampleRows {
		want = SampleRows
	}
	if want == 0 || want >= n {
		want = n
	}
	rows := random.Key{}.Stream(random.LeftOut, 0).Perm(n)[:want]
	slices.Sort(rows)
	return rows
}

// leaveStored fills in the rows from a stored inverse at each draw.
func (p *Predictor) leaveStored(ctx context.Context, rows []int, o Options, out *Moments, stats *Stats) error {
	pr, n := p.Problem, len(p.Problem.Y)
	cov := cmvp.NewElements(pr.Inputs, pr.Covariance, p.Budget)
	e := evidence.New(cov, pr.Targets(), p.Budget)
	for s, psi := range p.Draws {
		theta, noise := pr.At(psi)
		cov.Set(pr.Covariance.At(theta), noise)
		a, q, err := e.Inverse(ctx)
		if singular := new(cholesky.NotPositive); errors.As(err, &singular) {
			return unsolvable(psi)
		} else if err != nil {
			return err
		}
		for i, row := range rows {
			out.Mean[s][i] = pr.Y[row] - a[row]/q[row]
			out.Var[s][i] = 1/q[row] - cov.Noise(row)
		}
		o.Progress(Progress{RowsStage, len(rows) * (s + 1), len(rows) * len(p.Draws)})
	}
	stats.Solves = n * len(p.Draws)
	return nil
}

// leaveByColumns fills in the rows from solves, a batch of them side by side.
func (p *Predictor) leaveByColumns(ctx context.Context, rows []int, o Options, out *Moments, stats *Stats) error {
	if err := p.prepare(ctx, o.Progress); err != nil {
		return err
	}
	stats.MeansUnconverged = p.unconverged
	done := 0
	for chunk := range slices.Chunk(rows, Batch(len(p.Problem.Y))) {
		x, b := solve.Columns(len(p.Problem.Y), len(chunk)), solve.Columns(len(p.Problem.Y), len(chunk))
		for c, row := range chunk {
			b[c][row] = 1
		}
		points := p.Problem.Inputs.Select(chunk)
		for step, s := range p.order {
			mean, variance := out.Mean[s][done:done+len(chunk)], out.Var[s][done:done+len(chunk)]
			if err := p.leave(ctx, s, chunk, points, x, b, o.Tolerance, mean, variance, stats); err != nil {
				return err
			}
			o.Progress(Progress{RowsStage, done*len(p.Draws) + len(chunk)*(step+1), len(rows) * len(p.Draws)})
		}
		done += len(chunk)
	}
	return nil
}

// leave fills in a batch of rows at draw s. b are the columns of those rows of the identity, x the
// solutions of the draw before, and after it of this one.
func (p *Predictor) leave(ctx context.Context, s int, rows []int, points *kernel.Inputs, x, b [][]float64, tolerance float64, mean, variance []float64, stats *Stats) error {
	psi := p.Draws[s]
	_, noise := p.Problem.At(psi)
	at := func(row int) float64 {
		if len(noise) == 1 {
			return noise[0]
		}
		return noise[row]
	}
	least, f := slices.Min(noise), p.Problem.Function(psi)
	targets := make([]float64, len(rows))
	for c, row := range rows { // q is 1/K_ii at least
		targets[c] = math.Sqrt(2 * tolerance * least / (f.Variance(points.Row(c)) + at(row)))
	}
	p.solver.SetTargets(targets)
	rep, err := p.solveAt(ctx, p.Problem, psi, x, b)
	if err != nil {
		return err
	}
	for c, row := range rows {
		r := p.solver.Residual(c)
		var rx, rr float64
		for i, v := range r {
			rx, rr = rx+v*x[c][i], rr+v*v
		}
		q := x[c][row] + rx
		mean[c], variance[c] = p.Problem.Y[row]-p.alphas[s][row]/q, 1/q-at(row)
		if math.Sqrt(rr) > targets[c] {
			stats.Unconverged++
		}
		stats.Bound = max(stats.Bound, 0.5*rr/(least*q))
		stats.Iterations += rep.Iterations[c]
	}
	stats.Solves += len(rows)
	return nil
}
