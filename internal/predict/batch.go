package predict

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// functionals are linear functionals of the latent function, such as its values at some rows.
type functionals interface {
	len() int
	// at returns, at ψ, their covariances k* with the latent function at the training rows, a column
	// of n for each, and their prior variances k**. Its only error is that of ctx.
	at(ctx context.Context, psi []float64) (cross [][]float64, prior []float64, err error)
}

// values are those of the latent function at some points.
type values struct {
	p      *Predictor
	points *kernel.Inputs
}

func (v values) len() int { return v.points.Len() }

func (v values) at(ctx context.Context, psi []float64) (cross [][]float64, prior []float64, err error) {
	if err := v.p.Budget.Acquire(ctx); err != nil {
		return nil, nil, err
	}
	defer v.p.Budget.Release()
	f := v.p.Problem.Function(psi)
	prior = make([]float64, v.points.Len())
	for i := range prior {
		prior[i] = f.Variance(v.points.Row(i))
	}
	v.p.Operator.Set(v.p.Problem.At(psi))
	cross, err = v.p.Operator.CrossMatrix(ctx, v.points)
	return cross, prior, err
}

// batch is the prediction of some functionals: of the latent function's values at rows, say, of which
// the words below speak.
type batch struct {
	Options
	p              *Predictor
	of             functionals
	mean, variance [][]float64 // draws × rows
	x              [][]float64 // K⁻¹k* of the last draw, to begin the next from
	prior          []float64   // variances of the last draw before anything is learnt
	scale          []float64   // variances that were last found
	stats          *Stats
	done           func(draws int)
}

func (b *batch) run(ctx context.Context) error {
	if b.means {
		return b.average(ctx)
	}
	if b.Variance == Surface && len(b.p.Draws) > len(b.p.surface.points)+1 {
		return b.interpolate(ctx)
	}
	for done, t := range b.p.order {
		pr, err := b.p.problemAt(ctx, t)
		if err != nil {
			return err
		}
		if err := b.solve(ctx, pr, b.p.Draws[t], b.p.alphas[t], b.mean[t], b.variance[t]); err != nil {
			return err
		}
		b.done(done + 1)
	}
	return nil
}

// average computes means alone.
func (b *batch) average(ctx context.Context) error {
	for t, psi := range b.p.Draws {
		k, _, err := b.of.at(ctx, psi)
		if err != nil {
			return err
		}
		b.each(func(i int) { b.mean[t][i] = floats.Dot(k[i], b.p.alphas[t]) })
		b.done(t + 1)
	}
	return nil
}

// maxRounds bounds how often a batch is solved for with tighter targets at one
// draw, until all bounds hold.
const maxRounds = 4

// solve computes the rows' variances at ψ of a problem, and if alpha is K⁻¹y their means.
func (b *batch) solve(ctx context.Context, pr *posterior.Problem, psi, alpha, mean, variance []float64) error {
	p, m := b.p, b.of.len()
	_, noise := pr.At(psi)
	least := slices.Min(noise)
	k, prior, err := b.of.at(ctx, psi)
	if err != nil {
		return err
	}
	b.prior = prior
	if alpha != nil {
		b.each(func(i int) { mean[i] = floats.Dot(k[i], alpha) })
	}
	if b.x == nil {
		b.x = solve.Columns(len(p.Problem.Y), m)
		b.scale = make([]float64, m)
	}
	// A row's variance is off by ‖r‖²/λ at most, λ being the least noise: small
	// beside the noise, or beside what the latent variance is found to be.
	targets, wanted := make([]float64, m), make([]float64, m)
	for i := range wanted {
		wanted[i] = least
		if b.Latent && b.scale[i] > 0 {
			wanted[i] = min(wanted[i], 0.5*b.scale[i])
		}
	}
	bound := make([]float64, m) // on what each variance is too large by
	for round, again := 0, true; again && round < maxRounds; round++ {
		for i, v := range wanted {
			targets[i] = math.Sqrt(2 * b.Tolerance * least * v)
		}
		p.solver.SetTargets(targets)
		rep, err := p.solveAt(ctx, pr, psi, b.x, k)
		if err != nil {
			return err
		}
		for _, it := range rep.Iterations {
			b.stats.Iterations += it
		}
		b.each(func(i int) {
			r := p.solver.Residual(i)
			variance[i] = prior[i] - floats.Dot(k[i], b.x[i]) - floats.Dot(r, b.x[i])
			bound[i] = floats.Dot(r, r) / least
		})
		again = false
		for i := range wanted {
			reached := bound[i] <= targets[i]*targets[i]/least
			if v := b.least(variance[i], bound[i], prior[i], least); reached && 0.5*bound[i] > b.Tolerance*v {
				wanted[i], again = 0.5*v, true
			}
		}
	}
	b.stats.Solves += m
	for i, v := range variance {
		if bound[i] > targets[i]*targets[i]/least {
			b.stats.Unconverged++
		}
		b.stats.Bound = max(b.stats.Bound, 0.5*bound[i]/b.least(v, bound[i], prior[i], least))
	}
	copy(b.scale, variance)
	return nil
}

// least returns the least that a variance can be which was found to be v, of the
// latent function, and is too large by bound at most: of the latent function, or
// that of the target with the given noise.
func (b *batch) least(v, bound, prior, noise float64) float64 {
	if !b.Latent {
		return max(v-bound, 0) + noise
	}
	return max(v-bound, floor*prior, tiniest)
}

// floor is the least variance that bounds are held against, in units of the prior's; tiniest is one where that is
// 0, as it is of a straight line where all lines cross.
const (
	floor   = 1e-9
	tiniest = 1e-300
)

// each runs f on the batch's rows, on several cores.
func (b *batch) each(f func(i int)) {
	b.p.Budget.NewLoop(func(_, i int) { f(i) }).Run(b.of.len())
}
